"""Sources and sinks: files, Delta tables, Kafka topics, memory."""
