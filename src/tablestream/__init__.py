"""Maintained tables on Spark Structured Streaming."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tablestream.spark.quiet import only_declares_state

# A process that only declares a stage's state uses no public name. Each query starts such processes one after the
# other, and all of this would take three quarters of their time.
if TYPE_CHECKING:
    from tablestream import testing

if TYPE_CHECKING or not only_declares_state():
    from tablestream import errors, functions
    from tablestream.change_feed import from_change_feed
    from tablestream.connectors.avro import avro, confluent_avro
    from tablestream.connectors.delta import to_delta
    from tablestream.connectors.files import from_files, to_files
    from tablestream.connectors.kafka import from_kafka
    from tablestream.connectors.kafka_sink import to_kafka
    from tablestream.connectors.memory import to_memory
    from tablestream.connectors.postgres import to_postgres
    from tablestream.connectors.sink import Sink
    from tablestream.debezium import Debezium, from_debezium
    from tablestream.grouped import GroupedStream, GroupedTable
    from tablestream.metrics.listener import MetricsListener
    from tablestream.metrics.opentelemetry import OpenTelemetryExporter
    from tablestream.metrics.query_metrics import OperatorMetrics, QueryMetrics
    from tablestream.relation import Rejected
    from tablestream.row import Row
    from tablestream.sources import global_table, stream, table
    from tablestream.spark.relocation import relocate_checkpoint
    from tablestream.spark.runner import OutputRequest, plan_text, start
    from tablestream.spark.session import configure
    from tablestream.spark.state_reader import read_state
    from tablestream.star import Lookup, lookup
    from tablestream.stream import Stream
    from tablestream.table import GlobalTable, Table

__all__ = [
    "Debezium",
    "GlobalTable",
    "GroupedStream",
    "GroupedTable",
    "Lookup",
    "MetricsListener",
    "OpenTelemetryExporter",
    "OperatorMetrics",
    "OutputRequest",
    "QueryMetrics",
    "Rejected",
    "Row",
    "Sink",
    "Stream",
    "Table",
    "avro",
    "configure",
    "confluent_avro",
    "errors",
    "from_change_feed",
    "from_debezium",
    "from_files",
    "from_kafka",
    "functions",
    "global_table",
    "lookup",
    "plan_text",
    "read_state",
    "relocate_checkpoint",
    "start",
    "stream",
    "table",
    "testing",
    "to_delta",
    "to_files",
    "to_kafka",
    "to_memory",
    "to_postgres",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `testing` when it is first used: programs do not need it."""
    if name == "testing":
        return import_module("tablestream.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
