"""PostgreSQL: a sink."""
