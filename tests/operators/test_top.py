"""The first rows of groups against the record-at-a-time reference: whole, cut, and with few heads."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.reduce import heads as heads_of_groups
from tablestream.operators.reduce import parts as working
from tablestream.operators.reduce import top as topping
from tablestream.operators.reduce.ranking import Order
from tablestream.operators.reduce.top import RANK, Top
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.trace_spec import numbered_traces
from tests import reference
from tests.marks import quick_first
from tests.operators.test_groups import GROUPS, KEYS, Chain, cut
from tests.operators.test_members import FLOATS, Step, Watched, last_ones, same, sort_key, stepped
from tests.reference.groups import GroupBy

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of a row: an integer and a float are shown, rows are ranked by these and by a text.
SHOWN = {"c0": pl.Int64(), "c1": pl.Float64()}
COLUMNS = {**SHOWN, "c2": pl.String()}
TEXTS = st.sampled_from(["", "a", "Z", "ä", "\U0001f600", "\uffff"])
VALUES = st.fixed_dictionaries(
    {"c0": st.none() | st.integers(-2, 2), "c1": st.none() | FLOATS, "c2": st.none() | TEXTS}
)
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abcdefghij"),
        st.one_of(st.none(), *[st.tuples(st.sampled_from(["g", "g", "g", "h", None]), VALUES)] * 3),
        st.booleans(),
    ),
    max_size=60,
)
#: Columns, each with whether it is descending.
Orders = list[tuple[str, bool]]
ORDERS = st.lists(
    st.tuples(st.sampled_from(sorted(COLUMNS)), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one[0],
)


def top(n: int, orders: Orders, *, compat: bool = False, final: bool = False) -> Top:
    columns, descending = zip(*orders, strict=True)
    order = Order(columns, descending, newest_first=False, keeps_nulls=True)
    return Top(KEYS, GROUPS, pl.Struct(COLUMNS), pl.Struct(SHOWN), order, n, atomic=not compat, final=final)


def shown(value: dict[str, Any] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(same(value[name]) for name in SHOWN)


def told(log: Sequence[Step], n: int, orders: Orders, *, compat: bool) -> list[Any]:
    """What the reference tells: (step, (group, rank), value or None, time)."""

    def part(name: str) -> Any:
        return lambda row: None if row[1][name] is None else sort_key(row[1][name])

    order = [(part(name), down) for name, down in orders]
    model = reference.Top(n, order, lambda row: shown(row[1]), compat=compat)
    groups = GroupBy(lambda value, _: value, compat=compat)
    steps: dict[int, list[Any]] = {}
    for key, group, value, ts, step in log:
        message = None if value is None else (group, (key, value))
        steps.setdefault(step, []).append((0, key, message, ts))
    return [
        (step, *output) for step, messages in steps.items() for output in model.step(groups.step(messages))
    ]


def found(operator: Top, parts: Sequence[Sequence[Step]], *, compat: bool) -> list[Any]:
    """What the operator emits, restarted after each part."""
    chain = Chain(operator, compat=compat)
    rows = [one for part in parts for one in chain.rows(part)]
    assert all(row["_live"] is (row["v0"] is not None) for _, row in rows)
    last = {(row["_k0"], row["_k1"]): shown(row["v0"]) for _, row in rows}
    assert recalled(chain) == {rank: value for rank, value in last.items() if value is not None}
    return [(step, (row["_k0"], row["_k1"]), shown(row["v0"]), row["_ts"]) for step, row in rows]


def recalled(chain: Chain) -> dict[tuple[str | None, int], tuple[str, ...] | None]:
    """The ranks that are read from the state."""
    operator, store = chain.stages[1]
    assert isinstance(operator, Top)
    state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d")
    rows = [row for frame in operator.recalled(state.trace) for row in frame.to_dicts()]
    found = {(row["_f0"], row[RANK]): shown(row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("compat", [False, True])
@given(
    records=RECORDS,
    places=st.sets(st.integers(2, 60)),
    n=st.integers(1, 4) | st.just(50),
    orders=ORDERS,
    small=st.integers(0, 8),
    heads=st.integers(1, 3),
    final=st.booleans(),
    part_bytes=st.sampled_from([1, 1000, 1 << 20]),
)
def test_every_emission_is_that_of_the_reference(
    records: Any,
    places: set[int],
    n: int,
    orders: Orders,
    small: int,
    heads: int,
    part_bytes: int,
    *,
    final: bool,
    compat: bool,
) -> None:
    log = [(*one[:3], one[4] * 7 % 10, one[4]) for one in stepped(records)]
    parts = cut(log, places)
    expected = told(log, n, orders, compat=compat)
    in_parts = patch.object(working, "PART_BYTES", part_bytes), patch.object(topping, "_FEW_RANKS", 0)
    with in_parts[0], in_parts[1], patch.multiple(heads_of_groups, SMALL_GROUP=small, LEAST_HEADS=heads):
        got = found(top(n, orders, compat=compat, final=final), parts, compat=compat)
    if final:
        got, expected = [one[:3] for one in got], last_ones([one[:3] for one in expected], parts)
    assert sorted(got, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("seed", quick_first(range(8), 2))
def test_groups_grow_and_shrink_at_their_first_rows(seed: int, *, compat: bool) -> None:
    """Mostly the rows go that are shown: heads run out, are chosen anew, become many, and none."""
    draw = random.Random(seed)
    n, heads = draw.randint(1, 4), draw.randint(1, 3)
    orders = [(name, draw.random() < 0.5) for name in draw.sample(sorted(COLUMNS), 2)]
    log = growing_and_shrinking(draw, orders)
    places = set(draw.sample(range(len(log)), 20))
    with patch.multiple(heads_of_groups, SMALL_GROUP=3 + heads, LEAST_HEADS=heads):
        got = found(top(n, orders, compat=compat), cut(log, places), compat=compat)
    assert got == told(log, n, orders, compat=compat)


def growing_and_shrinking(draw: random.Random, orders: Orders) -> list[Step]:
    rows: dict[str, dict[str, Any]] = {}
    log: list[Step] = []
    for number in range(90):
        value = {
            "c0": draw.choice([None, *range(-9, 10)]),
            "c1": draw.choice([None, 0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
            "c2": draw.choice([None, "", "a", "Z", "ä"]),
        }
        grows = not rows or draw.random() < (0.8 if number % 45 < 25 else 0.25)
        key = f"k{number}" if grows else draw.choice(by_rank(rows, orders)[:4])
        left = value if grows or draw.random() < 0.2 else None
        rows.pop(key, None)
        if left is not None:
            rows[key] = left
        log.append((key, None if left is None else "g", left, number, number))
    return log


def by_rank(rows: dict[str, dict[str, Any]], orders: Orders) -> list[str]:
    log = [(key, "g", value, 0, number) for number, (key, value) in enumerate(rows.items())]
    name, down = orders[0]
    there = [key for key, _, value, *_ in log if value[name] is not None]
    return sorted(there, key=lambda key: sort_key(rows[key][name]), reverse=down) or list(rows)


def row(number: int | None, text: str | None = None) -> dict[str, Any]:
    return {"c0": number, "c1": None, "c2": text}


def emitted(chain: Chain, *changes: tuple[str, dict[str, Any] | None]) -> list[tuple[int, Any]]:
    """(rank, integer or None for a tombstone) of a micro-batch of changes in group g, each a step."""
    log = [
        (key, None if value is None else "g", value, 1, step) for step, (key, value) in enumerate(changes, 1)
    ]
    return [(one["_k1"], None if one["v0"] is None else one["v0"]["c0"]) for _, one in chain.rows(log)]


def test_only_the_ranks_that_change_are_emitted() -> None:
    chain = Chain(top(3, [("c0", True)]), compat=False)
    assert emitted(chain, ("a", row(5))) == [(1, 5)]
    assert emitted(chain, ("b", row(3)), ("c", row(1)), ("d", row(0))) == [(2, 3), (3, 1)]
    assert emitted(chain, ("e", row(4))) == [(2, 4), (3, 3)]
    assert emitted(chain, ("d", row(-1))) == []
    assert emitted(chain, ("a", row(5, "b"))) == [], "its order and its value are the same"
    assert emitted(chain, ("a", None)) == [(1, 4), (2, 3), (3, 1)]
    assert emitted(chain, ("b", None), ("c", None)) == [(2, 1), (3, -1), (2, -1), (3, None)]


def test_of_equal_rows_the_first_is_before_and_one_written_again_comes_anew() -> None:
    chain = Chain(top(2, [("c2", True)]), compat=False)
    assert emitted(chain, ("a", row(1, "x")), ("b", row(2, "x"))) == [(1, 1), (2, 2)]
    assert emitted(chain, ("a", row(1, "x"))) == [(1, 2), (2, 1)]


@pytest.mark.parametrize("down", [False, True])
def test_nulls_are_last(*, down: bool) -> None:
    chain = Chain(top(2, [("c2", down)]), compat=False)
    assert emitted(chain, ("a", row(1, None)), ("b", row(2, "x"))) == [(1, 1), (1, 2), (2, 1)]


# What is read


class WatchedTop(Watched):
    """A chain that notes how many rows of groups it reads, and of heads."""

    def __init__(self, operator: Top) -> None:
        Chain.__init__(self, operator, compat=False)
        self.read: Counter[str] = Counter()

    def of(self, key: str, value: dict[str, Any] | None) -> tuple[int, int]:
        """How many rows of groups, and heads, a change reads."""
        self.read.clear()
        emitted(self, (key, value))
        return self.read["rows of groups"], self.read["heads"]


def test_a_change_reads_the_heads_alone_until_they_have_run_out() -> None:
    with patch.multiple(heads_of_groups, SMALL_GROUP=20, LEAST_HEADS=3):
        chain = WatchedTop(top(3, [("c0", False)]))
        emitted(chain, *((f"k{number}", row(number)) for number in range(100)))
        assert chain.of("k50", row(1000)) == (0, 12), "10 heads to go, and 2 for the other ranks"
        for number in range(9):
            assert chain.of(f"k{number}", None) == (0, 12 - number)
        assert chain.of("k9", None) == (91, 3), "two heads are left, for three ranks"
        assert chain.of("k10", None) == (0, 11)


@pytest.mark.parametrize("n", [2**62, 2**63 - 1])
def test_more_ranks_than_any_group_has_rows_are_all_rows(n: int) -> None:
    groups = {f"k{number}": "abcdefgh"[number % 8] for number in range(9600)}
    log: list[Step] = [(key, group, row(number), 1, 1) for number, (key, group) in enumerate(groups.items())]
    log += [(key, None, None, 2, 2) for key in list(groups)[:9200]]
    wide, narrow = (Chain(top(one, [("c0", True)], final=True), compat=False) for one in (n, 2000))
    for part in (log[:8], log[8:9600], log[9600:]):
        assert wide.rows(part) == narrow.rows(part)
    assert recalled(wide) == recalled(narrow)
    assert len(recalled(wide)) == 400
