"""Kafka Streams' table algebra for PySpark Structured Streaming."""
