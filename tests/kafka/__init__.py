"""Kafka as a source and a sink, with a broker of the tests' own."""
