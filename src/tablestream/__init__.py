"""Maintained tables on Spark Structured Streaming.

`table` and `stream` read a streaming DataFrame, `from_files` and `from_kafka` make one. Tables are joined, grouped and
filtered by their methods, and `start` runs a query that writes every change of its outputs:

>>> import tablestream as ts  # doctest: +SKIP
>>> log = ts.from_files(spark, "logs/positions", "csv", "id int, ticker string, amount int")  # doctest: +SKIP
>>> positions = ts.table(log, "id")  # doctest: +SKIP
>>> log = ts.from_files(spark, "logs/prices", "csv", "ticker string, price double")  # doctest: +SKIP
>>> holdings = positions.join(ts.table(log, "ticker"), on="ticker", how="left")  # doctest: +SKIP
>>> query = ts.start(holdings.to(ts.to_files("out/holdings")), checkpoint="out/checkpoint")  # doctest: +SKIP
"""

# Each name is imported when it is first used. Spark's workers import this package for one module of a stage, and all
# public names would take half of the time in which such a process starts.

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# A Spark Connect server that this process starts reads it where PYSPARK_PYTHON is not set. Other sessions' workers
# do not depend on it. It must be there before the session, so importing this package sets it.
if sys.executable:
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

if TYPE_CHECKING:
    from tablestream import errors, functions, testing
    from tablestream.behind import Lag, SourceLag, lag
    from tablestream.connectors.avro.format import avro, confluent_avro
    from tablestream.connectors.console.sink import to_console
    from tablestream.connectors.delta.sink import to_delta
    from tablestream.connectors.files.sink import to_files
    from tablestream.connectors.files.source import from_files
    from tablestream.connectors.kafka.sink import to_kafka
    from tablestream.connectors.kafka.source import from_kafka
    from tablestream.connectors.memory.sink import to_memory
    from tablestream.connectors.postgres.sink import to_postgres
    from tablestream.connectors.sink import Sink
    from tablestream.connectors.source import Origin, with_origin
    from tablestream.databases.change_feed import from_change_feed
    from tablestream.databases.debezium import Debezium, from_debezium
    from tablestream.grouped import GroupedStream, GroupedTable
    from tablestream.handles.as_of_time import AsOfTime, as_of
    from tablestream.handles.joining import KEY
    from tablestream.handles.relation import Rejected
    from tablestream.handles.star import Lookup, lookup
    from tablestream.metrics.listener import MetricsListener
    from tablestream.metrics.opentelemetry import OpenTelemetryExporter
    from tablestream.metrics.query_metrics import OperatorMetrics, QueryMetrics
    from tablestream.pictures.diagram import Diagram
    from tablestream.pictures.timeline import Timeline, timeline
    from tablestream.provenance.answer import Why
    from tablestream.sources import global_table, stream, table
    from tablestream.spark.evolution import Evolution
    from tablestream.spark.evolve import check, drop_generations, evolve
    from tablestream.spark.local_spark import local_session
    from tablestream.spark.relocation import relocate_checkpoint
    from tablestream.spark.requests import OutputRequest
    from tablestream.spark.row import Row
    from tablestream.spark.runner import diagram, plan_text, start
    from tablestream.spark.session import configure
    from tablestream.spark.state_reader import read_state
    from tablestream.spark.verification import Verification, verify
    from tablestream.spark.why import why
    from tablestream.sql.call import sql
    from tablestream.sql.file import sql_file
    from tablestream.streams import Stream
    from tablestream.tables import GlobalTable, Table

__all__ = [
    "KEY",
    "AsOfTime",
    "Debezium",
    "Diagram",
    "Evolution",
    "GlobalTable",
    "GroupedStream",
    "GroupedTable",
    "Lag",
    "Lookup",
    "MetricsListener",
    "OpenTelemetryExporter",
    "OperatorMetrics",
    "Origin",
    "OutputRequest",
    "QueryMetrics",
    "Rejected",
    "Row",
    "Sink",
    "SourceLag",
    "Stream",
    "Table",
    "Timeline",
    "Verification",
    "Why",
    "as_of",
    "avro",
    "check",
    "configure",
    "confluent_avro",
    "diagram",
    "drop_generations",
    "errors",
    "evolve",
    "from_change_feed",
    "from_debezium",
    "from_files",
    "from_kafka",
    "functions",
    "global_table",
    "lag",
    "local_session",
    "lookup",
    "plan_text",
    "read_state",
    "relocate_checkpoint",
    "sql",
    "sql_file",
    "start",
    "stream",
    "table",
    "testing",
    "timeline",
    "to_console",
    "to_delta",
    "to_files",
    "to_kafka",
    "to_memory",
    "to_postgres",
    "verify",
    "why",
    "with_origin",
]
__version__ = "0.1.0"

_SUBMODULES = ("errors", "functions", "testing")
#: The modules that define the public names.
_DEFINED_IN = {
    "tablestream.behind": ("Lag", "SourceLag", "lag"),
    "tablestream.connectors.avro.format": ("avro", "confluent_avro"),
    "tablestream.connectors.console.sink": ("to_console",),
    "tablestream.connectors.delta.sink": ("to_delta",),
    "tablestream.connectors.files.sink": ("to_files",),
    "tablestream.connectors.files.source": ("from_files",),
    "tablestream.connectors.kafka.sink": ("to_kafka",),
    "tablestream.connectors.kafka.source": ("from_kafka",),
    "tablestream.connectors.memory.sink": ("to_memory",),
    "tablestream.connectors.postgres.sink": ("to_postgres",),
    "tablestream.connectors.sink": ("Sink",),
    "tablestream.connectors.source": ("Origin", "with_origin"),
    "tablestream.databases.change_feed": ("from_change_feed",),
    "tablestream.databases.debezium": ("Debezium", "from_debezium"),
    "tablestream.grouped": ("GroupedStream", "GroupedTable"),
    "tablestream.handles.as_of_time": ("AsOfTime", "as_of"),
    "tablestream.handles.joining": ("KEY",),
    "tablestream.handles.relation": ("Rejected",),
    "tablestream.handles.star": ("Lookup", "lookup"),
    "tablestream.metrics.listener": ("MetricsListener",),
    "tablestream.metrics.opentelemetry": ("OpenTelemetryExporter",),
    "tablestream.metrics.query_metrics": ("OperatorMetrics", "QueryMetrics"),
    "tablestream.pictures.diagram": ("Diagram",),
    "tablestream.pictures.timeline": ("Timeline", "timeline"),
    "tablestream.provenance.answer": ("Why",),
    "tablestream.sources": ("global_table", "stream", "table"),
    "tablestream.spark.evolution": ("Evolution",),
    "tablestream.spark.evolve": ("check", "drop_generations", "evolve"),
    "tablestream.spark.local_spark": ("local_session",),
    "tablestream.spark.relocation": ("relocate_checkpoint",),
    "tablestream.spark.requests": ("OutputRequest",),
    "tablestream.spark.row": ("Row",),
    "tablestream.spark.runner": ("diagram", "plan_text", "start"),
    "tablestream.spark.session": ("configure",),
    "tablestream.spark.state_reader": ("read_state",),
    "tablestream.spark.verification": ("Verification", "verify"),
    "tablestream.spark.why": ("why",),
    "tablestream.sql.call": ("sql",),
    "tablestream.sql.file": ("sql_file",),
    "tablestream.streams": ("Stream",),
    "tablestream.tables": ("GlobalTable", "Table"),
}
_MODULES = {name: module for module, names in _DEFINED_IN.items() for name in names}


if not TYPE_CHECKING:  # or type checkers would take every name

    def __getattr__(name: str) -> Any:
        """Import a public name."""
        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_MODULES[name]), name)
        return found


def __dir__() -> list[str]:
    """Return the public names, also those that were not used yet."""
    return [*__all__, "__version__"]
