"""The columnar operators, in whole plans without Spark, against what Kafka Streams did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.vectors import Sequence, foreign_key, joined, sequences
from tests.marks import quick_first
from tests.plans.engine import Engine, Output, Step, stable_hash
from tests.plans.logs import random_cuts
from tests.plans.tables import Change, Record, filtered, foreign_key_join, key_join, mapped, source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node, Source
    from tests.plans.engine import Hasher

#: How each sequence is run: (shards, hash of a key, pieces or the seed of random cuts).
RUNS: dict[str, tuple[int, Hasher, int | None]] = {
    "whole": (1, stable_hash, None),
    "cut once": (5, stable_hash, 1),
    "cut, every key colliding": (5, len, 3),
}
every_run = pytest.mark.parametrize(
    ("shards", "hasher", "seed"), quick_first((pytest.param(*run, id=name) for name, run in RUNS.items()), 2)
)


def unversioned(family: str, *ops: str) -> list[Any]:
    found = [s for s in sequences(family) if s.op in ops and not s.versioned]
    return [pytest.param(sequence, id=str(sequence)) for sequence in found]


def versioned(family: str, *ops: str) -> list[Any]:
    found = [s for s in sequences(family) if s.op in ops and s.versioned]
    return [pytest.param(sequence, id=str(sequence)) for sequence in found]


def as_text(step: Step) -> Step:
    """Take a count as the text that was recorded."""
    value = step.change.value
    return step._replace(change=step.change._replace(value=None if value is None else str(value)))


def reproduces(
    sequence: Sequence,
    tables: dict[str, Source],
    node: Node,
    shards: int,
    hasher: Hasher,
    seed: int | None,
    *others: Node,
) -> None:
    """Run a sequence, cut by a seed or whole, with a restart at every cut; `others` are further outputs."""
    records = [Record(tables[e.topic], e.key, e.value, e.ts) for e in sequence.events]
    pieces = [records] if seed is None else random_cuts(records, seed, 4)
    outputs = [Output(one) for one in (node, *others)]
    engine = Engine(outputs, compat=True, shards=shards, hasher=hasher)
    got: list[Step] = []
    for piece in pieces:
        got += map(as_text, engine.steps(piece)[0])
        engine = engine.restarted()
    assert got == [
        Step(number, Change((out.key,), out.value, out.ts))
        for number, event in enumerate(sequence.events, start=1)
        for out in event.outputs
    ]
    assert engine.lost == sequence.dropped


@every_run
@pytest.mark.parametrize("sequence", unversioned("pk_join", "pk_join"))
def test_key_join_gives_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    left, right = source("L"), source("R")
    node = key_join(left, right, sequence.params["join"], joined)
    reproduces(sequence, {"L": left, "R": right}, node, shards, hasher, seed)


@every_run
@pytest.mark.parametrize("sequence", unversioned("fk_join", "fk_join"))
def test_foreign_key_join_gives_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    left, right = source("L"), source("R")
    node = foreign_key_join(left, right, sequence.params["join"], foreign_key, joined)
    reproduces(sequence, {"L": left, "R": right}, node, shards, hasher, seed)


@every_run
@pytest.mark.parametrize("sequence", unversioned("fk_join", "fk_self_join"))
def test_foreign_key_self_join_gives_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    table = source("T")
    node = foreign_key_join(table, table, sequence.params["join"], foreign_key, joined)
    topic = sequence.events[0].topic
    reproduces(sequence, {topic: table}, node, shards, hasher, seed)


def has_y(value: str) -> bool:
    return value[0] == "y"


def without_n2(value: str) -> str | None:
    return None if value == "n2" else value + "!"


VIEWS: dict[str, Callable[[Source], Node]] = {
    "table_to_stream": lambda table: table,
    "filter_y": lambda table: filtered(table, has_y),
    "filter_not_y": lambda table: filtered(table, has_y, negate=True),
    "map_values_n2_to_null": lambda table: mapped(table, without_n2),
}


@pytest.mark.parametrize("sequence", unversioned("table_ops", *VIEWS))
def test_views_give_the_recorded_outputs(sequence: Sequence) -> None:
    table = source("T")
    # Declared first, a join makes the source keep its rows.
    others = [key_join(table, table)] if sequence.params["source_materialized"] else []
    node = VIEWS[sequence.op](table)
    reproduces(sequence, {"T": table}, node, 5, stable_hash, 1, *others)
