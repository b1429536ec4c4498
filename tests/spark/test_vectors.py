"""Recorded outputs of Kafka Streams, record for record, through Spark: cut over micro-batches, with restarts.

All plans are outputs of one query. The seeds of a plan are rows of the same tables, told apart by the first part of
the key, but for suppress and versioned tables, whose time is a table's; of versioned ones there is one of each kind.
The number of a record is its place in the order, so an output's ``_order`` tells which record it answers.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tests.conformance.test_reference_suppress import NEVER
from tests.conformance.vectors import Event, Sequence, sequences
from tests.reference import Output
from tests.spark.change_logs import ChangeLog, dropped, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from tablestream.connectors.memory.sink import MemorySink

pytestmark = pytest.mark.slow

Plan: TypeAlias = "Callable[[Sequence, Any, Any], ts.Table | ts.Stream]"
"""(sequence, left table, right table) -> table; both are the same where one topic was recorded."""

FAMILIES = (
    "pk_join", "fk_join", "table_ops", "groupby_aggregate", "stream_table_join", "stream_global_table_join",
)  # fmt: skip
#: Of suppress one sequence of each limit, as each one needs tables of its own; tests without Spark run all.
UNVERSIONED = [
    one
    for family in FAMILIES
    for one in sequences(family)
    if not one.versioned and (one.seed == 1 or not one.op.startswith("suppress"))
]
#: With a history: the shortest one, and the longest grace.
VERSIONED = {
    one.op: one
    for family in FAMILIES
    for one in sequences(family)
    if one.versioned
    and one.op in ("pk_join", "fk_join", "stream_table_join", "filter_y", "groupby_aggregate")
    and {ms for name, ms in one.params.items() if name.endswith("history_ms")} <= {5, 6, None}
}
RECORDED = [*UNVERSIONED, *VERSIONED.values()]
SCHEMA = "op string, seed int, topic string, k string, v string, ts bigint, number bigint"
#: Micro-batches of the first run, and of the second, which finds no cache.
RUNS = (1, 1)


# The recorded topologies, said with the library.


def key_join(sequence: Sequence, left: ts.Table, right: ts.Table) -> ts.Table:
    return left.join(right, how=sequence.params["join"], select=paired, name=plan_of(sequence))


def foreign_key_join(sequence: Sequence, left: ts.Table, right: ts.Table) -> ts.Table:
    """Join on what follows the bar of the left value; a value without one has no foreign key."""
    return left.join(right, pointer, sequence.params["join"], paired, name=plan_of(sequence))


def pointer(row: ts.Row, key: ts.Row) -> list[Column]:
    return [key.seed, F.when(row.v.contains("|"), F.substring_index(row.v, "|", -1))]


def looked_up(sequence: Sequence, records: ts.Stream, table: ts.Table) -> ts.Stream:
    grace_ms = sequence.params["grace_ms"]
    grace = None if grace_ms is None else timedelta(milliseconds=grace_ms)
    how, name = sequence.params["join"], plan_of(sequence)
    return records.join(table, how=how, select=paired, grace=grace, name=name)


def paired(left: ts.Row, right: ts.Row) -> list[Column]:
    """Join two values as the recorded topologies do."""
    shown = [F.coalesce(side.v, F.lit("null")) for side in (left, right)]
    return [F.format_string("(%s,%s)", *shown).alias("v")]


def groups(table: ts.Table) -> ts.GroupedTable:
    """Group by what stands before the colon: in compat the group ``_``, and that of an empty item, are null."""
    group = F.expr("if(v LIKE '%:', NULL, nullif(substring_index(v, ':', 1), '_'))")
    return table.group_by("seed", group.alias("k"), value=[F.substring_index("v", ":", -1).alias("v")])


# Functions of groups stand in lambdas: workers need not be able to import this module.
PLANS: dict[str, Plan] = {
    "stream_table_join": looked_up,
    "stream_global_table_join": lambda sequence, table, records: records.join(
        table, pointer, sequence.params["join"], paired, name=plan_of(sequence)
    ),
    "pk_join": key_join,
    "fk_join": foreign_key_join,
    "fk_self_join": foreign_key_join,
    "table_to_stream": lambda _, table, __: table,
    "filter_y": lambda _, table, __: table.filter("v LIKE 'y%'"),
    "filter_not_y": lambda _, table, __: table.filter_not("v LIKE 'y%'"),
    "map_values_n2_to_null": lambda _, table, __: table.map_values(
        F.concat("v", F.lit("!")).alias("v"), delete_when="v = 'n2'"
    ),
    "suppress_until_time_limit": lambda sequence, table, _: table.suppress(
        timedelta(milliseconds=sequence.params["limit_ms"])
    ),
    "suppress_max_records_emit_early": lambda sequence, table, _: table.suppress(
        timedelta(milliseconds=NEVER), max_records=sequence.params["max_records"]
    ),
    "groupby_aggregate": lambda _, table, __: groups(table).aggregate(
        lambda: "0",
        lambda _, row, text: f"{text}+{row.v}",
        lambda _, row, text: f"{text}-{row.v}",
        "v string",
    ),
    "groupby_count": lambda _, table, __: groups(table).agg(v=ts.functions.count()),
    "groupby_reduce": lambda _, table, __: groups(table).reduce(
        lambda one, other: (f"{one.v}+{other.v}",), lambda one, other: (f"{one.v}-{other.v}",)
    ),
}


def is_alone(sequence: Sequence) -> bool:
    """Whether a sequence has tables of its own, as their time is its own."""
    return sequence.versioned or sequence.op.startswith("suppress")


def plan_of(sequence: Sequence) -> str:
    """Name the output of a sequence."""
    return str(sequence) if is_alone(sequence) else str(sequence).rpartition("-")[0]


def input_of(sequence: Sequence) -> str:
    """Name the records of a sequence."""
    return str(sequence) if sequence.versioned else sequence.op


def table_of(sequence: Sequence) -> str:
    """Name the table of a sequence: a bare source and one that keeps its rows are two."""
    kept = "_kept" if sequence.params.get("source_materialized") else ""
    return f"{input_of(sequence)}_{sequence.seed}" if is_alone(sequence) else sequence.op + kept


# What came out of Spark.


@dataclass(frozen=True)
class Replayed:
    """The sinks by plan, and what was counted."""

    sinks: dict[str, MemorySink]
    counts: Counter[str]

    def answers(self, sequence: Sequence) -> list[tuple[int, Output]]:
        """Every output with the number of the record that it answers."""
        return [
            (
                row["_order"]["time"],
                Output(
                    row["k"],
                    str(row["v"]) if row["_change_type"] == "upsert" else None,
                    round(row["_timestamp"].timestamp() * 1000),
                ),
            )
            for row in self.sinks[plan_of(sequence)].rows()
            if row["seed"] == sequence.seed
        ]


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    """Run all sequences: some files, then, after a restart without the cache, the rest."""
    folder = tmp_path_factory.mktemp("vectors")
    log = ChangeLog(folder / "log", SCHEMA)
    sinks: dict[str, MemorySink] = {}
    pieces = cut({(input_of(one), one.seed): one.events for one in RECORDED}, sum(RUNS))
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLESTREAM_CACHE_DIR", str(folder / "cache"))
        for files in RUNS:
            log.add(*(pieces.pop(0) for _ in range(files)))
            if not pieces:
                shutil.rmtree(folder / "cache")
            declared = plans(log.read(spark))
            sinks = sinks or {name: ts.to_memory(name) for name in declared}
            outputs = [table.to(sinks[name], name=name) for name, table in declared.items()]
            counts += run(*outputs, checkpoint=folder / "checkpoint", compat="kafka-streams", shards=1)
    yield Replayed(sinks, counts)
    for sink in sinks.values():
        sink.clear()


def cut(inputs: dict[tuple[str, int], tuple[Event, ...]], pieces: int) -> list[list[dict[str, object]]]:
    """Cut every input at its own random places; piece by piece, the records of all."""
    rng = random.Random(7)
    files: list[list[dict[str, object]]] = [[] for _ in range(pieces)]
    for (op, seed), events in inputs.items():
        places = sorted(rng.randint(0, len(events)) for _ in range(pieces - 1))
        for number, (topic, key, value, at) in enumerate(map(fields, events)):
            record = {"op": op, "seed": seed, "topic": topic, "k": key, "v": value, "ts": at}
            files[sum(number >= place for place in places)].append({**record, "number": number})
    return files


def plans(log: DataFrame) -> dict[str, ts.Table | ts.Stream]:
    """Declare the tables of all sequences and what is made of them."""
    tables: dict[tuple[str, str], ts.Table | ts.Stream] = {}
    made: dict[str, ts.Table | ts.Stream] = {}
    for one in RECORDED:
        mine = [(table_of(one), topic) for topic in sorted({event.topic for event in one.events})]
        for name, topic in mine:
            if (name, topic) not in tables:
                tables[name, topic] = declared = table(log, one, topic)
                if one.params.get("source_materialized") and isinstance(declared, ts.Table):
                    # Declared before the filters, groups make the source keep its rows.
                    made[f"{name}_rows"] = declared.group_by("v").count()
        if plan_of(one) not in made:
            made[plan_of(one)] = PLANS[one.op](one, tables[mine[0]], tables[mine[-1]])
    return made


def table(log: DataFrame, sequence: Sequence, topic: str) -> ts.Table | ts.Stream:
    records = log.where((F.col("op") == input_of(sequence)) & (F.col("topic") == topic))
    if is_alone(sequence):
        records = records.where(F.col("seed") == sequence.seed)
    said: dict[str, Any] = {
        "key": ["seed", "k"],
        "timestamp": F.timestamp_millis("ts"),
        "apply_as_deletes": "v IS NULL",
        "columns": ["v"],
        "order_by": "number",
        "name": f"{table_of(sequence)}_{topic}",
    }
    if topic == "S":
        return ts.stream(records, **said)
    if topic == "G":
        return ts.global_table(records, **said)
    sides = {"L": "left_history_ms", "R": "right_history_ms"}
    names = (sides.get(topic, ""), "table_history_ms", "history_ms")
    history_ms = next((sequence.params[name] for name in names if name in sequence.params), None)
    history = None if history_ms is None else timedelta(milliseconds=history_ms)
    return ts.table(records, history=history, **said)


def fields(event: Event) -> tuple[str, str | None, str | None, int]:
    return event.topic, event.key, event.value, event.ts


def test_every_recorded_sequence_without_history_is_here() -> None:
    assert Counter(one.op for one in UNVERSIONED) == {
        "stream_table_join": 6, "stream_global_table_join": 6,
        "pk_join": 9, "fk_join": 6, "fk_self_join": 6,
        "table_to_stream": 6, "filter_y": 6, "filter_not_y": 6, "map_values_n2_to_null": 6,
        "suppress_until_time_limit": 3, "suppress_max_records_emit_early": 2,
        "groupby_aggregate": 3, "groupby_count": 3, "groupby_reduce": 3,
    }  # fmt: skip
    by_input: dict[tuple[str, int], set[Any]] = {}
    for one in RECORDED:
        by_input.setdefault((input_of(one), one.seed), set()).add(tuple(map(fields, one.events)))
    assert all(len(inputs) == 1 for inputs in by_input.values())


def test_a_sequence_of_each_operator_that_knows_a_history_is_here() -> None:
    assert set(VERSIONED) == {"pk_join", "fk_join", "stream_table_join", "filter_y", "groupby_aggregate"}
    assert VERSIONED["stream_table_join"].params["grace_ms"] == 6
    assert None not in VERSIONED["pk_join"].params.values()


@pytest.mark.parametrize("sequence", RECORDED, ids=str)
def test_recorded_outputs_come_back(sequence: Sequence, replayed: Replayed) -> None:
    wanted = [(number, output) for number, event in enumerate(sequence.events) for output in event.outputs]
    assert replayed.answers(sequence) == wanted


@pytest.mark.parametrize("plan", dict.fromkeys(map(plan_of, RECORDED)))
def test_recorded_drops_come_back(plan: str, replayed: Replayed) -> None:
    mine = [one for one in RECORDED if plan_of(one) == plan]
    tables = {f"{table_of(one)}_{event.topic}" for one in mine for event in one.events}
    assert dropped(replayed.counts, plan, *tables) == sum(one.dropped for one in mine)
