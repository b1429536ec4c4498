"""From a demo's change logs to a query: logs as tables, and the outputs started together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tablestream as ts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from examples.demo.change_logs import LogSpec

SHARDS = 8
"""Enough for the cores of one computer; every shard costs its share of a micro-batch's time."""

# A name may hold quotes, and CSV writers double them; Spark expects a backslash unless told.
_READ_OPTIONS: Mapping[str, Mapping[str, str]] = {"csv": {"header": "true", "escape": '"'}}

_OF_LOG: Mapping[str, Any] = {
    "timestamp": "changed_at",
    "apply_as_deletes": "op = 'd'",
    "except_columns": ["op", "changed_at"],
}


def table(
    spark: SparkSession,
    spec: LogSpec,
    directory: Path,
    *,
    everywhere: bool = False,
    history: timedelta | None = None,
) -> ts.Table:
    """Return the table of a log, which lies in a directory of its name; `everywhere`: as a global table."""
    make = ts.global_table if everywhere else ts.table
    name = f"{spec.name}_everywhere" if everywhere else spec.name
    return make(_rows(spark, spec, directory), spec.key, history=history, name=name, **_OF_LOG)


def stream(spark: SparkSession, spec: LogSpec, directory: Path) -> ts.Stream:
    """Return the rows of a log, which lies in a directory of its name, each for itself."""
    return ts.stream(_rows(spark, spec, directory), spec.key, name=spec.name, **_OF_LOG)


def _rows(spark: SparkSession, spec: LogSpec, directory: Path) -> DataFrame:
    return ts.from_files(
        spark,
        str(directory / spec.name),
        spec.format,
        spec.ddl,
        options=_READ_OPTIONS.get(spec.format, {}),
        max_files_per_trigger=spec.parts,
    )


def start(
    outputs: Mapping[str, ts.Table | ts.Stream], changes: Path, checkpoint: Path, *, name: str
) -> StreamingQuery:
    """Start one query that reads all there is, writes every change as Parquet files, and ends.

    Each output has a directory of its name below `changes`.
    """
    return ts.start(
        *(
            result.to(ts.to_files(str(changes / output), format="parquet"), name=output)
            for output, result in outputs.items()
        ),
        checkpoint=str(checkpoint),
        trigger={"availableNow": True},
        name=name,
        shards=SHARDS,
    )
