"""Delta tables in a store of objects, by delta-rs: written once, whoever tries it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

import tablestream as ts
from tablestream.connectors.delta.by_delta_rs import RsTable
from tablestream.connectors.delta.marks import DeltaMark, last_mark
from tests.connectors.object_store import BUCKET, object_store
from tests.spark.change_logs import ChangeLog, run
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """What opens the store."""
    with object_store() as opens:
        yield opens


def test_a_maintained_table_and_a_log_in_a_store_have_every_micro_batch_once(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """Also what the workers lay beside the log, and a micro-batch that is repeated."""
    log, root = ChangeLog(tmp_path / "in", "id int, n int"), f"s3://{BUCKET}/query"
    table = ts.to_delta(f"{root}/table", storage_options=options)
    kept = ts.to_delta(f"{root}/log", mode="changes", storage_options=options)

    def follow() -> None:
        ids = ts.table(log.read(spark, max_files_per_trigger=1), "id", name="ids")
        outputs = ids.to(table), ids.to(replace(kept, few_rows=0), name="log")
        run(*outputs, checkpoint=tmp_path / "checkpoint", shards=1)

    log.add([{"id": one, "n": one} for one in range(4)])
    follow()
    log.add([{"id": 1, "n": 10}, {"id": 9, "n": 90}])
    follow()
    versions = [DeltaTable(f"{root}/{one}", storage_options=options).version() for one in ("table", "log")]
    forget_last_commit(tmp_path / "checkpoint")
    follow()
    rows = [(0, 0), (1, 10), (2, 2), (3, 3), (9, 90)]
    assert sorted(pl.read_delta(f"{root}/table", storage_options=options).rows()) == rows
    read = DeltaTable(f"{root}/log", storage_options=options)
    changed = duckdb.from_arrow(read.to_pyarrow_table()).select("id, n, _order.micro_batch").fetchall()
    assert sorted(changed) == [(0, 0, 0), (1, 1, 0), (1, 10, 1), (2, 2, 0), (3, 3, 0), (9, 90, 1)]
    assert versions == [DeltaTable(f"{root}/table", storage_options=options).version(), read.version()]


def test_of_two_writers_of_one_micro_batch_in_a_store_one_fails(options: dict[str, str]) -> None:
    """The store refuses a second commit of one number. Then delta-rs finds the other's mark."""
    uri = f"s3://{BUCKET}/two"
    seen = [RsTable(uri, options) for _ in range(2)]
    for micro_batch in range(2):
        said = DeltaMark("q", micro_batch, f"p{micro_batch}", "tablestream/q")
        rows = pa.table({"k": pa.array([micro_batch], pa.int64())})
        first, second = seen
        first._write(rows, said)
        with pytest.raises(CommitFailedError, match="Concurrent"):
            second._write(rows, said)
        seen = [RsTable(uri, options) for _ in range(2)]
        assert last_mark(seen[0], "q") == said
    assert sorted(pl.read_delta(uri, storage_options=options)["k"]) == [0, 1]
