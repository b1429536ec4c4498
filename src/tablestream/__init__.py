"""Tables that stay right on Spark Structured Streaming."""

from tablestream.connectors.delta import delta
from tablestream.connectors.files import files, read_files
from tablestream.connectors.memory import memory
from tablestream.row import Row
from tablestream.spark.runner import start
from tablestream.table import Table, table

__all__ = ["Row", "Table", "delta", "files", "memory", "read_files", "start", "table"]
__version__ = "0.1.0"
