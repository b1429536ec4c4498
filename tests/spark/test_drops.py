"""Dropped records: the warnings of a query, and the query that ends instead."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tablestream.base.data_text import data_text
from tablestream.connectors.sink import KeyedSink, Sink
from tablestream.errors import TargetError
from tablestream.runtime.drops import DropRules
from tablestream.spark.runner import _Voice
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DEADLINE_S = 120


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "tablestream.drops"]


def lines(first: int, end: int, **values: object) -> list[str]:
    return [json.dumps({"id": number, "name": f"n{number}", **values}) for number in range(first, end)]


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path / "log", "idd int, id int, name string")


def test_a_misspelt_key_is_told_at_once_and_fails_before_anything_is_written_until_it_is_mended(
    spark: SparkSession, log: ChangeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The restart reads the micro-batch again: nothing is lost."""
    log.add(lines(0, 12))
    frame = log.read(spark)

    def outputs(key: str) -> list[Any]:
        table = ts.table(frame, key, columns=["name"], name="orders")
        kinds: dict[str, Any] = {
            "maintained": ts.to_memory(f"drops of {key}"),
            "logged": ts.to_files(tmp_path / key),
        }
        return [table.to(sink, name=name) for name, sink in kinds.items()]

    run(*outputs("idd"), checkpoint=tmp_path / "warned")
    every, first = warnings(caplog)
    assert every.startswith("orders: EVERY record of micro-batch 0 was lost (12 null-key).")
    assert first.startswith(
        "orders: null-key, 12 records so far in this run. Dropped: a part of the key is null."
    )
    assert 'Example: key {"idd":null}, file:' in first
    assert "0000.json, row 0. Check that the schema names" in first

    caplog.clear()
    log.add([*lines(12, 14), '{"name": "nobody"}'])
    with pytest.raises(StreamingQueryException) as caught:
        run(*outputs("id"), checkpoint=tmp_path / "failed", on_drop="fail")
    text = str(caught.value)
    assert "[TABLESTREAM_DROPPED_RECORD] A record was lost (null-key), and on_drop is 'fail'." in text
    assert "0001.json, row 2" in text
    assert [row.id for row in ts.to_memory("drops of id").rows()] == list(range(12))
    assert [one.name for one in (tmp_path / "id").glob("micro_batch=*")] == ["micro_batch=0"]
    run(*outputs("id"), checkpoint=tmp_path / "failed", on_drop="ignore")
    assert [row.id for row in ts.to_memory("drops of id").rows()] == list(range(14))
    assert spark.read.parquet(str(tmp_path / "id")).count() == 14
    assert warnings(caplog) == []


def test_an_operator_names_the_record_it_dropped_and_its_rules_fail_nothing(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """As a driver shows it, on the runtime of a query."""
    table = ts.table(ts.testing.frame(spark, "id int, rank int"), "id", sequence_by="rank", name="orders")
    driver = ts.testing.Driver(table, on_drop="fail")
    for rank in (5, 4):
        driver.pipe("orders", [{"id": 1, "rank": rank}])
        driver.run()
    (superseded,) = warnings(caplog)
    assert superseded.startswith("orders/sequenced: superseded, 1 record so far in this run. ")
    assert 'Example: key {"id":1}, orders, row 1. ' in superseded
    driver.pipe("orders", [{"id": 7}])
    with pytest.raises(
        ts.errors.DroppedRecordError, match=r"lost \(null-sequence\).*key {\"id\":7}.*built at test_drops"
    ):
        driver.run()
    caplog.clear()
    redacted = driver.restarted(on_drop="warn", redact=True)
    redacted.run()  # the record still waits
    every, null = warnings(caplog)
    assert every.startswith("orders: EVERY record of micro-batch 2 was lost (1 null-sequence).")
    assert "Example: key (left out), orders, row 2. " in null


@pytest.mark.exhaustive
def test_a_query_that_is_started_by_hand_is_warned_of_by_a_listener(
    spark: SparkSession, log: ChangeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.add(lines(0, 3))
    ts.configure(spark)
    table = ts.table(log.read(spark), "idd", name="by_hand").group_by("name").agg(n=ts.functions.count())
    writer = table.changes().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    deadline = time.monotonic() + DEADLINE_S
    while len(warnings(caplog)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    every, first = warnings(caplog)
    assert every.startswith("by_hand: EVERY record of micro-batch 0 was lost (3 null-key).")
    assert 'Example: key {"idd":null}, file:' in first
    progress = query.lastProgress
    assert progress is not None
    assert progress.observedMetrics["tablestream"]["by_hand: null-key"] == 3


def test_drops_are_heard_by_a_listener_if_a_single_sink_gets_rows_while_they_are_computed(
    spark: SparkSession,
) -> None:
    """Unless a lost record ends the query: then the micro-batch is looked at first, as for any other outputs."""
    topic: Sink = ts.to_kafka("t", bootstrap_servers="h:9092")
    files: Sink = ts.to_files("out")
    connect: Any = object()  # its session has no context: the server hears what is told in foreachBatch
    for on_drop, listens in (("warn", True), ("fail", False), ("ignore", False)):
        rules = DropRules(on_drop)  # type: ignore[arg-type]
        assert _Voice.of(rules, spark, [topic]).listens is listens
        for others in ([files], [topic, files]):
            voice = _Voice.of(rules, spark, others)
            assert (voice.listens, voice.observed) == (False, False)
            assert (voice.of_run() is None) == (on_drop == "ignore")
            assert _Voice.of(rules, connect, others).observed is (on_drop != "ignore")


class Unsettled(KeyedSink):
    """A sink whose target has a row that does not fit."""

    target = "unsettled"

    def check(self, *_: Any) -> None: ...

    def write(self, *_: Any) -> None: ...

    def at(self, _: Any) -> Unsettled:
        return self

    def settle(self, *_: Any) -> None:
        raise TargetError(f"There is {data_text('a secret')}.")


@pytest.mark.exhaustive
def test_a_target_that_is_settled_before_the_query_starts_shows_no_values_either(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    log.add(lines(0, 1))
    output = ts.table(log.read(spark), "id", name="orders").to(Unsettled())
    with pytest.raises(TargetError, match=r"There is \(left out\)\."):
        ts.start(output, checkpoint=str(tmp_path / "c"), redact=True)
