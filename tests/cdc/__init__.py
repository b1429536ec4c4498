"""Tables of a database: what Debezium recorded of a real PostgreSQL, and whether they stay what the database has."""
