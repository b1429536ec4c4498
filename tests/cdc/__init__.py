"""Change data capture: recorded topics, and a writer of records like them."""
