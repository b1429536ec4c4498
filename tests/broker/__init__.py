"""A Kafka broker on this machine, for tests, tutorials and benchmarks."""
