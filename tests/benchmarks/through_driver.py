"""Pipes logs of the benchmark through a driver, and gives DuckDB what its tables hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import tablestream as ts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import duckdb
    import pyarrow as pa


def read(folder: Path, kind: str) -> list[pa.Table]:
    """Read the micro-batches of a log."""
    return [pq.read_table(file) for file in sorted((folder / kind).iterdir())]


def worked_off(folder: Path, kinds: Iterable[str], tables: Mapping[str, ts.Table]) -> ts.testing.Driver:
    """Let a driver work off the micro-batches of some logs, for tables by the names of their outputs."""
    driver = ts.testing.Driver(
        *(table.to(ts.to_memory(name), name=name) for name, table in tables.items()), shards=2
    )
    logs = {kind: read(folder, kind) for kind in kinds}
    for number in range(max(map(len, logs.values()))):
        for kind, log in logs.items():
            if number < len(log):
                driver.pipe(kind, log[number].to_pylist())
        driver.run()
    return driver


def register(database: duckdb.DuckDBPyConnection, name: str, rows: ts.testing.Rows) -> None:
    """Give DuckDB rows of a driver as a table, in their own types."""
    database.register(name, rows.spark.createDataFrame(list(rows), rows.schema).toArrow())
