"""The join of captured tables through Spark: at every quiescent point it is what the database had."""

from __future__ import annotations

import json
import os
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.runtime.ports import RANKS
from tests.cdc.cutting import cut
from tests.cdc.recording import JOINED, TABLES, Record, Row, points, row_of
from tests.spark.change_logs import START, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "topic string, partition int, offset bigint, timestamp bigint, key string, value string,"
    " headers array<struct<key: string, value: string>>"
)


def write(directory: Path, batches: list[list[Record]]) -> None:
    """Write a file for each micro-batch."""
    directory.mkdir()
    for number, batch in enumerate(batches):
        path = directory / f"{number:04d}.json"
        rows = [
            one._asdict()
            | {"timestamp": one.timestamp_ms, "headers": [{"key": k, "value": v} for k, v in one.headers]}
            for one in batch
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (START + number, START + number))


def read(spark: SparkSession, directory: Path) -> DataFrame:
    """Read the records as Spark's Kafka source has them, a file in each micro-batch."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(directory))
    return frame.withColumns(
        {
            "timestamp": F.timestamp_millis("timestamp"),
            "headers": F.col("headers").cast("array<struct<key:string,value:binary>>"),
        }
    )


def joined(spark: SparkSession, directory: Path, prefix: str, **options: Any) -> ts.Table:
    """The join that the recording has of the database."""
    shop = ts.from_debezium(read(spark, directory), prefix, **options)
    tables = {name: shop.table(f"shop.{name}", key, columns) for name, (key, columns) in TABLES.items()}
    tickers = tables["tickers"].select(
        F.col("ticker").alias("t_ticker"), "exchange", "price", "at", F.md5("note").alias("note_md5")
    )
    clients = tables["clients"].select(F.col("client_id").alias("c_client_id"), "name", "email", "tier")
    joined = tables["positions"].join(tickers, on="ticker", how="left", name="with tickers")
    return joined.join(clients, on="client_id", how="left", name="joined")


def row(change: Any) -> Row:
    """A row of the join, as `row_of` has it."""
    return tuple(tuple(change[name]) if isinstance(change[name], list) else change[name] for name in JOINED)


def states(rows: list[Any], micro_batches: list[int]) -> list[set[Row]]:
    """The rows of the join after some numbers of micro-batches."""
    found: list[set[Row]] = []
    state: dict[Any, Row] = {}
    ahead = sorted(rows, key=lambda change: change["_order"])
    for end in micro_batches:
        while ahead and ahead[0]["_order"]["micro_batch"] < end:
            apply(state, ahead.pop(0))
        found.append(set(state.values()))
    return found


def apply(state: dict[Any, Row], change: Any) -> None:
    """Apply a change to the join."""
    if change["_change_type"] == "delete":
        state.pop(change["position_id"], None)
    else:
        state[change["position_id"]] = row(change)


def steps_of(rows: list[Any]) -> list[tuple[set[Row], set[Row]]]:
    """What each transaction removes from the join and adds to it, in their order."""
    state: dict[Any, Row] = {}
    steps = []
    root = itemgetter("micro_batch", "time", "partition", "position", "hop_0")
    changes = sorted(rows, key=lambda change: change["_order"])
    for step, of_step in groupby(
        changes, key=lambda change: (*root(change["_order"]), change["_order"]["hop_1"] // RANKS)
    ):
        before = set(state.values())
        for change in of_step:
            apply(state, change)
        if "transaction" in step[2]:
            steps.append((before - set(state.values()), set(state.values()) - before))
    return steps


@pytest.mark.parametrize(
    ("capture", "database", "every"),
    [
        ("plain3", "database", 3),
        pytest.param("interrupted_plain3", "interrupted_database", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_the_join_is_what_the_database_had(
    spark: SparkSession, tmp_path: Path, capture: str, database: str, every: int
) -> None:
    """At every third quiescent point, back from the last.

    `test_captures` has another form, and every commit. `test_captured_tables` has every point, every form and other
    cuts, without Spark.
    """
    batches, ends = cut(capture, database, list(TABLES), seed=7, most=1)
    followed = points(database)[::-every][::-1]
    if every > 1:
        ends = ends[::-every][::-1]
        batches = [list(chain(*batches[begin:end])) for begin, end in pairwise([0, *ends])]
        ends = list(range(1, len(ends) + 1))
    write(tmp_path / "log", batches)
    sink = ts.to_memory(f"cdc_{capture}")
    table = joined(spark, tmp_path / "log", capture.removeprefix("interrupted_"))
    counts = run(table.to(sink), checkpoint=tmp_path / "checkpoint", shards=2)
    wanted = [{row_of("join", one) for one in point.tables["join"]} for point in followed]
    found = states(sink.rows(), ends)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True), start=1):
        assert one - other == set(), (number, other - one)
        assert other - one == set(), number
    assert {name: count for name, count in counts.items() if "unknown" in name and count} == {}


def rows_of(rows: list[dict[str, Any]]) -> set[Row]:
    """Rows as the database tells of them."""
    return {row_of("join", one) for one in rows}
