"""Window functions: each plan against its twin, whole, cut and restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.errors import PlanError
from tablestream.operators.reduce import over as operator
from tests.marks import quick_first
from tests.plans.catalogue import by_both, by_key, by_letter, has_a, pointer_of
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Key,
    Record,
    counted,
    filtered,
    foreign_key_join,
    materialized,
    over,
    points,
    source,
    told,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

SIZE = 120

PLANS: dict[str, Callable[[], tuple[Node, ...]]] = {
    "by pointer": lambda: (over(source("A")),),
    "by key": lambda: (over(source("A"), by_key),),
    "by two parts": lambda: (over(source("A"), by_both, width=2),),
    "of two keys": lambda: (over(source("A", width=2), by_letter),),
    "by rows": lambda: (over(source("A"), by_letter, by_rows=True),),
    "rows around": lambda: (over(source("A"), by_letter, by_rows=True, between=(-2, 1)),),
    "rows before": lambda: (over(source("A"), by_letter, by_rows=True, between=(-3, -1), descending=True),),
    "from the peers": lambda: (over(source("A"), by_letter, order=pointer_of, between=(0, None)),),
    "without an order": lambda: (over(source("A"), by_letter, order=None),),
    "descending": lambda: (over(source("A"), by_letter, order=pointer_of, descending=True),),
    "a view": lambda: (over(filtered(source("A"), has_a)),),
    "a history": lambda: (over(materialized(source("A"), 5)),),
    "a join": lambda: (over(foreign_key_join(source("A"), source("B"), "left"), by_letter),),
    "groups": lambda: (over(counted(source("A"), points(1)), by_letter),),
    "counted": lambda: (counted(over(source("A"), by_letter), by_letter),),
    "joined": lambda: (foreign_key_join(over(source("A")), source("B"), "left"),),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("pieces", quick_first([6, 1, 40]))
def test_a_row_is_told_what_its_twin_is_told(name: str, pieces: int) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=pieces, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, pieces, 3), shards=3, restarts=pieces > 1)


@pytest.mark.parametrize("name", ["by two parts", "rows around"])
def test_partitions_and_keys_are_told_apart_though_all_hashes_are_equal(name: str) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=2, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, 3, 3), hasher=lambda _: -7)


@pytest.mark.parametrize("rows", [1, 7, 60])
def test_slabs_and_slices_do_not_show(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "SLAB_ROWS", rows)
    nodes = PLANS["rows around"]()
    log = random_log(sources_of(nodes), seed=4, size=SIZE)
    assert_like_twin(nodes, [log], shards=1, slice_rows=50)


@pytest.mark.parametrize("final", [False, True], ids=["every", "final"])
def test_the_rows_are_those_of_the_last_values(*, final: bool) -> None:
    table = source("A")
    log = random_log([table], seed=11, size=SIZE)
    engine, rows = Engine([Output(over(table, by_letter), final=final)]), dict[Key, str]()
    for piece in random_cuts(log, 7, 2):
        (found,) = engine.run(piece)
        assert not final or len({change.key for change in found}) == len(found)
        for change in found:
            rows.pop(change.key, None)
            if change.value is not None:
                rows[change.key] = change.value
        engine = engine.restarted()
    last = {one.parts: one.value for one in log if one.parts is not None}
    wanted: dict[Key, str] = {}
    for letter in {value[0] for value in last.values() if value}:
        of = [(key, value) for key, value in last.items() if key and value and value[0] == letter]
        of.sort(key=lambda row: (row[1][0], str(row[0][0]).encode()))
        pairs = [(value, value[0]) for _, value in of]
        wanted |= {key: told(windows(pairs, number)) for number, (key, _) in enumerate(of)}
    assert rows == wanted


def test_only_rows_whose_values_changed_are_emitted() -> None:
    table = source("A")
    engine = Engine([Output(over(table, by_letter, order=pointer_of))])
    log = [("k", "a|x"), ("m", "a|z"), ("l", "a|y"), ("m", "b|z"), ("k", "a|x"), ("l", None), ("m", "c")]
    found = [
        [(one.key[0], one.value) for one in engine.run([Record(table, key, value, at)])[0]]
        for at, (key, value) in enumerate(log, 1)
    ]
    emitted = [[key for key, _ in one] for one in found]
    assert emitted == [["k"], ["m"], ["k", "l", "m"], ["k", "m"], [], ["l"], ["m"]]


def test_kafka_streams_has_none() -> None:
    with pytest.raises(PlanError, match="has no window functions"):
        Engine([Output(over(source("A")))], compat=True)
