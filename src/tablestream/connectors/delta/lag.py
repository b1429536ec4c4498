"""How many versions of a Delta table a query has not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tablestream.base.extras import install_hint
from tablestream.connectors.delta.by_spark import lacking
from tablestream.connectors.lag import Behind
from tablestream.connectors.spark_place import full_path

_TABLE, _VERSION, _INDEX = "reservoirId", "reservoirVersion", "index"
#: What a commit says of the rows that it added: Spark's name, and that of delta-rs.
_ROWS = ("numOutputRows", "num_added_rows")


@dataclass(frozen=True)
class _Version:
    """A version of a table: when it was committed, in ms since 1970, and how many rows it added."""

    time_ms: int
    rows: int | None


def versions_behind(spark: SparkSession, paths: Sequence[str], offset: Any) -> Behind | None:
    """Compare the offset in a table with the table's history; None for another system's offset.

    The offset names the table by its id, and not by its path: `paths` are tried.
    """
    if not isinstance(offset, dict) or not {_TABLE, _VERSION, _INDEX} <= offset.keys():
        return None
    if not paths:
        return Behind("delta", why="give the path of the table, delta= or --delta")
    for path in paths:
        found = _of_table(spark, path)
        if isinstance(found, str):
            return Behind("delta", why=found)
        if found[0] == offset[_TABLE]:
            return _behind(found[1], offset[_VERSION], offset[_INDEX])
    return Behind("delta", why=f"none of the tables given has the id {offset[_TABLE]}")


def _behind(history: Mapping[int, _Version], version: int, index: int) -> Behind:
    """Count from a version on. Delta's source steps to the next one as soon as it has read all of one.

    An index of 0 or more is that of the last file of the version that was read.
    """
    unread = {number: one for number, one in history.items() if number >= version}
    if not unread:
        return Behind("delta", 0, "versions", 0, 0.0)
    rows = [one.rows for one in unread.values()]
    records = None if None in rows or index >= 0 else sum(one for one in rows if one is not None)
    before = history.get(version - 1)
    late = None if before is None else max(unread[max(unread)].time_ms - before.time_ms, 0) / 1000
    why = [f"version {version} is read in part"] if index >= 0 else []
    why += ["the history does not reach back to the version before"] if late is None else []
    return Behind("delta", len(unread), "versions", records, late, "; ".join(why))


def _of_table(spark: SparkSession, path: str) -> tuple[str, dict[int, _Version]] | str:
    """Return a table's id and its history, or why there is none to be had."""
    if not lacking(spark):
        place = (full_path(spark, path) or path).replace("`", "``")
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").select("id").collect()
        rows = spark.sql(f"DESCRIBE HISTORY delta.`{place}`")
        found = rows.selectExpr("version", "unix_millis(timestamp)", "operationMetrics").collect()
        return detail[0], {row[0]: _version(row[1], row[2] or {}) for row in found}
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError:
        return f"the session lacks Delta Lake, and delta-rs is not there. {install_hint('delta')}"
    table = DeltaTable(path)
    history = {
        int(one["version"]): _version(int(one["timestamp"]), one.get("operationMetrics") or {})
        for one in table.history()
    }
    return str(table.metadata().id), history


def _version(time_ms: int, metrics: Mapping[str, Any]) -> _Version:
    told = [str(metrics[name]) for name in _ROWS if name in metrics]
    return _Version(time_ms, int(told[0]) if told and told[0].isdecimal() else None)
