"""Records of Debezium, which captures the changes of databases: from bytes to rows of a table."""

from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.inference import infer

__all__ = ["AvroReader", "Columns", "DebeziumDecoder", "infer"]
