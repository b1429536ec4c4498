"""A plan as a whole: from tables and what is asked of them to streaming data frames."""

from __future__ import annotations

import getpass
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.errors import MixedPlanError, SessionSettingError
from tablestream.options import Compat, OutputSpec, checked_compat, checked_shards
from tablestream.plan.lower import Ending, Line, Mode, Output, lower
from tablestream.spark.build import Builder, Settings, polars_types
from tablestream.spark.columns import quoted
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Node, Source

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PARTITIONS = "spark.sql.shuffle.partitions"
_MANY_PARTITIONS = 100
_CACHE_BYTES = 8 << 30


def changes_of(
    node: Node, spark: SparkSession, spec: OutputSpec, compat: Compat, shards: int | None
) -> DataFrame:
    """Return the changes of one table; see `Table.changes`."""
    line = lowered([(node, spec)], compat, shards)
    check_session(spark, line)
    frame = Builder(line, worker_settings()).build()
    return shaped(frame, line.endings[0])


def lowered(wanted: Sequence[tuple[Node, OutputSpec]], compat: Compat, shards: int | None) -> Line:
    """Lower what is asked of some tables to one line of rounds.

    Raises
    ------
    MixedPlanError
        If some sources have an ``order_by`` and others none, or of another type.
    """
    sources = [node for node in ancestors(*(node for node, _ in wanted)) if isinstance(node, Source)]
    orders = {source.ordered_by for source in sources}
    if len(orders) > 1:
        names = ", ".join(f"{source.name}: {source.ordered_by or 'none'}" for source in sources)
        raise MixedPlanError(
            f"The tables of a plan are ordered by different things ({names}).",
            hint="Give all of them order_by= of one type, or none.",
        )
    outputs = [
        Output(node, final=spec.emit == "final", before=spec.before, minimal=spec.tombstones == "minimal")
        for node, spec in wanted
    ]
    return lower(outputs, polars_types, Mode(checked_compat(compat), checked_shards(shards)))


def check_session(spark: SparkSession, line: Line) -> None:
    """Refuse a session in which a stateful plan cannot run, and warn of one in which it is slow.

    Raises
    ------
    SessionSettingError
        Names the setting.
    """
    if not line.rounds:
        return
    provider = spark.conf.get(_PROVIDER, "")
    if provider != _ROCKSDB:
        raise SessionSettingError(
            f"The session keeps streaming state in '{provider}'; stateful Python needs RocksDB.",
            hint=f'Set spark.conf.set("{_PROVIDER}", "{_ROCKSDB}") before the query starts.',
        )
    partitions = int(spark.conf.get(_PARTITIONS, "0") or 0)
    master = spark.conf.get("spark.master", "") or ""
    if partitions >= _MANY_PARTITIONS and master.startswith("local"):
        warnings.warn(
            f"{_PARTITIONS} is {partitions}: each of the plan's {len(line.rounds)} rounds commits that many state"
            f" stores in every micro-batch. On one machine, set it to the number of cores.",
            stacklevel=4,
        )


def worker_settings() -> Settings:
    """Where workers cache runs: a directory of this user's under the temporary directory, or as the environment says."""
    directory = os.environ.get("TABLESTREAM_CACHE_DIR")
    if directory is None:
        directory = str(Path(tempfile.gettempdir()) / f"tablestream-{getpass.getuser()}")
    return Settings(directory, int(os.environ.get("TABLESTREAM_CACHE_BYTES", _CACHE_BYTES)))


def shaped(frame: DataFrame, ending: Ending) -> DataFrame:
    """Give the rows of one output the columns of `Table.changes`."""
    out = f"__out{ending.port.number}"
    node = ending.output.node
    change = F.col(out)
    rows = frame.where(F.col("__port") == ending.port.number)
    key = [quoted(out, "key", one.name).alias(one.name) for one in node.key]
    time, order = change["timestamp"].alias("_timestamp"), change["order"]
    if not ending.output.before:
        value = [quoted(out, "value", one.name).alias(one.name) for one in node.value]
        kind = F.when(change["live"], "upsert").otherwise("delete").alias("_change_type")
        return rows.select(*key, *value, kind, time, order.alias("_order"))
    images = rows.select(out, F.posexplode(_images(change)).alias("__image", "__row"))
    value = [quoted("__row", "value", one.name).alias(one.name) for one in node.value]
    kind = F.col("__row")["kind"].alias("_change_type")
    numbered = order.withField("image", F.col("__image")).alias("_order")
    return images.select(*key, *value, kind, time, numbered)


def _images(change: Column) -> Column:
    """The rows that a change is shown as: before and after."""

    def image(kind: str, value: Column) -> Column:
        return F.struct(F.lit(kind).alias("kind"), value.alias("value"))

    new, old = change["value"], change["old"]
    update = F.array(image("update_preimage", old), image("update_postimage", new))
    return (
        F.when(change["live"] & old.isNull(), F.array(image("insert", new)))
        .when(change["live"], update)
        .when(old.isNotNull(), F.array(image("delete", old)))
    )


def explain(node: Node, spec: OutputSpec, compat: Compat) -> str:
    """Return the plan of one table as text."""
    from tablestream.plan.explain import explained

    return explained(lowered([(node, spec)], compat, None))
