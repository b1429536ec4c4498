"""The join of captured tables through Spark: at every quiescent point it is what the database had."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
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


def states(rows: list[Any], micro_batches: list[int]) -> list[set[Row]]:
    """The rows of the join after some numbers of micro-batches."""
    found: list[set[Row]] = []
    state: dict[Any, Row] = {}
    ahead = sorted(rows, key=lambda row: row["_order"])
    for end in micro_batches:
        while ahead and ahead[0]["_order"]["micro_batch"] < end:
            row = ahead.pop(0)
            if row["_change_type"] == "delete":
                state.pop(row["position_id"], None)
            else:
                state[row["position_id"]] = tuple(
                    tuple(row[name]) if isinstance(row[name], list) else row[name] for name in JOINED
                )
        found.append(set(state.values()))
    return found


@pytest.mark.parametrize(
    ("capture", "database"),
    [
        ("plain1", "database"),
        ("plain3", "database"),
        pytest.param("schema3", "database", marks=pytest.mark.slow),
        pytest.param("flat3", "database", marks=pytest.mark.slow),
        ("interrupted_plain3", "interrupted_database"),
    ],
)
def test_the_join_is_what_the_database_had(
    spark: SparkSession, tmp_path: Path, capture: str, database: str
) -> None:
    batches, ends = cut(capture, database, list(TABLES), seed=7)
    write(tmp_path / "log", batches)
    prefix = capture.removeprefix("interrupted_")
    sink = ts.to_memory(f"cdc_{capture}")
    counts = run(
        joined(spark, tmp_path / "log", prefix).to(sink),
        checkpoint=tmp_path / "checkpoint",
        shards=4,
    )
    rows = sink.rows()
    wanted = [{row_of("join", row) for row in point.tables["join"]} for point in points(database)]
    found = states(rows, ends)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True), start=1):
        assert one - other == set(), (number, other - one)
        assert other - one == set(), number
    assert {name: count for name, count in counts.items() if "unknown" in name and count} == {}
