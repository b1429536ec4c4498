"""What is said of rows, against the rows that plans have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tablestream.topology.graph import ancestors, base_of
from tablestream.topology.nodes import Aggregate, Filter, ForeignKeyJoin, Join, Select, Source, Suppress, Top
from tests.marks import quick_first
from tests.plans.catalogue import COMPOSED, SINGLE, by_letter, own_key
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_log
from tests.plans.tables import (
    counted,
    foreign_key_join,
    many_to_many,
    materialized,
    one_to_many,
    over,
    points,
    source,
)
from tests.provenance.asking import why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.provenance.finding import Finding
    from tablestream.topology.nodes import Node
    from tests.plans.tables import Change, Key, Record, Value

PLANS = (
    SINGLE
    | COMPOSED
    | {
        "many to many": lambda: (many_to_many(source("A"), source("B")),),
        "many to many, of a join": lambda: (
            many_to_many(foreign_key_join(source("A"), source("B"), "left"), source("C"), points(1), own_key),
        ),
        "windows": lambda: (base_of(over(source("A"), by_letter)),),
        "windows of a join": lambda: (
            base_of(over(foreign_key_join(source("A"), source("B"), "left"), points(1))),
        ),
        "one to many groups": lambda: (one_to_many(source("B"), counted(source("A"), points(1))),),
    }
)
#: Keys that no table has.
ABSENT = ("0none", "zz")


def left(changes: Sequence[Change]) -> dict[Key, Value]:
    """The rows that changes leave, by key."""
    rows = {change.key: change.value for change in changes}
    return {key: value for key, value in rows.items() if value is not None}


def tables_of(plan: Sequence[Node]) -> list[Node]:
    return [node for node in plan if not node.is_stream]


def is_decided_by_state(node: Node) -> bool:
    """Whether no expression that is not kept decides if there is a row, and all operators are followed."""
    behind = ancestors(node)
    deleting = any(isinstance(one, Join | Select) and one.delete_when is not None for one in behind)
    bare = isinstance(base_of(node), Source)  # joins and groups keep what they need of it
    return not (bare or deleting or any(isinstance(one, Filter | Suppress) for one in behind))


def is_timed(node: Node) -> bool:
    """Whether a row depends on how far time has come, also by rows that are not there."""
    return any(isinstance(one, ForeignKeyJoin) and one.as_of is not None for one in ancestors(node))


def depends_on_others(node: Node) -> bool:
    """Whether a row depends on rows that are not there: a rank, an empty group, aggregates that tell what was taken."""
    if isinstance(node, Aggregate):
        return node.keep_empty or node.functions is not None
    return isinstance(node, Top)


@pytest.mark.parametrize("name", quick_first(list(PLANS), 12))
def test_a_row_is_said_to_be_there_if_it_is(name: str) -> None:
    plan = PLANS[name]()
    engine = Engine([Output(node) for node in plan], shards=3)
    log = random_log(sources_of(plan), 3, 120)
    changes = [piece for half in (log[:60], log[60:]) for piece in [engine.run(half)]]
    for number, node in enumerate(plan):
        if node.is_stream:
            continue
        told = [one for piece in changes for one in piece[number]]
        rows, absent = left(told), tuple(ABSENT[:1]) * len(node.key)
        keys = list(dict.fromkeys([*(change.key for change in told), absent]))[:40]
        for key, found in zip(keys, why(engine, node, *keys), strict=True):
            assert found.there in {key in rows, None}, (key, found)
            assert found.there is not None or not is_decided_by_state(node), (key, found)


@pytest.mark.parametrize("name", quick_first(list(PLANS), 12))
def test_the_rows_of_sources_are_all_that_a_row_was_made_of(name: str) -> None:
    plan = PLANS[name]()
    nodes = [one for one in tables_of(plan) if is_decided_by_state(one)]
    nodes = [one for one in nodes if not is_timed(one) and not any(map(depends_on_others, ancestors(one)))]
    log = random_log(sources_of(plan), 5, 80)
    for node in nodes:
        engine = Engine([Output(node)])
        (changes,) = engine.run(log)
        rows = left(changes)
        keys = list(rows)[:6]
        for key, found in zip(keys, why(engine, node, *keys), strict=True):
            again = Engine([Output(node)])
            (made,) = again.run(only(log, found))
            assert left(made).get(key) == rows[key], (key, found)


@pytest.mark.parametrize("name", ["as of inner, forward", "as of left, backward"])
def test_a_join_as_of_a_time_names_the_version_that_each_row_has(name: str) -> None:
    (node,) = PLANS[name]()
    versions = Counter[bool]()
    for seed in range(8):
        log, engine = random_log(sources_of([node]), seed, 60), Engine([Output(node)], shards=3)
        rows = left([one for half in (log[:30], log[30:]) for one in engine.run(half)[0]])
        for (key, value), found in zip(rows.items(), why(engine, node, *rows), strict=True):
            mine, *version = found.made_of
            shown = version[0].row["v"] if version and version[0].there else "null"
            assert value is not None
            # Of a left row that names nothing the state has the key alone.
            assert value == f"({mine.row.get('v', value[1:-6])},{shown})", (key, found)
            versions[shown != "null"] += 1
    assert versions[True] > 5


def test_a_table_with_a_history_has_its_latest_row_though_a_late_change_is_told_after_it() -> None:
    node = materialized(source("A"), 5)
    late = 0
    for seed in range(8):
        log, engine = random_log(sources_of([node]), seed, 60), Engine([Output(node)], shards=3)
        told = [one for half in (log[:30], log[30:]) for one in engine.run(half)[0]]
        latest = {one.key: one.value for one in sorted(told, key=lambda one: one.ts)}
        for (key, value), found in zip(latest.items(), why(engine, node, *latest), strict=True):
            assert found.there is (value is not None), (key, found)
            assert found.row.get("v") == value, (key, found)
        late += latest != {one.key: one.value for one in told}
    assert late > 2


def only(log: Sequence[Record], found: Finding) -> list[Record]:
    """The records of a log that made the rows of sources in a finding."""
    wanted = {(one.table, tuple(one.key.values())) for one in found.sources}
    return [one for one in log if (one.source.name, one.parts) in wanted]
