"""Tables that stay right on Spark Structured Streaming."""

from tablestream.table import Table, table

__all__ = ["Table", "table"]
__version__ = "0.1.0"
