"""A source over rows of SQLite and a sink that maintains a SQLite table, with public names alone."""
