"""Delta tables as streams: of the rows that are appended, and of changes, with what the feed says of each.

======================================  ============================================================================
``_change_type``                        it is
======================================  ============================================================================
``insert``, ``update_postimage``        the row that the version leaves
``delete``, ``update_preimage``         a row that was there before the version; it is first of its key in the version
any other                               an error
======================================  ============================================================================

The last change of a key in a version counts. So a preimage is a delete only of a key that the update took away.

To check the preimages, each row that was there before the version is in the frame twice: as a preimage, with its
values, and behind that as the delete.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from tablestream.connectors.capture_column import capture_column
from tablestream.connectors.delta.by_spark import SETTINGS, lacking
from tablestream.connectors.sink import quoted
from tablestream.connectors.source import Option, Origin, with_origin
from tablestream.errors import SessionSettingError
from tablestream.operators.captured.capture import DELETE, PREIMAGE, UPSERT

CHANGE_FEED = "_change_feed"
TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_NEW, _OLD = ("insert", "update_postimage"), ("delete", "update_preimage")
_ORIGIN = Origin(
    partition=(),
    time="{}.`timestamp`",
    malformed="{}.unknown",
    remedy="Give from_change_feed a change feed as Delta Lake or Spark writes it.",
    captured="{}.capture",
)
_DIGITS = 20
_OP = "__tablestream_op"


def appended_rows(
    spark: SparkSession, path: str, *, options: Mapping[str, Option] | None = None
) -> DataFrame:
    """Read the rows that are appended to a Delta table."""
    if lacking(spark):
        settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise SessionSettingError(
            f"The session lacks Delta Lake, which reads {path}.",
            hint=f"Start Spark with --packages io.delta:delta-spark_<Spark's version>_2.13:<version> {settings}",
        )
    return spark.readStream.format("delta").options(**(options or {})).load(path)


def change_feed(spark: SparkSession, path: str, *, options: Mapping[str, Option] | None = None) -> DataFrame:
    """Read the change feed of a Delta table; raises as `appended_rows`."""
    return appended_rows(spark, path, options={"readChangeFeed": True, **(options or {})})


def of_feed(feed: DataFrame, *, check_preimages: bool = False) -> DataFrame:
    """Put what the feed says of each change into one column, ``_change_feed``, behind those of the table.

    To check preimages, the frame has the rows that were there before a version as preimages, too.
    """
    columns = [name for name in feed.columns if name not in {TYPE, VERSION, TIMESTAMP}]
    op = F.when(F.col(TYPE).isin(*_NEW), UPSERT).when(F.col(TYPE).isin(*_OLD), DELETE)
    if check_preimages:
        op = F.explode(F.when(op == DELETE, F.array(F.lit(PREIMAGE), F.lit(DELETE))).otherwise(F.array(op)))
    frame = feed.select("*", op.alias(_OP))
    frame = frame.select(*(F.col(quoted(name)) for name in columns), _said().alias(CHANGE_FEED))
    return with_origin(frame, CHANGE_FEED, _ORIGIN)


def _said() -> Column:
    """What the feed says of a change."""
    kind, op = F.col(TYPE), F.col(_OP)
    version = F.lpad(F.col(VERSION).cast("string"), _DIGITS, "0")
    capture = capture_column(
        op=op,
        position=F.concat_ws(":", version, F.lit("0" * _DIGITS)),
        partition=F.lit(0),
        added=F.lit(False),
        number=F.when(kind == "insert", 0),
    )
    version_text, time_text = (F.col(name).cast("string") for name in (VERSION, TIMESTAMP))
    unknown = op.isNull() | F.col(VERSION).isNull() | F.col(TIMESTAMP).isNull()
    said = (("_change_type:", kind), ("_commit_version:", version_text), ("_commit_timestamp:", time_text))
    problem = F.concat_ws(" ", *(part for name, text in said for part in (F.lit(name), text)))
    return F.struct(
        F.concat_ws(":", version, F.when(op == PREIMAGE, "").when(op == DELETE, "0").otherwise("1")).alias(
            "order"
        ),
        F.col(TIMESTAMP).cast(TimestampType()).alias("timestamp"),
        F.when(unknown, problem).alias("unknown"),
        capture.alias("capture"),
    )
