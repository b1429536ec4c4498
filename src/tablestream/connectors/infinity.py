"""The infinite timestamps of PostgreSQL, which no type of Spark has, as Debezium writes them: two numbers."""

#: Microseconds since 1970, after and before all other times.
AFTER_ALL, BEFORE_ALL = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
#: How PostgreSQL writes them.
NAMES = {AFTER_ALL: "infinity", BEFORE_ALL: "-infinity"}
