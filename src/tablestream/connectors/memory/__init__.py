"""The driver's memory: a sink."""
