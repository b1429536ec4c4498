"""Kafka: a source and a sink."""
