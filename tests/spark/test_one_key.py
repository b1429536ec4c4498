"""All records have one key: a million changes of one row in a micro-batch, and a million rows that point at one."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tablestream as ts
from tests.spark.change_logs import START, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MANY = 1_000_000
SCHEMA = "id long, ticker string, price long, at timestamp"


def write(path: Path, number: int, rows: pl.DataFrame) -> None:
    """Write a file; each of a directory makes a micro-batch of its own."""
    path.mkdir(exist_ok=True)
    at = datetime.fromtimestamp(START + number, UTC)
    rows.with_columns(pl.lit("ACME").alias("ticker"), pl.lit(at).alias("at")).write_parquet(
        path / f"{number}.parquet"
    )
    os.utime(path / f"{number}.parquet", (START + number, START + number))


@pytest.mark.exhaustive
def test_a_million_changes_of_one_row_and_a_million_rows_that_point_at_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The price changes a million times, then a million positions come, and at last one more price for all of them."""
    numbers = pl.DataFrame({"price": range(MANY)})
    write(tmp_path / "prices", 0, numbers)
    write(tmp_path / "positions", 1, numbers.rename({"price": "id"}))
    prices, positions = (
        ts.from_files(spark, tmp_path / name, "parquet", SCHEMA) for name in ("prices", "positions")
    )
    tickers = ts.table(prices, "ticker", timestamp="at", columns="price", name="tickers")
    table = ts.table(positions, "id", timestamp="at", columns="ticker", name="positions")
    joined = table.join(tickers, on="ticker", how="left", select=lambda _, t: [t.price])
    outputs = [tickers.to(ts.to_files(tmp_path / "tickers")), joined.to(ts.to_files(tmp_path / "joined"))]
    counts = run(*outputs, checkpoint=tmp_path / "checkpoint")
    assert counts["changes"] == 2 * MANY
    write(tmp_path / "prices", 2, pl.DataFrame({"price": [-1]}))
    assert run(*outputs, checkpoint=tmp_path / "checkpoint")["changes"] == MANY + 1
    found = pl.read_parquet(tmp_path / "tickers" / "*" / "*.parquet")
    assert found["price"].to_list() == [*range(MANY), -1]
    found = pl.read_parquet(tmp_path / "joined" / "*" / "*.parquet")
    assert found.group_by("price").len().sort("price").rows() == [(-1, MANY), (MANY - 1, MANY)]
    assert found["id"].n_unique() == MANY
