"""Sources and sinks: files, Delta tables, PostgreSQL tables, Kafka topics, memory."""
