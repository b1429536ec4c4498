"""Recorded outputs of Kafka Streams, record for record, through Spark: cut over micro-batches, with restarts.

All sequences are outputs of one query; those with the same input share their tables. The number of a record is
its place in the order, so an output's ``_order`` tells which record it answers.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.testing.reference import Output
from tests.conformance.vectors import Event, Sequence, sequences
from tests.spark.change_logs import ChangeLog, dropped, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from tablestream.connectors.memory import MemorySink
    from tablestream.spark.runner import OutputRequest

RECORDED = [one for family in ("pk_join", "fk_join") for one in sequences(family) if not one.versioned]
SCHEMA = "input string, topic string, k string, v string, ts bigint, number bigint"
#: Files of the first run, the second and the third; the third finds no cache.
RUNS = (2, 2, 1)


def input_of(sequence: Sequence) -> str:
    """Name a sequence's input: the three joins of a seed read the same records."""
    return f"{sequence.op}_{sequence.seed}"


@dataclass(frozen=True)
class Replayed:
    """What came out of Spark: the sinks, and what was counted."""

    sinks: dict[str, MemorySink]
    counts: Counter[str]

    def answers(self, sequence: Sequence) -> list[tuple[int, Output]]:
        """Every output with the number of the record that it answers."""
        return [
            (
                row["_order"]["time"],
                Output(
                    row["k"],
                    row["v"] if row["_change_type"] == "upsert" else None,
                    round(row["_timestamp"].timestamp() * 1000),
                ),
            )
            for row in self.sinks[str(sequence)].rows()
        ]


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    """Run all sequences: some files, a restart, more files, a restart without the cache, the rest."""
    folder = tmp_path_factory.mktemp("vectors")
    log = ChangeLog(folder / "log", SCHEMA)
    sinks = {str(one): ts.memory(str(one)) for one in RECORDED}
    pieces = cut({input_of(one): one.events for one in RECORDED}, sum(RUNS))
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLESTREAM_CACHE_DIR", str(folder / "cache"))
        for files in RUNS:
            log.add(*(pieces.pop(0) for _ in range(files)))
            if not pieces:
                shutil.rmtree(folder / "cache")
            outputs = joins(log.read(spark), sinks)
            counts += run(*outputs, checkpoint=folder / "checkpoint", compat="kafka-streams", shards=1)
    yield Replayed(sinks, counts)
    for sink in sinks.values():
        sink.clear()


def cut(inputs: dict[str, tuple[Event, ...]], pieces: int) -> list[list[dict[str, object]]]:
    """Cut every input at its own random places; piece by piece, the records of all."""
    rng = random.Random(7)
    files: list[list[dict[str, object]]] = [[] for _ in range(pieces)]
    for name, events in inputs.items():
        places = sorted(rng.randint(0, len(events)) for _ in range(pieces - 1))
        for number, event in enumerate(events):
            record = {"input": name, "topic": event.topic, "k": event.key, "v": event.value, "ts": event.ts}
            files[sum(number >= place for place in places)].append({**record, "number": number})
    return files


def joins(log: DataFrame, sinks: dict[str, MemorySink]) -> list[OutputRequest]:
    """Declare the tables and joins of all sequences."""
    tables: dict[tuple[str, str], ts.Table] = {}
    outputs = []
    for one in RECORDED:
        for topic in sorted({event.topic for event in one.events}):
            if (input_of(one), topic) not in tables:
                tables[input_of(one), topic] = table(log, input_of(one), topic)
        left = tables[input_of(one), "L"]
        right = tables.get((input_of(one), "R"), left)
        on = None if one.op == "pk_join" else lambda row: foreign_key(row.v)
        joined = left.join(right, on=on, how=one.params["join"], select=paired, name=str(one))
        outputs.append(joined.to(sinks[str(one)]))
    return outputs


def table(log: DataFrame, name: str, topic: str) -> ts.Table:
    return ts.table(
        log.where((F.col("input") == name) & (F.col("topic") == topic)),
        key="k",
        timestamp=F.timestamp_millis("ts"),
        apply_as_deletes="v IS NULL",
        columns=["v"],
        order_by="number",
        name=f"{name}_{topic}",
    )


def foreign_key(value: Column) -> Column:
    """Extract the foreign key as the recorded topologies do."""
    return F.when(value.contains("|"), F.substring_index(value, "|", -1))


def paired(left: ts.Row, right: ts.Row) -> list[Column]:
    """Join two values as the recorded topologies do."""
    shown = [F.coalesce(side.v, F.lit("null")) for side in (left, right)]
    return [F.format_string("(%s,%s)", *shown).alias("v")]


def test_every_recorded_join_without_history_is_here() -> None:
    assert Counter(one.op for one in RECORDED) == {"pk_join": 9, "fk_join": 6, "fk_self_join": 6}
    by_input: dict[str, set[tuple[Event, ...]]] = {}
    for one in RECORDED:
        records = tuple(Event(*event[:4], outputs=()) for event in map(fields, one.events))
        by_input.setdefault(input_of(one), set()).add(records)
    assert all(len(inputs) == 1 for inputs in by_input.values())


def fields(event: Event) -> tuple[str, str | None, str | None, int]:
    return event.topic, event.key, event.value, event.ts


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sequence", RECORDED, ids=str)
def test_recorded_outputs_come_back(sequence: Sequence, replayed: Replayed) -> None:
    wanted = [(number, output) for number, event in enumerate(sequence.events) for output in event.outputs]
    assert replayed.answers(sequence) == wanted
    operators = (str(sequence), f"{input_of(sequence)}_L", f"{input_of(sequence)}_R")
    assert dropped(replayed.counts, *operators) == sequence.dropped
