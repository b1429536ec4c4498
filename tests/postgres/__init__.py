"""PostgreSQL as a sink, with a server of the tests' own."""
