"""Nexmark's events have the published proportions, and its queries give what batch SQL gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tablestream as ts
from benchmarks.cli import main
from benchmarks.contestants import CONTESTANTS, load
from benchmarks.launch import Task
from benchmarks.nexmark.events import SCHEMAS, Events, prepare_events
from benchmarks.nexmark.queries import QUERIES, Logs, batch_result, differing_rows, final_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENTS = 6_000
#: Of the queries: tests without Spark cut the operators in many ways.
MICRO_BATCHES = 3
#: More results than a mistake could leave by chance.
ROWS = {"q3": 10, "q4": 5, "q9": 200, "q20": 300, "q20-stream": 300}


def read(folder: Path, kind: str) -> list[pa.Table]:
    return [pq.read_table(file) for file in sorted((folder / kind).iterdir())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_events(Events(EVENTS, 4), tmp_path_factory.mktemp("events"))


@pytest.mark.parametrize(
    ("kind", "each", "numbers", "size"),
    [("persons", 1, 1, 200), ("auctions", 3, 6, 500), ("bids", 46, 4, 100)],
)
def test_logs_have_the_published_proportions_and_mean_sizes(
    folder: Path, kind: str, each: int, numbers: int, size: int
) -> None:
    log = pa.concat_tables(read(folder, kind))
    texts = [pc.sum(pc.binary_length(one)).as_py() for one in log.columns if one.type == pa.string()]
    assert len(log) == EVENTS // 50 * each
    assert 8 * numbers + sum(texts) / len(log) == pytest.approx(size, rel=0.03)


def test_half_of_the_bids_are_for_hot_auctions_by_mostly_hot_bidders(folder: Path) -> None:
    bids = pa.concat_tables(read(folder, "bids")).to_pandas()
    auctions = pa.concat_tables(read(folder, "auctions")).to_pandas()
    assert (bids.auction % 100 == 0).mean() == pytest.approx(0.5, abs=0.03)
    assert (bids.bidder % 100 == 1).mean() == pytest.approx(0.75, abs=0.03)
    assert (auctions.seller % 100 == 0).mean() == pytest.approx(0.75, abs=0.08)


def test_bids_come_before_their_auction_in_its_time_after_it_and_for_none(folder: Path) -> None:
    bids = pa.concat_tables(read(folder, "bids")).to_pandas()
    auctions = pa.concat_tables(read(folder, "auctions")).to_pandas()
    both = bids.merge(auctions, left_on="auction", right_on="id", how="left", suffixes=("", "_of_auction"))
    early, late = both.date_time < both.date_time_of_auction, both.date_time > both.expires
    assert 0.03 < early.mean() < 0.07
    assert 0.1 < late.mean() < 0.5
    assert 0 < both.id.isna().sum() < 20


def test_no_millisecond_is_in_two_micro_batches(folder: Path) -> None:
    of_files = zip(*(read(folder, kind) for kind in SCHEMAS), strict=True)
    times = [pc.unique(pa.chunked_array([log["date_time"].chunk(0) for log in logs])) for logs in of_files]
    assert len(times) == 4
    for earlier, later in pairwise(times):
        assert pc.max(earlier).as_py() < pc.min(later).as_py()


def test_another_cut_gives_the_same_events(folder: Path, tmp_path: Path) -> None:
    cut = prepare_events(Events(EVENTS, 7), tmp_path)
    for kind in SCHEMAS:
        assert len(read(cut, kind)) == 7
        assert pa.concat_tables(read(cut, kind)) == pa.concat_tables(read(folder, kind))


@pytest.mark.exhaustive  # the same queries in SQL are in tests/sql/test_nexmark.py
def test_queries_give_what_batch_sql_gives(spark: SparkSession, tmp_path: Path) -> None:
    events = prepare_events(Events(EVENTS, MICRO_BATCHES), tmp_path)
    results = {name: query.program(Logs(spark, events)) for name, query in QUERIES.items()}
    outputs = [result.to(ts.to_files(tmp_path / name), name=name) for name, result in results.items()]
    query = ts.start(*outputs, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
    query.awaitTermination()
    assert sum(one["numInputRows"] > 0 for one in query.recentProgress) == MICRO_BATCHES
    for name, result in results.items():
        expected = batch_result(spark, events, QUERIES[name])
        found = final_rows(spark.read.parquet(str(tmp_path / name)), result.key_columns)
        assert differing_rows(found, expected) == 0, name
        assert found.count() >= ROWS[name], name


def test_the_last_row_of_a_key_is_left_unless_it_is_deleted(spark: SparkSession) -> None:
    rows = [(1, "a", "upsert", 3), (1, "b", "upsert", 7), (2, "c", "upsert", 1), (2, None, "delete", 2)]
    changes = spark.createDataFrame(rows, "id int, name string, _change_type string, _order int")
    assert [row.name for row in final_rows(changes, ["id"]).collect()] == ["b"]


def test_rows_that_one_side_has_more_often_differ(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a"), (1, "a"), (2, None)], "id int, name string")
    assert differing_rows(rows, rows) == 0
    assert differing_rows(rows.distinct(), rows) == 1
    assert differing_rows(rows.where("id = 1"), rows) == 1
    assert differing_rows(rows, rows.withColumn("id", rows.id + 2)) == 6


def test_a_contestant_says_how_many_rows_are_not_those_of_the_sql(
    spark: SparkSession, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = QUERIES["q3"]
    fewer = f"{right.sql} and a.id <> (select max(id) from ({right.sql}))"
    monkeypatch.setitem(QUERIES, "q3", replace(right, sql=fewer))
    task = Task("nexmark-q3", str(folder), str(tmp_path), jars="", micro_batches=4)
    run = load("nexmark-q3")(spark, task)
    assert run.facts["equal to batch SQL"] == "NO: 1 rows differ"
    assert run.rows_in == EVENTS // 50 * 4
    assert run.changes_out >= run.facts["rows of the final table"] >= ROWS["q3"]


def test_every_query_is_a_contestant() -> None:
    names = {name for name in CONTESTANTS if name.startswith("nexmark-")}
    assert names == {f"nexmark-{name}" for name in QUERIES}
    for name in names:
        assert load(name).args == (name.removeprefix("nexmark-"),)  # type: ignore[attr-defined]


def test_too_few_events_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nexmark-q3", "--events", "149"])
    assert "give at least 50 for each micro-batch" in capsys.readouterr().err
