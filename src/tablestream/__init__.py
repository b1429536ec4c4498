"""Tables that stay right on Spark Structured Streaming."""

from tablestream import errors
from tablestream.aggregates import (
    approx_count_distinct,
    approx_percentile,
    avg,
    collect_list,
    collect_set,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004 - Spark's name
    min,  # noqa: A004 - Spark's name
    sum,  # noqa: A004 - Spark's name
)
from tablestream.connectors.avro import avro, confluent_avro
from tablestream.connectors.delta import delta
from tablestream.connectors.files import files, read_files
from tablestream.connectors.kafka import from_kafka
from tablestream.connectors.kafka_sink import kafka
from tablestream.connectors.memory import memory
from tablestream.connectors.sink import Sink
from tablestream.grouped import GroupedStream, GroupedTable
from tablestream.metrics.listener import MetricsListener
from tablestream.metrics.opentelemetry import OpenTelemetryExporter
from tablestream.metrics.query_metrics import OperatorMetrics, QueryMetrics
from tablestream.relation import Rejected
from tablestream.row import Row
from tablestream.sources import global_table, stream, table
from tablestream.spark.runner import OutputRequest, plan_text, start
from tablestream.spark.session import configure
from tablestream.spark.state_reader import read_state
from tablestream.star import Lookup, lookup
from tablestream.stream import Stream
from tablestream.table import GlobalTable, Table

__all__ = [
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
    "approx_count_distinct",
    "approx_percentile",
    "avg",
    "avro",
    "collect_list",
    "collect_set",
    "configure",
    "confluent_avro",
    "count",
    "count_distinct",
    "delta",
    "errors",
    "files",
    "first",
    "from_kafka",
    "global_table",
    "kafka",
    "last",
    "lookup",
    "max",
    "memory",
    "min",
    "plan_text",
    "read_files",
    "read_state",
    "start",
    "stream",
    "sum",
    "table",
]
__version__ = "0.1.0"
