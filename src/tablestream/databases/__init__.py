"""Tables of a database: Debezium's topics, and Delta's change data feed."""
