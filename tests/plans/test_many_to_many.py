"""Joins on values that are no key: each against its twin, whole, cut and restarted; and the rule table by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.errors import PlanError
from tablestream.operators.joins import many_to_many as operator
from tests.marks import quick_first
from tests.plans.catalogue import both_pointers, by_letter, has_a, never_b_a, own_key, without_b
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Key,
    Record,
    counted,
    filtered,
    foreign_key_join,
    key_join,
    many_to_many,
    mapped,
    materialized,
    one_to_many,
    points,
    source,
    suppressed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

SIZE = 120

PLANS: dict[str, Callable[[], tuple[Node, ...]]] = {
    "two tables": lambda: (many_to_many(source("A"), source("B")),),
    "by a letter": lambda: (many_to_many(source("A"), source("B"), by_letter, by_letter),),
    "by two values": lambda: (many_to_many(source("A"), source("B"), both_pointers, both_pointers, width=2),),
    "of two keys": lambda: (many_to_many(source("A", width=2), source("B")),),
    "views": lambda: (many_to_many(filtered(source("A"), has_a), mapped(source("B"), without_b)),),
    "that deletes": lambda: (many_to_many(source("A"), source("B"), joiner=never_b_a),),
    "by a key": lambda: (many_to_many(source("A"), source("B"), own_key, points(1)),),
    "of groups": lambda: (many_to_many(counted(source("A")), counted(source("B")), by_letter, by_letter),),
    "of histories": lambda: (many_to_many(materialized(source("A"), 5), source("B")),),
    "grouped": lambda: (counted(many_to_many(source("A"), source("B")), by_letter),),
    "held": lambda: (suppressed(many_to_many(source("A"), source("B")), 5),),
    "joined": lambda: (foreign_key_join(many_to_many(source("A"), source("B")), source("C"), "left"),),
    "of joins": lambda: (
        many_to_many(
            key_join(source("A"), source("B"), "outer"), foreign_key_join(source("C"), source("D"), "left")
        ),
    ),
}


def _twice(build: Callable[[Node], Node]) -> Callable[[], tuple[Node, ...]]:
    return lambda: (build(source("A")),)


#: Plans in which one record changes both sides.
TWICE: dict[str, Callable[[], tuple[Node, ...]]] = {
    "itself": _twice(lambda a: many_to_many(a, a)),
    "itself by other values": _twice(lambda a: many_to_many(a, a, points(0), points(1))),
    "itself, filtered": _twice(lambda a: many_to_many(a, filtered(a, has_a))),
    "itself through a join": _twice(lambda a: many_to_many(a, foreign_key_join(a, a, "left"))),
    "its groups": _twice(lambda a: many_to_many(a, counted(a, by_letter), by_letter, by_letter)),
    "itself, grouped": _twice(lambda a: counted(many_to_many(a, a), by_letter)),
    "the pairs with itself": _twice(lambda a: many_to_many(one_to_many(a, a), a, by_letter, by_letter)),
}


@pytest.mark.parametrize("name", PLANS | TWICE)
@pytest.mark.parametrize("pieces", quick_first([6, 1, 40]))
def test_a_many_to_many_join_is_its_twin(name: str, pieces: int) -> None:
    nodes = (PLANS | TWICE)[name]()
    log = random_log(sources_of(nodes), seed=pieces, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, pieces, 3), shards=3, restarts=pieces > 1)


@pytest.mark.parametrize("name", ["two tables", "by two values", "itself", "itself by other values"])
def test_values_and_keys_are_told_apart_though_all_hashes_are_equal(name: str) -> None:
    nodes = (PLANS | TWICE)[name]()
    log = random_log(sources_of(nodes), seed=2, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, 3, 3), hasher=lambda _: -7)


@pytest.mark.parametrize("name", ["two tables", "of groups", "itself"])
def test_slices_and_chunks_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "FAN_OUT_ROWS", 3)
    nodes = (PLANS | TWICE)[name]()
    log = random_log(sources_of(nodes), seed=4, size=SIZE)
    assert_like_twin(nodes, [log], shards=1, slice_rows=13)


def changes(*records: tuple[str, str, str | None, int]) -> list[str]:
    """What the last record changes, if all come in one micro-batch; the same if each is one."""
    sources = {name: source(name) for name in "LR"}
    node = many_to_many(sources["L"], sources["R"])
    log = [Record(sources[name], key, value, ts) for name, key, value, ts in records]
    (whole,) = Engine([Output(node)]).steps(log)
    engine = Engine([Output(node)])
    cut = [(number, step.change) for number, one in enumerate(log, 1) for step in engine.steps([one])[0]]
    assert [(step.number, step.change) for step in whole] == cut
    last = [step.change for step in whole if step.number == len(log)]
    return [f"{'+'.join(map(str, one.key))}={one.value or '~'}@{one.ts}" for one in last]


L, M, R, S = ("L", "l", "a|x", 1), ("L", "m", "b|x", 2), ("R", "r", "A|x", 3), ("R", "s", "B|x", 4)


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        # l is written: the row for each right row of its value, at the larger time of both, in the order of their keys
        ([L], []),
        ([S, R, L], ["l+r=(a|x,A|x)@3", "l+s=(a|x,B|x)@4"]),
        ([R, ("L", "l", "a|x", 9)], ["l+r=(a|x,A|x)@9"]),
        # again: the row
        ([L, R, ("L", "l", "c|x", 2)], ["l+r=(c|x,A|x)@3"]),
        # r is written: the row for each left row of its value
        ([M, L, R], ["l+r=(a|x,A|x)@3", "m+r=(b|x,A|x)@3"]),
        # l moves: tombstones at the value that it leaves, then rows at the new one
        ([L, R, S, ("R", "t", "C|y", 5), ("L", "l", "a|y", 6)], ["l+r=~@6", "l+s=~@6", "l+t=(a|y,C|y)@6"]),
        # l is deleted, or has no value any more: tombstones
        ([L, R, ("L", "l", None, 1)], ["l+r=~@3"]),
        ([L, R, ("L", "l", "a", 5)], ["l+r=~@5"]),
        ([L, R, ("R", "r", None, 4)], ["l+r=~@4"]),
        # any other: nothing
        ([L, ("L", "l", None, 2)], []),
        ([R, ("L", "l", "a", 2)], []),
        ([L, R, ("L", "n", None, 9)], []),
        ([L, R, ("L", "l", None, 5), ("L", "l", None, 6)], []),
        ([L, R, ("R", "r", None, 5), ("L", "l", "c|x", 6)], []),
        ([L, R, ("R", "r", None, 5), R], ["l+r=(a|x,A|x)@3"]),
    ],
)
def test_rule_table(records: list[tuple[str, str, str | None, int]], wanted: list[str]) -> None:
    assert changes(*records) == wanted


def test_a_pair_that_one_record_moves_emits_one_change() -> None:
    table = source("A")
    log = [Record(table, "k", value, at) for at, value in enumerate(["a|x", "b|y", "c", "d|y", None], 1)]
    (rows,) = Engine([Output(many_to_many(table, table))]).run(log)
    assert [(one.key, one.value, one.ts) for one in rows] == [
        (("k", "k"), "(a|x,a|x)", 1),
        (("k", "k"), "(b|y,b|y)", 2),
        (("k", "k"), None, 3),
        (("k", "k"), "(d|y,d|y)", 4),
        (("k", "k"), None, 5),
    ]


@pytest.mark.parametrize("final", [False, True], ids=["every", "final"])
def test_the_rows_are_the_pairs_of_the_last_values(*, final: bool) -> None:
    sources = [source("A"), source("B")]
    log = random_log(sources, seed=11, size=SIZE)
    joined = many_to_many(sources[0], sources[1])
    engine, rows = Engine([Output(joined, final=final)]), dict[Key, str]()
    for piece in random_cuts(log, 7, 2):
        (found,) = engine.run(piece)
        assert not final or len({change.key for change in found}) == len(found)
        for change in found:
            rows.pop(change.key, None)
            if change.value is not None:
                rows[change.key] = change.value
        engine = engine.restarted()
    last = [
        {record.parts: record.value for record in log if record.source is one and record.parts is not None}
        for one in sources
    ]
    pointer = points(0)
    assert rows == {
        (*left, *right): f"({a},{b})"
        for left, a in last[0].items()
        for right, b in last[1].items()
        if a and b and pointer(a, left) is not None and pointer(a, left) == pointer(b, right)
    }


def test_kafka_streams_has_none() -> None:
    with pytest.raises(PlanError, match="has no join on columns that are no key"):
        Engine([Output(many_to_many(source("A"), source("B")))], compat=True)
