"""The demos: change logs joined, shown while they run, and checked by a batch join."""
