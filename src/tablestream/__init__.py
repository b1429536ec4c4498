"""Maintained tables on Spark Structured Streaming."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tablestream.spark.quiet import only_declares_state

# A process that only declares a stage's state uses no public name. Each query starts such processes one after the
# other, and all of this would take three quarters of their time.
if TYPE_CHECKING:
    from tablestream import testing
    from tablestream.pictures.diagram import Diagram
    from tablestream.pictures.timeline import Timeline, timeline

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
    from tablestream.spark.runner import OutputRequest, diagram, plan_text, start
    from tablestream.spark.session import configure
    from tablestream.spark.state_reader import read_state
    from tablestream.star import Lookup, lookup
    from tablestream.stream import Stream
    from tablestream.table import GlobalTable, Table

__all__ = [
    "Debezium",
    "Diagram",
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
    "Timeline",
    "avro",
    "configure",
    "confluent_avro",
    "diagram",
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
    "timeline",
    "to_delta",
    "to_files",
    "to_kafka",
    "to_memory",
    "to_postgres",
]
__version__ = "0.1.0"


#: What programs seldom need is imported when it is first used: the module of each such name.
_LATER = {
    "Diagram": "tablestream.pictures.diagram",
    "Timeline": "tablestream.pictures.timeline",
    "testing": "tablestream.testing",
    "timeline": "tablestream.pictures.timeline",
}


def __getattr__(name: str) -> Any:
    """Import a name that is seldom needed."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if name == "testing" else getattr(module, name)
