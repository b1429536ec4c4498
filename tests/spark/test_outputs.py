"""Several outputs of one micro-batch: computed once, all of it, and given back to memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import tablestream as ts
from tablestream.connectors.delta.sink import to_delta
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.marks import Moment
from tablestream.connectors.memory.sink import to_memory
from tablestream.errors import ArgumentError
from tablestream.spark.outputs import check_outputs, is_lone, write_outputs
from tablestream.spark.reports import _PORT
from tablestream.spark.unpacking import NOTE
from tests.connectors.changes import changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
    from pyspark.sql.types import StructType


@dataclass
class Idle:
    """A sink that looks at nothing, or fails."""

    fail: bool = False
    target: str = "idle"
    key_columns: tuple[str, ...] = ()
    needs_final: bool = False
    calls: list[tuple[int, str, str, bool]] = field(default_factory=list)

    def keyed_by(self, names: Sequence[str]) -> Self:
        self.key_columns = tuple(names)
        return self

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:
        pass

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:
        self.calls.append((micro_batch_id, query_id, output_name, changes.is_cached))
        if self.fail:
            raise OSError("the disk is full")


class Records(Idle):
    """The same, of records."""

    def shaped(self, key: StructType, value: StructType, *, records: bool) -> Self:  # noqa: ARG002 (the protocol's)
        return self


class Counting(StatefulProcessor):
    """Counts how often it is run with a key, in an accumulator of the test's."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "n BIGINT")

    def handleInputRows(  # noqa: N802 (PySpark's name)
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            self.seen.update((len(frame),))
            with (self.runs / str(key[0])).open("a") as file:
                file.write("x")
            yield frame[frame["value"] >= 0].assign(shard=key[0])

    def close(self) -> None:
        pass


def by_port(frame: DataFrame, index: int) -> DataFrame:
    return frame.filter(F.col("k1") == index)


def test_each_output_gets_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    kept, log = to_memory("test_outputs"), to_files(tmp_path / "log")
    sinks: dict[str, Any] = {"kept": kept, "logged": log}
    frame = changes(spark, 4, (0, "a", "x"), (1, "b", "y"), (1, "b", None))
    for _ in range(2):
        write_outputs(frame, Moment(4, "query", "p"), sinks, split=by_port)
    assert [row.v for row in kept.rows()] == ["x"]
    assert [row.v for row in spark.read.parquet(log.path).collect()] == ["y", None]
    assert not frame.is_cached
    kept.clear()


def test_sinks_are_called_with_persisted_rows_also_when_there_are_none(spark: SparkSession) -> None:
    sink = Idle()
    write_outputs(changes(spark, 0), Moment(7, "query"), {"out": sink}, split=lambda frame, _: frame)
    assert sink.calls == [(7, "query", "out", True)]


def test_rows_are_persisted_for_no_sink_of_records_but_for_two(spark: SparkSession) -> None:
    frame, sinks = changes(spark, 0), [Records(), Records()]
    for some in ({"0": sinks[0]}, {"0": sinks[0], "1": sinks[1]}):
        write_outputs(frame, Moment(7, "query"), some, split=lambda rows, _: rows)
    assert [[call[-1] for call in sink.calls] for sink in sinks] == [[False, True], [True]]


@pytest.mark.parametrize(("settled", "cached"), [(False, True), (True, False)])
def test_shards_are_looked_at_before_a_lone_sink_of_records_writes_until_all_are_known(
    spark: SparkSession, settled: bool, cached: bool
) -> None:
    """So are Kafka and PostgreSQL. Other outputs wait for it in every micro-batch."""
    looked: list[int] = []
    watch: Any = SimpleNamespace(is_settled=settled, look=lambda _, number, *__: looked.append(number))
    frame = changes(spark, 0).select("*", F.lit(1).alias(_PORT), F.lit("").alias(NOTE))
    sinks = [Records(), Records(), Idle()]
    for number, some in enumerate(({"0": sinks[0]}, {"1": sinks[1], "2": sinks[2]})):
        write_outputs(frame, Moment(number, "query"), some, split=lambda rows, _: rows, watch=watch)
    assert looked == ([0, 1] if cached else [1])
    assert [[call[-1] for call in sink.calls] for sink in sinks] == [[cached], [True], [True]]
    assert is_lone([ts.to_kafka("t", bootstrap_servers="h:9092")])
    assert is_lone([ts.to_postgres("t", "host=h")])
    assert not is_lone([to_files("out")])


def test_rows_are_let_go_when_a_sink_fails(spark: SparkSession) -> None:
    frame, late = changes(spark, 0, (0, "a", "x")), Idle()
    sinks = {"broken": Idle(fail=True), "late": late}
    with pytest.raises(OSError, match="the disk is full"):
        write_outputs(frame, Moment(0, "query"), sinks, split=by_port)
    assert not frame.is_cached
    assert late.calls == []


@pytest.mark.parametrize("alone", [False, True], ids=["three sinks", "files alone"])
def test_stateful_stage_runs_once_for_sinks_that_look_once_twice_or_not_at_all(
    spark: SparkSession, tmp_path: Path, *, alone: bool
) -> None:
    """In a micro-batch with rows that come out of the stage, and in one without."""
    runs = tmp_path / "runs"
    runs.mkdir()
    (tmp_path / "in").mkdir()
    for value in (1, -1):
        lines = "".join(f'{{"key": {key}, "value": {value}}}\n' for key in range(4))
        (tmp_path / "in" / f"{value}.json").write_text(lines)
    reader = spark.readStream.schema("key INT, value INT").option("maxFilesPerTrigger", 1)
    source = reader.json(str(tmp_path / "in"))
    stage = source.groupBy("key").transformWithStateInPandas(
        Counting(runs), outputStructType="shard INT, value INT", outputMode="append", timeMode="none"
    )
    looking = to_memory("test_outputs_stateful")
    sinks: dict[str, Any] = {} if alone else {"idle": Idle(), "once": looking}
    sinks["files"] = to_files(tmp_path / "log")

    def write(frame: DataFrame, number: int) -> None:
        write_outputs(frame, Moment(number, "query"), sinks, split=lambda rows, _: rows)

    writer = stage.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(file.read_text() for file in runs.iterdir()) == ["xx"] * 4
    assert spark.read.parquet(str(tmp_path / "log" / "micro_batch=*")).count() == 4
    if not alone:
        assert len(looking.rows()) == 4
        looking.clear()


def test_outputs_that_would_overwrite_each_other_are_refused() -> None:
    check_outputs(["a", "b"], [to_memory("a"), to_memory("b")])
    with pytest.raises(ArgumentError, match="the name 'a'"):
        check_outputs(["a", "a"], [to_memory("a"), to_memory("b")])
    with pytest.raises(ArgumentError, match="the target 'files x'"):
        check_outputs(["a", "b"], [to_files("x"), to_files("x", "json")])


def test_two_ways_to_write_one_place_are_one_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    ways = (
        f"{tmp_path}/real/out",
        f"file:{tmp_path}/real/out",
        f"{tmp_path}/link/out",
        f"{tmp_path}/x/../real/out",
    )
    for sink in (to_files, to_delta):
        for way in ways[1:]:
            with pytest.raises(ArgumentError, match="Two outputs have the target"):
                check_outputs(["a", "b"], [sink(ways[0]), sink(way)])
