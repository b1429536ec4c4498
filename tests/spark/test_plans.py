"""Plans of several operators through Spark, in both modes, against the model of reference operators.

The plans of a mode are outputs of one query over the same tables, cut at random and restarted in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

import tablestream as ts
from tablestream.topology.nodes import Node, OneToMany
from tests.marks import quick_first
from tests.plans.catalogue import has_a, never_b_a, without_b
from tests.plans.comparing import assert_once_per_key_and_step, by_step_and_key
from tests.plans.engine import Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.model import Model
from tests.plans.tables import (
    Change,
    Record,
    as_of_join,
    as_text,
    counts,
    filtered,
    first_of_key,
    foreign_key_join,
    frozen,
    kept,
    key_join,
    looked_up,
    many_to_many,
    mapped,
    materialized,
    merged,
    named_time,
    one_to_many,
    over,
    pointers,
    points,
    rekeyed,
    source,
    stream,
    to_stream,
    to_table,
    topped,
    unfolded,
)
from tests.spark.change_logs import ChangeLog, run
from tests.spark.translating import translated

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.memory.sink import MemorySink

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("several_partitions")]

Plan: TypeAlias = "Callable[..., Node]"
"""Makes the node that is asked for of the tables A, B and C and the streams S and T."""

PLANS: dict[str, Plan] = {
    "key self inner": lambda a, *_: key_join(a, a, "inner"),
    "key self outer": lambda a, *_: key_join(a, a, "outer"),
    "key tree": lambda a, b, c, *_: key_join(key_join(a, b, "left"), c, "outer"),
    "key right of views": lambda a, b, *_: key_join(mapped(a, without_b), filtered(b, has_a), "right"),
    "foreign key right": lambda a, b, *_: foreign_key_join(a, b, "right"),
    "foreign key outer": lambda a, b, *_: foreign_key_join(a, b, "outer"),
    "foreign key self": lambda a, *_: foreign_key_join(filtered(a, has_a), a, "left"),
    "one to many": lambda a, b, *_: one_to_many(a, b, "left"),
    "foreign key of a foreign key": lambda a, b, c, *_: foreign_key_join(
        foreign_key_join(a, b, "left"), c, "inner", points(1)
    ),
    "foreign key to a key join": lambda a, b, c, *_: foreign_key_join(a, key_join(b, c, "outer"), "left"),
    "diamond": lambda a, b, c, *_: key_join(
        foreign_key_join(a, b, "left"), foreign_key_join(a, c, "inner", points(1)), "outer"
    ),
    "records filtered, with another key": lambda _a, _b, _c, s, _t: rekeyed(filtered(s, has_a)),
    "records merged, filtered": lambda _a, _b, _c, s, t: filtered(
        merged(s, mapped(t, without_b)), has_a, negate=True
    ),
    "records look up everywhere, filtered": lambda _a, b, _c, s, _t: filtered(
        looked_up(s, b, "inner", copied=True), has_a
    ),
    "records look up": lambda a, _b, _c, s, _t: looked_up(s, a, "left"),
    "unfolded records as a table, joined": lambda a, _b, _c, s, _t: key_join(
        to_table(rekeyed(unfolded(s, pointers))), a, "outer"
    ),
    "a filtered table as a stream": lambda a, *_: to_stream(filtered(a, has_a)),
    "records counted, looked up": lambda _a, _b, c, s, t: looked_up(
        to_stream(mapped(counts(merged(s, t)), as_text, total=True)), c, "left", points(0)
    ),
    "a table kept, and joined": lambda a, b, *_: key_join(materialized(filtered(a, has_a)), b, "left"),
    "as of times": lambda a, b, *_: as_of_join(filtered(a, has_a), materialized(b, 1000), "left"),
    "top of a join": lambda a, b, *_: topped(foreign_key_join(a, b, "left"), points(1), 3),
    "top of groups, counted": lambda a, *_: mapped(counts(topped(filtered(a, has_a))), as_text, total=True),
    "joiner that deletes": lambda a, b, *_: filtered(
        foreign_key_join(a, b, "outer", joiner=never_b_a), has_a, negate=True
    ),
    "a table by another key": lambda a, *_: first_of_key(a, points(1), greatest=True),
}
#: Plans that Kafka Streams does not have.
FURTHER: dict[str, Plan] = {
    "elements of a filtered table": lambda a, *_: unfolded(filtered(a, has_a), pointers),
    "a filtered table with window functions": lambda a, *_: over(filtered(a, has_a), points(1)),
    "many to many": lambda a, b, *_: many_to_many(filtered(a, has_a), b, points(0), points(1)),
}
#: Plans whose times are per shard: they run with one.
OF_A_SHARD: dict[str, Plan] = {
    "a join that forgets": lambda a, b, *_: kept(foreign_key_join(a, b, "left"), 9),
    "joined with what is kept by a column": lambda a, b, *_: foreign_key_join(
        b, kept(filtered(a, has_a), 4, named_time), "left"
    ),
    "a join that freezes": lambda a, b, *_: frozen(foreign_key_join(a, b, "left"), 6, named_time),
}
RECORDS = 250
SCHEMA = "source string, k0 string, k1 string, v string, ts bigint, number bigint"


def line(record: Record, number: int) -> dict[str, object]:
    """Write a record as a line of a change log."""
    parts = record.key if isinstance(record.key, tuple) else (record.key,)
    keys = {f"k{place}": part for place, part in enumerate(parts)}
    return {"source": record.source.name, **keys, "v": record.value, "ts": record.ts, "number": number}


def steps(table: ts.Table | ts.Stream, sink: MemorySink) -> list[Step]:
    """Read what came out as the model says it."""
    found = []
    for row in sink.rows():
        value = row["v"] if row["_change_type"] == "upsert" else None
        change = Change(
            tuple(row[name] for name in table.key_columns), value, int(row["_timestamp"].timestamp())
        )
        found.append(Step(row["_order"]["time"], change))
    return found


#: The mode, how many shards, and which plans. Every other plan is enough: those of the default mode have every
#: operator, and the modes differ in operators, which tests without Spark compare in all plans.
PARTS = [
    pytest.param(False, 3, dict([*PLANS.items()][1::2]) | FURTHER, id="default"),
    pytest.param(False, 1, OF_A_SHARD, id="default, of a shard"),
    pytest.param(True, 3, dict([*PLANS.items()][::2]), id="compat"),
]


@pytest.mark.parametrize(("compat", "shards", "plans"), quick_first(PARTS, 2))
def test_plans_give_what_their_reference_operators_give(
    spark: SparkSession, tmp_path: Path, *, compat: bool, shards: int, plans: dict[str, Plan]
) -> None:
    sources = [source(name) for name in "ABC"] + [stream(name) for name in "ST"]
    nodes = {name: make(*sources) for name, make in plans.items()}
    records = random_log(sources, seed=5 + compat, size=RECORDS)
    model = Model([Output(node) for node in nodes.values()], compat=compat)
    wanted = dict(zip(nodes, model.steps(records), strict=True))

    log = ChangeLog(tmp_path / "log", SCHEMA)
    # Two micro-batches, a restart between them: tests without Spark cut all plans in many ways.
    before, after = random_cuts([line(record, number) for number, record in enumerate(records, 1)], 1, 2)
    sinks = {name: ts.to_memory(f"plans {name}") for name in nodes}
    options = {"compat": "kafka-streams" if compat else None, "shards": shards}
    counts: Counter[str] = Counter()
    for piece in (before, after):
        log.add(piece)
        tables = dict(zip(nodes, translated(list(nodes.values()), log.read(spark)), strict=True))
        outputs = [tables[name].to(sinks[name], name=name) for name in nodes]
        counts += run(*outputs, checkpoint=tmp_path / "checkpoint", **options)

    for name, node in nodes.items():
        got = steps(tables[name], sinks[name])
        if not (compat or node.is_stream):
            assert_once_per_key_and_step(got)
        if compat and not isinstance(node, OneToMany):
            assert got == wanted[name], name
        else:
            assert by_step_and_key(got) == by_step_and_key(wanted[name]), name
    assert sum(count for place, count in counts.items() if ": " in place) == model.dropped
