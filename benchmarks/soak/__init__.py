"""A soak: a join between topics, under a steady load, while executors are killed; ``make soak``."""
