"""The physical plan: the line of rounds, engine-neutral."""
