"""A deterministic simulator of the micro-batch engine: whole queries without Spark, with faults, from a seed."""
