"""Tables that start with a bootstrap: its rows are one step ahead of the log, however that is cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.errors import PlanError
from tablestream.planner.physical_plan import Align
from tablestream.runtime.order import number_messages
from tablestream.state.changes import BOOTSTRAP, ROOT, SEQ, STEP
from tablestream.topology.nodes import Source
from tests.marks import quick_first
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import assert_like_twin, assert_once_per_key_and_step, sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Record,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    materialized,
    source,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE = 120
#: Bootstraps whose rows have no time of their own.
OLDEST = 0


def first_rows(sources: Sequence[Source], seed: int) -> list[Record]:
    """Make a bootstrap of each table, one row of a key, in any order."""
    rows = {
        (one.source, one.key): one._replace(ts=OLDEST)
        for one in random_log(sources, seed, SIZE)
        if one.parts is not None and one.value is not None and not one.source.records
    }
    mixed = list(rows.values())
    random.Random(seed).shuffle(mixed)
    return mixed


QUICK = (
    "key outer",
    "foreign key outer",
    "groups by pointer, counted",
    "one to many left",
    "top of groups by key",
)


@pytest.mark.parametrize(
    "name", quick_first([*QUICK, *(name for name in SINGLE | COMPOSED if name not in QUICK)], len(QUICK))
)
def test_a_bootstrap_is_one_step_before_the_log(name: str) -> None:
    nodes = (SINGLE | COMPOSED)[name]()
    sources = sources_of(nodes)
    log, seed = random_log(sources, seed=len(name), size=SIZE), len(name)
    bootstrap = first_rows(sources, seed + 1)
    ways = ((1, random_cuts(log, seed, 3)), (3, [[], log]))
    for shards, pieces in ways if name in QUICK else ways[seed % 2 :: 2]:
        assert_like_twin(nodes, pieces, shards=shards, restarts=True, bootstrap=bootstrap)


def test_a_join_of_two_bootstraps_has_no_half_rows() -> None:
    left, right = source("L"), source("R")
    node = foreign_key_join(key_join(left, right, "outer"), right, "left")
    rows = [Record(left, "1", "a|2", 5), Record(right, "2", "b", 1), Record(right, "1", "c", 9)]
    (got,) = Engine([Output(node)]).steps([Record(left, "1", None, 2)], bootstrap=rows)
    assert_once_per_key_and_step(got)
    first = {change.key: change.value for number, change in got if number == 0}
    assert set(first) == {("1",), ("2",)}
    assert all("None" not in str(first[key]) for key in [("1",)])
    assert [number for number, _ in got if number] == [1]


def test_a_row_older_than_the_history_is_not_late_in_a_bootstrap() -> None:
    """Its rows are put in the order of their times."""
    table, records = source("T"), stream("S")
    node = looked_up(records, materialized(table, 10), "left")
    rows = [Record(table, "new", "n", 1000), Record(table, "old", "o", 5), Record(table, "older", "p", 1)]
    engine = Engine([Output(node)], shards=1)
    (got,) = engine.steps(
        [Record(records, key, f"r|{key}", 1000) for key in ("new", "old", "older")], bootstrap=rows
    )
    assert [str(change.value)[-2] for _, change in got] == ["n", "o", "p"], got
    assert engine.lost == 0


def test_a_bootstrap_does_not_wait_for_the_log() -> None:
    left, right = source("L"), source("R")
    node = grouped(key_join(left, right, "outer"))
    rows = [Record(left, "1", "a|x", 5), Record(right, "1", "b|y", 7)]
    engine = Engine([Output(node)], align=Align())
    (got,) = engine.steps([Record(left, "1", None, 2)], bootstrap=rows)
    assert {number for number, _ in got} == {0}
    (later,) = engine.restarted().steps([Record(right, "2", "b|z", 9), Record(left, "3", "a|q", 8)])
    assert [number for number, _ in later] == [1, 1]


def test_what_bootstraps_cause_is_the_first_step() -> None:
    """Whatever their places and hops are; the steps of records stay apart."""
    rows = [(0, BOOTSTRAP, 7, 3 << 20), (0, BOOTSTRAP, 2, 1), (0, BOOTSTRAP, 2, 5 << 20)]
    places = [(4, "0000", 1, 0), *rows, (4, "0000", 2, 0)]
    frame = pl.DataFrame(places, schema=[*ROOT, "_h0"], orient="row")
    _, (numbers,) = number_messages([frame], ["_h0"])
    assert numbers[SEQ].to_list() == [4, 3, 1, 2, 5]
    assert numbers[STEP].to_list() == [2, 1, 1, 1, 3]


def test_compat_refuses_a_bootstrap() -> None:
    table = Source("T", "", source("T").key, source("T").value, frame=None, text="", bootstrapped=True)
    with pytest.raises(PlanError, match="has no bootstrap"):
        Engine([Output(table)], compat=True)
