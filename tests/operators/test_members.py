"""Aggregates that go by heads, with few heads and small groups, against the record-at-a-time reference."""

from __future__ import annotations

import math
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.errors import ExpressionError, FunctionValueError
from tablestream.operators.operator import Context
from tablestream.operators.reduce import heads as heads_of_groups
from tablestream.operators.reduce import parts as working
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.bits import AllOrAny
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.counted import CountDistinct, OfCounts, value_bytes
from tablestream.operators.reduce.own import Anew, Subtracting
from tablestream.operators.reduce.powers import Variance
from tablestream.operators.reduce.ranked_counts import Mode, Percentile
from tablestream.operators.reduce.ranking import Order
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.trace_spec import numbered_traces
from tests.marks import quick_first
from tests.operators.test_groups import GROUPS, KEYS, Chain, cut, in_compat
from tests.reference.groups import Aggregate as TwinAggregate
from tests.reference.groups import GroupBy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestream.state.trace import Trace

NESTED = pl.Struct({"x": pl.Float64(), "y": pl.List(pl.String())})
COLUMNS: dict[str, pl.DataType] = {
    "c0": pl.Int64(),
    "c1": pl.Float64(),
    "c2": pl.String(),
    "c3": pl.Decimal(38, 3),
    "c4": pl.Binary(),
    "c5": NESTED,
    "c6": pl.Boolean(),
    "c7": pl.Struct({"x": pl.Float64(), "y": pl.Struct({"z": pl.String()})}),
}
VALUE = pl.Struct(COLUMNS)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf])
VALUES = st.fixed_dictionaries(
    {
        "c0": st.none() | st.integers(-3, 3),
        "c1": st.none() | FLOATS,
        "c2": st.none() | st.sampled_from(["", "a", "Z", "ä", "\U0001f600", "\uffff"]),
        "c3": st.none() | st.sampled_from([Decimal("0.100"), Decimal("-7.000"), Decimal("9" * 35 + ".999")]),
        "c4": st.none() | st.sampled_from([b"", b"\x00", b"\xff", b"a"]),
        "c5": st.none()
        | st.builds(
            lambda x, y: {"x": x, "y": y},
            st.none() | FLOATS,
            st.none() | st.lists(st.none() | st.sampled_from(["", "a"]), max_size=2),
        ),
        "c6": st.none() | st.booleans(),
        "c7": st.none()
        | st.builds(
            lambda x, z: {"x": x, "y": z and {"z": z[0]}},
            st.none() | st.sampled_from([0.0, 1.5, math.nan, math.inf]),
            st.none() | st.tuples(st.none() | st.sampled_from(["", "a", "\U0001f600", "\uffff"])),
        ),
    }
)

ORDERED = (Kind.MIN, Kind.MAX)
OF_ROWS: list[AnyFunction] = [
    Collected(kind, name, dtype)
    for name, dtype in COLUMNS.items()
    for kind in (*(ORDERED if name != "c5" else ()), Kind.FIRST, Kind.LAST)
]
OF_ROWS += [CountDistinct(name, dtype) for name, dtype in COLUMNS.items()]
OF_ROWS += [Mode(name, dtype) for name, dtype in COLUMNS.items() if name not in {"c4", "c5"}]
OF_ROWS += [
    Percentile(name, COLUMNS[name], share) for name in ("c0", "c1", "c3") for share in (0.5, 0.0, 0.3)
]
OF_ROWS += [
    Variance(name, COLUMNS[name], population=population, root=root)
    for name in ("c0", "c1", "c3")
    for population in (False, True)
    for root in (False, True)
]
OF_ROWS += [AllOrAny("c6", every=every) for every in (False, True)]
OF_ROWS += [
    Collected(kind, "c2", pl.String(), by=by)
    for kind in (Kind.MIN_BY, Kind.MAX_BY)
    for by in ("c0", "c1", "c2", "c7")
]


class Total:
    """A sum that has its number of values, too."""

    def zero(self) -> Any:
        return {"n": 0, "total": 0}

    def add(self, state: Any, value: int) -> Any:
        return {"n": state["n"] + 1, "total": state["total"] + value}

    def subtract(self, state: Any, value: int) -> Any:
        return state["n"] - 1, state["total"] - value

    def finish(self, state: Any) -> Any:
        return [state["n"], state["total"]]


class Span(Total):
    """The texts' lengths, from the least to the greatest."""

    def zero(self) -> Any:
        return []

    def add(self, state: Any, value: Any) -> Any:
        return sorted([*state, len(value)])

    def finish(self, state: Any) -> Any:
        return state


class Digits(Span):
    """The same of numbers."""

    def add(self, state: Any, value: Any) -> Any:
        return super().add(state, str(value))


NUMBERS = pl.List(pl.Int64())
OF_ROWS += [
    Subtracting("c0", pl.Int64(), NUMBERS, pl.Struct({"n": pl.Int32(), "total": pl.Int64()}), "own", Total()),
    Anew("c2", pl.String(), NUMBERS, NUMBERS, "anew", Span()),
]
LISTS: list[AnyFunction] = [
    Collected(kind, name, pl.List(dtype))
    for name, dtype in COLUMNS.items()
    for kind in (Kind.COLLECT_LIST, Kind.COLLECT_SET)
]
LISTS += [
    Collected(Kind.STRING_AGG, "c2", pl.String(), by, descending, "; ")
    for by in (None, "c0", "c1", "c7")
    for descending in (False, True)
]

#: (key, (group, value) or a tombstone, whether it is of the step before)
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abcdefghijklmn"),
        st.one_of(st.none(), *[st.tuples(st.sampled_from("ggggh"), VALUES)] * 3),
        st.booleans(),
    ),
    max_size=60,
)

Step = tuple[str, str | None, "dict[str, Any] | None", int, int]


def stepped(records: Sequence[tuple[str, tuple[str, dict[str, Any]] | None, bool]]) -> list[Step]:
    """Number the steps, and tell the times by them."""
    step = 0
    found: list[Step] = []
    for key, change, joins in records:
        step += not (joins and found)
        group, value = change or (None, None)
        found.append((key, group, value, step, step))
    return found


def told(log: Sequence[Step], functions: Sequence[AnyFunction], *, compat: bool) -> list[tuple[Any, ...]]:
    """What the reference tells: (step, group, results or None)."""
    model = TwinAggregate(
        tuple,
        lambda _, row, rows: (*rows, row),
        lambda _, row, rows: tuple(one for one in rows if one[1] != row[1]),
        compat=compat,
    )
    groups = GroupBy(lambda value, _: (value[0], value), compat=compat)
    steps: dict[int, list[Any]] = {}
    for key, group, value, ts, step in log:
        message = None if value is None else (group, key, value)
        steps.setdefault(step, []).append((0, key, message, ts))
    return [
        (step, group, None if rows is None else tuple(shown(one, rows) for one in functions))
        for step, messages in steps.items()
        for group, rows, _ in model.step(groups.step(messages))
    ]


OneColumn: TypeAlias = Collected | OfCounts | AllOrAny | Variance | Subtracting


def shown(function: AnyFunction, rows: Sequence[tuple[str, str, dict[str, Any]]]) -> Any:
    """Make an aggregate the slow way; rows stand in the order in which they came."""
    assert isinstance(function, OneColumn)
    values = [value[function.column] for *_, value in rows]
    present = [value for value in values if value is not None]
    if isinstance(function, Collected):
        orders = [value[function.by] for *_, value in rows] if function.by else []
        return collected(function, values, present, orders)
    if isinstance(function, AllOrAny):
        return (all if function.every else any)(present) if present else None
    if isinstance(function, Variance):
        return variance(present, function)
    if isinstance(function, Subtracting):
        return [len(present), sum(present)]
    return of_counts(function, present)


def of_counts(function: OfCounts, present: Sequence[Any]) -> Any:
    """An aggregate of how many rows have each value."""
    if isinstance(function, CountDistinct):
        return len({same(value) for value in present})
    if isinstance(function, Anew):
        return sorted(map(len, present))
    if isinstance(function, Mode):
        by_text = {same(value): value + 0.0 if isinstance(value, float) else value for value in present}
        counts = Counter(map(same, present))
        ranked = sorted(counts, key=lambda text: (-counts[text], sort_key(by_text[text])))
        return by_text[ranked[0]] if ranked else None
    assert isinstance(function, Percentile)
    if not present:
        return None
    ordered = sorted(present, key=sort_key)
    place = function.share * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[math.ceil(place)]
    if same(low) == same(high):
        return float(low) + 0.0
    return (math.ceil(place) - place) * float(low) + (place - int(place)) * float(high)


def variance(present: Sequence[Any], function: Variance) -> float | None:
    degrees = len(present) - (not function.population)
    if degrees <= 0:
        return None
    if any(not math.isfinite(value) for value in present):
        return math.nan
    mean = sum(map(Fraction, present)) / len(present)
    found = float(sum((Fraction(value) - mean) ** 2 for value in present) / degrees)
    return math.sqrt(found) if function.root else found


def collected(function: Collected, values: list[Any], present: list[Any], orders: list[Any]) -> Any:
    """An aggregate that needs the rows of its group."""
    if function.kind in {Kind.FIRST, Kind.LAST}:
        return (values or [None])[0 if function.kind is Kind.FIRST else -1]
    if function.kind in {Kind.MIN, Kind.MAX}:
        found = (min if function.kind is Kind.MIN else max)(present, key=sort_key, default=None)
        return found + 0.0 if isinstance(found, float) else found
    if function.kind is Kind.COLLECT_LIST:
        return present
    if function.kind in {Kind.MIN_BY, Kind.MAX_BY}:
        newest = function.kind is Kind.MAX_BY
        pairs = [pair for pair in zip(orders, values, strict=True) if pair[0] is not None]
        best = (max if newest else min)(
            pairs[::-1] if newest else pairs, key=lambda pair: sort_key(pair[0]), default=(None, None)
        )
        return best[1]
    if function.kind is Kind.STRING_AGG:
        pairs = list(zip(orders or [0] * len(values), values, strict=True))
        known = [pair for pair in pairs if pair[0] is not None]
        known.sort(key=lambda pair: sort_key(pair[0]), reverse=function.descending and bool(orders))
        texts = [
            text for _, text in (*known, *(pair for pair in pairs if pair[0] is None)) if text is not None
        ]
        return "; ".join(texts) if texts else None
    texts = [same(value) for value in present]  # a value stands where it comes first
    return [present[n] for n, one in enumerate(texts) if one not in texts[:n]]


def sort_key(value: Any) -> Any:
    """NaN is the greatest, text sorts by its bytes; a struct by its fields, of which null is the least."""
    if isinstance(value, dict):
        return [(part is not None, 0 if part is None else sort_key(part)) for part in value.values()]
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value.encode() if isinstance(value, str) else value


def same(value: Any) -> str:
    """A text that equal values share: 0.0 is -0.0, and NaN itself."""
    if isinstance(value, dict):
        return str([same(part) for part in value.values()])
    if isinstance(value, list):
        return str([same(part) for part in value])
    return repr(value + 0.0 if isinstance(value, float) else value)


def last_ones(outputs: Sequence[Any], parts: Sequence[Sequence[Step]]) -> list[Any]:
    """The last output of each group and part, without tombstones of groups that were not there."""
    found: list[Any] = []
    there: set[Any] = set()
    for part in parts:
        steps = {step for *_, step in part}
        last = {group: (step, group, value) for step, group, value in outputs if step in steps}
        found += [one for group, one in last.items() if one[2] is not None or group in there]
        there = {group for group in there | set(last) if last.get(group, (0, 0, 0))[2] is not None}
    return found


@contextmanager
def few_heads(small: int, heads: int) -> Iterator[None]:
    """Small groups have heads, and only a few."""
    limits: dict[str, Any] = {"SMALL_GROUP": small, "LEAST_HEADS": heads}
    with patch.multiple(heads_of_groups, **limits):
        yield


FUNCTIONS = st.lists(st.sampled_from(OF_ROWS), min_size=1, max_size=5)


@pytest.mark.parametrize("compat", [False, True])
@given(
    records=RECORDS,
    places=st.sets(st.integers(2, 60)),
    functions=FUNCTIONS | st.lists(st.sampled_from([*OF_ROWS, *LISTS]), min_size=1, max_size=3),
    small=st.integers(0, 8),
    heads=st.integers(1, 3),
    final=st.booleans(),
    part_bytes=st.sampled_from([1, 300, 1 << 20]),
)
def test_every_emission_is_that_of_the_reference(
    records: Any,
    places: set[int],
    functions: list[AnyFunction],
    small: int,
    heads: int,
    part_bytes: int,
    *,
    final: bool,
    compat: bool,
) -> None:
    log = stepped(records)
    parts = cut(log, places)
    expected = told(log, functions, compat=compat)
    if final:
        expected = last_ones(expected, parts)
    operator = Aggregate(
        KEYS, GROUPS, VALUE, tuple(functions), keep_empty=compat, atomic=not compat, final=final
    )
    chain = Chain(operator, compat=compat)
    in_parts = patch.object(working, "PART_BYTES", part_bytes)
    with in_parts, few_heads(small, heads):
        found = [
            (step, group, None if value is None else tuple(value.values()))
            for part in parts
            for step, group, value, _ in chain.run(part)
        ]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("seed", quick_first(range(8), 2))
def test_groups_grow_and_shrink_at_their_first_rows(seed: int, *, compat: bool) -> None:
    """Mostly the rows go that a function shows: heads run out, are chosen anew, become many, and none."""
    draw = random.Random(seed)
    functions, heads = draw.sample(OF_ROWS, 2), draw.randint(1, 3)
    log = random_log(draw, functions)
    chain = Chain(
        Aggregate(KEYS, GROUPS, VALUE, tuple(functions), keep_empty=compat, atomic=not compat), compat=compat
    )
    places = set(draw.sample(range(len(log)), 20))
    with few_heads(3 + heads, heads):
        found = [
            (step, group, None if value is None else tuple(value.values()))
            for part in cut(log, places)
            for step, group, value, _ in chain.run(part)
        ]
    assert list(map(repr, found)) == list(map(repr, told(log, functions, compat=compat)))


RANKED = [Mode("c0", pl.Int64()), *(Percentile("c0", pl.Int64(), share) for share in (0.0, 0.35, 0.5, 1.0))]


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_picked_moves_away_from_its_heads(seed: int, *, compat: bool) -> None:
    """Many values, few heads: values come and go below them, among them and above them."""
    draw = random.Random(seed)
    rows: dict[str, dict[str, Any]] = {}
    log: list[Step] = []
    for n in range(150):
        middle = 20 * (n // 30 % 3)
        value = {**value_of(None), "c0": draw.choice([None, *[draw.randint(middle, middle + 25)] * 9])}
        going = [key for key in rows if not rows[key]["c0"] or draw.random() < 0.5]
        key = draw.choice(going) if going and draw.random() < 0.45 else f"k{n}"
        rows.pop(key, None)
        if not key.endswith(str(n)):
            log.append((key, None, None, n, n))
            continue
        rows[key] = value
        log.append((key, "g", value, n, n))
    chain = Chain(
        Aggregate(KEYS, GROUPS, VALUE, tuple(RANKED), keep_empty=compat, atomic=not compat), compat=compat
    )
    with few_heads(4, 2):
        found = [
            (step, group, None if value is None else tuple(value.values()))
            for part in cut(log, set(range(0, 150, 5)))
            for step, group, value, _ in chain.run(part)
        ]
    assert list(map(repr, found)) == list(map(repr, told(log, RANKED, compat=compat)))


@pytest.mark.parametrize("places", [[], [1], [1, 2]])
def test_what_was_taken_away_before_it_came_is_not_forgotten(places: list[int]) -> None:
    """In compat."""
    lengths = Anew("c0", pl.Int64(), NUMBERS, NUMBERS, "anew", Digits())
    functions = [DISTINCT, *RANKED[:2], lengths]
    moves = [(5, None), (None, 5), (None, 6), (None, 5)]
    expected = [(0, None, None, []), (0, None, None, []), (1, 6, 6.0, [1]), (2, 5, 5.0, [1, 1])]
    assert in_compat(functions, moves, places) == expected


def random_log(draw: random.Random, functions: Sequence[AnyFunction]) -> list[Step]:
    """Rows that come, change and go in one group, which is now growing, now shrinking."""
    rows: dict[str, dict[str, Any]] = {}
    log: list[Step] = []
    for n in range(80):
        growing = 0.8 if n % 40 < 20 else 0.25
        value: dict[str, Any] | None = {name: draw.choice(some) for name, some in SOME.items()}
        if draw.random() < growing or not rows:
            key = f"k{n}"
        else:
            key = chosen(draw, rows, draw.choice(functions))
            value = value if draw.random() < 0.2 else None
        rows.pop(key, None)
        if value is not None:
            rows[key] = value
        log.append((key, None if value is None else "g", value, n, n))
    return log


SOME: dict[str, list[Any]] = {
    "c0": [None, *range(-9, 10)],
    "c1": [None, 0.0, -0.0, 1.5, -1.5, 7.25, math.nan, math.inf, -math.inf],
    "c2": [None, "", "a", "ab", "Z", "ä", "\U0001f600", "\uffff"],
    "c3": [None, *(Decimal(n).scaleb(-3) for n in range(-9, 10)), Decimal("9" * 35 + ".999")],
    "c4": [None, b"", b"\x00", b"\x00\x00", b"\xff", b"a"],
    "c5": [None, {"x": -0.0, "y": None}, {"x": 0.0, "y": None}, {"x": math.nan, "y": ["", None]}],
    "c6": [None, False, True],
    "c7": [None, *({"x": x, "y": y} for x in (None, 1.5, math.nan) for y in (None, {"z": None}, {"z": "a"}))],
}


def chosen(draw: random.Random, rows: dict[str, dict[str, Any]], function: AnyFunction) -> str:
    """A row that a function shows, or any."""
    if draw.random() < 0.2:
        return draw.choice(list(rows))
    by_arrival = list(rows)
    assert isinstance(function, OneColumn)
    if not isinstance(function, Collected):
        present = [key for key in by_arrival if rows[key][function.column] is not None]
        present.sort(key=lambda key: sort_key(rows[key][function.column]) if function.column != "c5" else 0)
        return present[len(present) // 2] if present else by_arrival[0]
    if function.kind in {Kind.MIN, Kind.MAX}:
        present = [key for key in by_arrival if rows[key][function.column] is not None] or by_arrival
        choose = min if function.kind is Kind.MIN else max
        return choose(
            present,
            key=lambda key: 0 if rows[key][function.column] is None else sort_key(rows[key][function.column]),
        )
    return by_arrival[0 if function.kind is Kind.FIRST else -1]


def value_of(number: int | None) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "c0": number}


class Watched(Chain):
    """A chain that notes how many rows of groups it reads, and of heads."""

    def __init__(self, *functions: AnyFunction) -> None:
        super().__init__(Aggregate(KEYS, GROUPS, VALUE, functions), compat=False)
        self.read: Counter[str] = Counter()

    def _stage(self, number: int, frame: pl.DataFrame) -> pl.DataFrame:
        operator, store = self.stages[number]
        state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d")

        def trace(name: str) -> Trace:
            found = state.trace(name)
            lookup = found.lookup

            def watched(keys: pl.DataFrame) -> pl.DataFrame:
                rows = lookup(keys)
                self.read[name.partition(" by ")[0]] += rows.height
                return rows

            found.lookup = watched  # type: ignore[method-assign]
            return found

        emissions = list(operator.run([frame], Context(trace=trace, dropped=Counter())))
        state.commit()
        return pl.concat([emission.rows for emission in emissions])

    def reads(self, key: str, number: int | None, step: int) -> Counter[str]:
        """Let a row come, or go, and return what was read."""
        self.read.clear()
        value = None if number is None else value_of(number)
        self.run([(key, None if value is None else "g", value, step, step)])
        return self.read


MIN = Collected(Kind.MIN, "c0", pl.Int64())
DISTINCT = CountDistinct("c0", pl.Int64())


def filled(*functions: AnyFunction) -> Watched:
    """A group of a hundred rows, of which ten are heads."""
    chain = Watched(*functions)
    chain.run([(f"k{n}", "g", value_of(n), 1, n) for n in range(100)])
    return chain


@pytest.fixture
def _few_heads() -> Any:
    with few_heads(20, 3):
        yield


@pytest.mark.usefixtures("_few_heads")
def test_the_rows_of_a_large_group_are_read_when_its_heads_have_run_out() -> None:
    chain = filled(MIN)
    for n in range(9):
        read = chain.reads(f"k{n}", None, 100 + n)
        assert (read["rows of groups"], read["heads"]) == (0, 10 - n)
    assert chain.reads("k9", None, 110)["rows of groups"] == 91
    read = chain.reads("k10", None, 111)
    assert (read["rows of groups"], read["heads"]) == (0, 9)


@pytest.mark.usefixtures("_few_heads")
def test_changes_behind_the_bound_read_the_heads_alone_and_leave_them() -> None:
    chain = filled(MIN)
    for n in range(50, 60):
        read = chain.reads(f"k{n}", 1000 + n, n + 100)
        assert (read["rows of groups"], read["heads"]) == (0, 10)


@pytest.mark.usefixtures("_few_heads")
@pytest.mark.parametrize("function", [Mode("c0", pl.Int64()), Percentile("c0", pl.Int64(), 0.5)])
def test_values_far_from_the_picked_one_are_not_read(function: AnyFunction) -> None:
    chain = filled(function)
    for n in (*range(70, 80), *range(20, 30)):
        read = chain.reads(f"k{n}", None if n < 75 else 1000 + n, n + 100)
        assert read["values"] == 0
        assert 0 < read["heads of mode_c0"] + read["heads of percentile_0.5_c0"] <= 20


@pytest.mark.usefixtures("_few_heads")
def test_heads_that_become_many_are_trimmed() -> None:
    chain = filled(MIN)
    for n in range(10):
        assert chain.reads(f"new{n}", -n, 200 + n)["heads"] == 10 + n
    assert chain.reads("newer", -100, 300)["heads"] == 20
    assert chain.reads("newest", -200, 301)["heads"] == 10


@pytest.mark.usefixtures("_few_heads")
def test_a_group_whose_heads_run_out_when_it_is_small_has_none() -> None:
    chain = filled(MIN)
    chain.run([(f"k{n}", None, None, 2, 100 + n) for n in range(10, 92)])
    for n in range(3):  # a group of 18 rows has 4 heads
        assert chain.reads(f"k{n}", None, 300 + n)["rows of groups"] == 0
    assert chain.reads("k3", None, 310)["rows of groups"] == 15
    read = chain.reads("k95", None, 311)
    assert (read["rows of groups"], read["heads"]) == (14, 0)


@pytest.mark.parametrize("dtype", [pl.Float64(), pl.Float32()])
@pytest.mark.parametrize("kind", [Kind.MIN, Kind.MAX])
def test_the_least_and_the_greatest_value_is_never_minus_zero(kind: Kind, dtype: pl.DataType) -> None:
    value = pl.Struct({"c0": dtype})
    chain = Chain(Aggregate(KEYS, GROUPS, value, (Collected(kind, "c0", dtype),)), compat=False)
    rows = [("a", -0.0), ("b", None), ("c", -0.0), ("c", math.nan)]
    found = chain.run([(key, "g", {"c0": number}, 1, n) for n, (key, number) in enumerate(rows)])
    nan = "0.0" if kind is Kind.MIN else "nan"
    assert [repr(results["c0"]) for _, _, results, _ in found] == ["0.0", "0.0", "0.0", nan]


@pytest.mark.usefixtures("_few_heads")
def test_with_a_list_all_rows_are_read_and_no_heads_are_kept() -> None:
    functions = (MIN, Collected(Kind.COLLECT_LIST, "c0", pl.List(pl.Int64())))
    assert len(Aggregate(KEYS, GROUPS, VALUE, functions).traces) == 2
    chain = filled(*functions)
    assert chain.reads("k50", 7, 200) == {"grouped rows": 1, "groups": 1, "rows of groups": 100}


def test_different_values_are_counted_without_the_rows() -> None:
    chain = filled(DISTINCT, DISTINCT)
    assert chain.reads("k50", 7, 200) == {"grouped rows": 1, "groups": 1, "values of c0": 2}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-7, b"-7"),
        (0.5, b"0.5"),
        (-0.0, b"0.0"),
        (math.nan, b'"NaN"'),
        (math.inf, b"Infinity"),
        ("ä", b"\xc3\xa4"),
        (b"\xff", b"\xff"),
        (Decimal("0E-7"), b'"0/1"'),
        (Decimal("1.50"), b'"3/2"'),
        ([{"a": b"\x01", "b": None}, True], b'[[["a","01"],["b",null]],true]'),
    ],
)
def test_a_value_is_stored_as_it_always_was(value: Any, expected: bytes) -> None:
    """The bytes are in states: other ones make values there that nothing finds."""
    assert value_bytes(value) == expected


def test_a_bound_holds_only_what_its_order_compares() -> None:
    """It outlives its row: what a deleted row had besides must not stay in the state."""
    rows = pl.DataFrame({"_turn": [7], "v": [{"c0": 1, "c1": "secret"}]})
    by_value = Order(("c0",), (False,), newest_first=False)
    assert by_value.compared(rows).rows() == [(7, {"c0": 1, "c1": None})]
    by_arrival = Order((), (), newest_first=True)
    assert by_arrival.compared(rows).rows() == [(7, {"c0": None, "c1": None})]
    assert by_value.compared(rows).schema == rows.schema


@pytest.mark.parametrize(("function", "own"), [(OF_ROWS[-2], Total), (OF_ROWS[-1], Span)])
def test_a_method_that_raises_names_its_call_and_the_group(function: AnyFunction, own: type[Total]) -> None:
    def add(*_: Any) -> Any:
        raise ValueError("odd")

    methods = type("Odd", (own,), {"add": add})()
    function = replace(function, methods=methods)  # type: ignore[type-var]
    chain = Chain(Aggregate(KEYS, GROUPS, VALUE, (function,)), compat=False)
    with pytest.raises(ExpressionError, match=r"add\(.*\) for the group \(\"g\"\) raised ValueError: odd"):
        chain.run([("a", "g", {**value_of(3), "c2": "three"}, 1, 1)])


def test_a_state_that_does_not_fit_names_the_call() -> None:
    class Text(Total):
        def zero(self) -> Any:
            return "none"

    function = replace(OF_ROWS[-2], methods=Text())  # type: ignore[type-var]
    chain = Chain(Aggregate(KEYS, GROUPS, VALUE, (function,)), compat=False)
    with pytest.raises(FunctionValueError, match=r"returned 'none' \(str\).*zero\(\) for the group"):
        chain.run([("a", "g", value_of(3), 1, 1)])
