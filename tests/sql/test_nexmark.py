"""Nexmark's queries in SQL, maintained over its events, have the rows that Spark computes of all of them at once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import tablestream as ts
from benchmarks.nexmark.events import SCHEMAS, Events, prepare_events
from tests.marks import quick_first
from tests.sql import nexmark
from tests.sql.world import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENTS, MICRO_BATCHES = 1_500, 2
BID = f"{SCHEMAS['bids']}, channel string, url string"
#: The key of each, and its columns; a stream has no key.
SOURCES = {
    "person": ("id", SCHEMAS["persons"]),
    "auction": ("id", SCHEMAS["auctions"]),
    "bid": (None, BID),
    "bids": ("bid_id", BID),
    "side_input": ("key", "key bigint, value string, at timestamp"),
}
#: Queries that run in one driver.
DRIVERS = (
    ("q5", "q7", "q8", "q13"),
    ("q0", "q1", "q2", "q10", "q14", "q21", "q22"),
    ("q3", "q4", "q6", "q9", "q20", "q23"),
    ("q15", "q16", "q17", "q18", "q19"),
)
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[Rows]:
    """The events, a micro-batch each; all of the side input is in the first one."""
    folder = prepare_events(Events(EVENTS, MICRO_BATCHES), tmp_path_factory.mktemp("events"))
    found = []
    for number in range(MICRO_BATCHES):
        persons, auctions, bids = (_read(folder / kind, number) for kind in ("persons", "auctions", "bids"))
        shown = [row | _channel(row["bid_id"]) for row in bids]
        found.append({"person": persons, "auction": auctions, "bid": shown, "bids": shown, "side_input": []})
    first = found[0]["person"][0]["date_time"] - timedelta(seconds=1)
    found[0]["side_input"] = [{"key": key, "value": f"value {key}", "at": first} for key in range(0, 100, 3)]
    return found


def _read(folder: Path, number: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(sorted(folder.iterdir())[number]).to_pylist()
    return rows


def _channel(number: int) -> dict[str, str]:
    """The channel and the address of a bid: half of the bids come from four channels, whose addresses do not say it."""
    names = ["Apple", "Google", "Facebook", "Baidu"]
    page = f"https://www.nexmark.com/a{number % 7}/b{number % 5}/c{number % 3}/item.htm?query=1"
    if number % 2:
        return {"channel": names[number // 2 % 4], "url": page}
    return {
        "channel": f"channel-{number % 11}",
        "url": f"{page}&channel_id={number % 11}" if number % 3 else page,
    }


def sources(spark: SparkSession) -> dict[str, ts.Table | ts.Stream]:
    found: dict[str, ts.Table | ts.Stream] = {}
    for name, (key, columns) in SOURCES.items():
        frame, time = ts.testing.frame(spark, columns), "at" if name == "side_input" else "date_time"
        found[name] = (
            ts.stream(frame, timestamp=time, name=name)
            if key is None
            else ts.table(frame, key, timestamp=time, name=name)
        )
    return found


def test_every_query_of_the_suite_is_maintained_or_refused_with_its_reason(spark: SparkSession) -> None:
    assert sorted([*nexmark.QUERIES, *nexmark.REFUSED], key=lambda one: int(one[1:])) == [
        f"q{number}" for number in range(24)
    ]
    assert sorted(name for names in DRIVERS for name in names) == sorted(nexmark.QUERIES)
    for query, said in nexmark.REFUSED.values():
        with pytest.raises(ts.errors.SqlRefusedError, match=said.replace(".", r"\.")):
            ts.sql(query, **sources(spark))


@pytest.mark.parametrize("names", quick_first(DRIVERS))
def test_queries_give_what_batch_sql_gives(
    spark: SparkSession, batches: list[Rows], names: tuple[str, ...]
) -> None:
    written = {name: one.flink for name, one in nexmark.WINDOWS.items()}
    read = sources(spark)
    outputs = {name: ts.sql(nexmark.QUERIES[name].format(**written), **read) for name in names}
    driver = ts.testing.Driver(*(one.to(ts.to_memory(name), name=name) for name, one in outputs.items()))
    records: dict[str, list[Any]] = {name: [] for name in names}
    for batch in batches:
        for name in set(driver._sources):
            driver.pipe(name, batch[name])
        driver.run()
        for name in names:
            records[name] += driver.changes(name)
    for name, (_, columns) in SOURCES.items():
        rows = [row for batch in batches for row in batch[name]]
        spark.createDataFrame(rows, columns).createOrReplaceTempView(name)
    batch_windows = {name: one.spark for name, one in nexmark.WINDOWS.items()}
    for name, output in outputs.items():
        expected = spark.sql(nexmark.QUERIES[name].format(**batch_windows))
        found = driver.table(name) if isinstance(output, ts.Table) else records[name]
        assert found, name
        given = counted([row[column] for column in expected.columns] for row in found)
        assert given == counted(expected.collect()), name
