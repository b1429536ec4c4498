"""Grouping: both halves together, against the record-at-a-time reference, cut anywhere."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.base.data_text import data_left_out
from tablestream.errors import ExpressionError, FunctionValueError, TotalOverflowError
from tablestream.operators.cells import cells, column
from tablestream.operators.operator import NUMBER, PARENT, Context, Operator
from tablestream.operators.reduce import exact_floats
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.bits import AllOrAny, Bits
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.counted import CountDistinct
from tablestream.operators.reduce.fold import Fold, UserFunctions
from tablestream.operators.reduce.powers import Kurtosis, OfPairs, Variance
from tablestream.operators.reduce.ranked_counts import Mode, Percentile
from tablestream.operators.reduce.regroup import Regroup
from tablestream.operators.reduce.top import Top
from tablestream.operators.reduce.totals import Count, Sum
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces
from tests import reference
from tests.reference.groups import Aggregate as TwinAggregate
from tests.reference.groups import GroupBy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEYS, GROUPS = pl.Schema({"_k0": pl.String()}), pl.Schema({"_f0": pl.String()})
INTS = pl.Struct({"c0": pl.Int64()})

#: (key, (group or null, number or null) or a tombstone, time, whether it is of the step before)
Record = tuple[str, tuple[str | None, int | None] | None, int, bool]
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.none() | st.tuples(st.sampled_from(["g", "h", "i", None]), st.none() | st.integers(-3, 3)),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=25,
)


class Chain:
    """`Regroup` and what comes behind it, with their state."""

    def __init__(self, aggregate: Aggregate | Fold | Top, *, compat: bool) -> None:
        self.compat = compat
        self.stages: list[tuple[Operator, MemoryStore]] = [
            (self._regroup(aggregate), MemoryStore()),
            (aggregate, MemoryStore()),
        ]

    def _regroup(self, aggregate: Aggregate | Fold | Top) -> Regroup:
        keys = aggregate.needs_row_keys
        return Regroup(KEYS, GROUPS, aggregate.value, atomic=not self.compat, sends_keys=keys)

    def run(self, records: Sequence[tuple[str, str | None, dict[str, Any] | None, int, int]]) -> list[Any]:
        """Work off (key, group, value, time, step) as one micro-batch; return (step, group, values, time)."""
        told = [(step, row["_k0"], row["v0"], row["_ts"]) for step, row in self.rows(records)]
        self._check_recalled({group: (value, ts) for _, group, value, ts in told})
        return told

    def rows(
        self, records: Sequence[tuple[str, str | None, dict[str, Any] | None, int, int]]
    ) -> list[tuple[int, dict[str, Any]]]:
        """Do so, and return what is emitted, each with its step."""
        rows = [
            {
                "_kh": hash_of(key),
                "_k0": key,
                "_ts": ts,
                "_live": value is not None,
                "_fh": None if value is None or (group is None and self.compat) else hash_of(group),
                "_f0": group,
                "v": value,
                "_seq": seq,
                "_step": step,
            }
            for seq, (key, group, value, ts, step) in enumerate(records, start=1)
        ]
        (schema,) = self.stages[0][0].inputs
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        steps = {seq: record[4] for seq, record in enumerate(records, start=1)}
        messages = self._stage(0, frame).sort(PARENT, NUMBER)
        step = pl.Series([steps[parent] for parent in messages[PARENT]], dtype=pl.Int64)
        numbered = messages.drop(PARENT, NUMBER).with_columns(
            pl.int_range(1, 1 + pl.len(), dtype=pl.Int64).alias("_seq"), step.alias("_step")
        )
        results = self._stage(1, numbered)
        results = results.sort(PARENT, *(name for name in (NUMBER,) if name in results.columns))
        return [(step[row[PARENT] - 1], row) for row in results.to_dicts()]

    def _check_recalled(self, last: dict[str | None, Any]) -> None:
        """What is read from the state is what was told last."""
        operator, store = self.stages[1]
        if isinstance(operator, Aggregate):
            state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d")
            rows = [row for frame in operator.recalled(state.trace) for row in frame.to_dicts()]
            found = {row["_f0"]: (row["v"], row["_ts"]) for row in rows}
            assert len(found) == len(rows)
            for group, (value, ts) in last.items():
                assert repr(found.get(group)) == repr(None if value is None else (value, ts))

    def _stage(self, number: int, frame: pl.DataFrame) -> pl.DataFrame:
        operator, store = self.stages[number]
        state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d")
        emissions = list(operator.run([frame], Context(trace=state.trace, dropped=Counter())))
        state.commit()
        return pl.concat([emission.rows for emission in emissions])


def in_compat(
    functions: Sequence[AnyFunction],
    moves: Sequence[tuple[int | None, int | None]],
    places: Sequence[int] = (),
) -> list[tuple[Any, ...]]:
    """The results after each message to one group, which takes a number away and adds one, in compat, cut at places.

    With Kafka Streams' defects a number can be taken away that is not there, or not yet.
    """
    operator = Aggregate(KEYS, GROUPS, INTS, tuple(functions), keep_empty=True, atomic=False)
    (schema,), store, found = operator.inputs, MemoryStore(), []
    keys = {"_kh": 1, "_k0": "a"} if operator.needs_row_keys else {}
    for begin, end in pairwise([0, *places, len(moves)]):
        rows = [
            {"_fh": 7, "_f0": "g", **keys, "_ts": 1, "_was": old is not None, "_is": new is not None}
            | {"old": old and {"c0": old}, "v": new and {"c0": new}, "_seq": n, "_step": n}
            for n, (old, new) in enumerate(moves[begin:end], start=1)
        ]
        state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d")
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        for emission in operator.run([frame], Context(trace=state.trace, dropped=Counter())):
            found += [tuple(one.values()) for one in emission.rows["v0"].to_list()]
        state.commit()
    return found


def hash_of(text: str | None) -> int:
    """A hash under which some keys collide."""
    return 7 if text in {"a", "g", None} else sum(map(ord, text or ""))


def stepped(records: Sequence[Record]) -> list[tuple[str, str | None, dict[str, Any] | None, int, int]]:
    """Number the steps; a record of the step before has its number."""
    step = 0
    found: list[tuple[str, str | None, dict[str, Any] | None, int, int]] = []
    for key, value, ts, joins in records:
        step += not (joins and found)
        group, number = value if value is not None else (None, None)
        found.append((key, group, None if value is None else {"c0": number}, ts, step))
    return found


def twin(
    records: Sequence[tuple[str, str | None, dict[str, Any] | None, int, int]],
    aggregate: TwinAggregate,
    *,
    compat: bool,
) -> list[Any]:
    """The same by the reference: (step, group, aggregate, time)."""
    groups = GroupBy(lambda value, _: (value[0], value), compat=compat)
    steps: dict[int, list[Any]] = {}
    for key, group, value, ts, step in records:
        steps.setdefault(step, []).append((0, key, None if value is None else (group, value["c0"]), ts))
    return [
        (step, *output)
        for step, messages in steps.items()
        for output in aggregate.step(groups.step(messages))
    ]


def cut(records: list[Any], places: set[int]) -> list[list[Any]]:
    """Cut between steps."""
    parts: list[list[Any]] = [[]]
    for before, record in zip([None, *records], records, strict=False):
        if before is not None and before[4] != record[4] and record[4] in places:
            parts.append([])
        parts[-1].append(record)
    return parts


def both(
    records: Sequence[Record],
    places: set[int],
    made: Aggregate | Fold,
    model: TwinAggregate,
    show: Callable[[Any], Any],
    *,
    compat: bool,
) -> None:
    """Compare whole and cut; within a step groups may come in any order."""
    log = stepped(records)
    expected = sorted(((s, g, show(v), t) for s, g, v, t in twin(log, model, compat=compat)), key=repr)
    chain = Chain(made, compat=compat)
    found = [
        (step, group, None if value is None else tuple(value.values()), ts)
        for part in cut(log, places)
        for step, group, value, ts in chain.run(part)
    ]
    assert sorted(found, key=repr) == expected


def declared(*, compat: bool, final: bool = False) -> Aggregate:
    """A bit of everything."""
    functions: tuple[AnyFunction, ...] = (
        Count(),
        Count("c0"),
        Sum("c0", pl.Int64(), pl.Int64()),
        Sum("c0", pl.Int64(), pl.Float64(), average=True),
        *(Collected(kind, "c0", pl.Int64()) for kind in (Kind.MIN, Kind.MAX, Kind.FIRST, Kind.LAST)),
        Collected(Kind.COLLECT_LIST, "c0", pl.List(pl.Int64())),
        CountDistinct("c0", pl.Int64()),
    )
    return Aggregate(KEYS, GROUPS, INTS, functions, keep_empty=compat, atomic=not compat, final=final)


def summed_up(values: tuple[int | None, ...] | None) -> tuple[Any, ...] | None:
    """What `declared` gives for values in the order in which their rows came."""
    if values is None:
        return None
    present = [value for value in values if value is not None]
    return (
        len(values),
        len(present),
        sum(present) if present else None,
        sum(present) / len(present) if present else None,
        min(present, default=None),
        max(present, default=None),
        next(iter(values), None),
        next(reversed(values), None),
        present,
        len(set(present)),
    )


def listed(*, compat: bool) -> TwinAggregate:
    """The reference's aggregate of (number, ...) in order."""

    def without(_: Any, row: Any, values: Any) -> Any:
        at = values.index(row[1])
        return values[:at] + values[at + 1 :]

    return TwinAggregate(tuple, lambda _, row, values: (*values, row[1]), without, compat=compat)


@pytest.mark.parametrize("compat", [False, True])
@given(records=RECORDS, places=st.sets(st.integers(2, 20)))
def test_declared_aggregates(records: list[Record], places: set[int], *, compat: bool) -> None:
    unordered = [
        (k, v if v is None else (v[0], None if v[1] is None else 2 * v[1] + (k > "b")), t, j)
        for k, v, t, j in records
    ]
    made, model = declared(compat=compat), listed(compat=compat)
    plain = {0, 1, 2, 3, 4, 5, 9}

    def show(values: Any) -> Any:
        return (
            values
            if values is None
            else tuple(x for n, x in enumerate(summed_up(values) or ()) if n in plain)
        )

    log = stepped(unordered)
    expected = sorted(((s, g, show(v), t) for s, g, v, t in twin(log, model, compat=compat)), key=repr)
    chain = Chain(made, compat=compat)
    found = [
        (s, g, None if v is None else tuple(x for n, x in enumerate(v.values()) if n in plain), t)
        for part in cut(log, places)
        for s, g, v, t in chain.run(part)
    ]
    assert sorted(found, key=repr) == expected


def concatenated(*, compat: bool) -> tuple[Fold, TwinAggregate]:
    """A function whose order shows, in both."""
    user = UserFunctions(
        initializer=lambda: "0",
        adder=lambda _, row, text: f"{text}+{row.number}" if row.number != 3 else None,
        subtractor=lambda _, row, text: f"{text}-{row.number}",
        key=("group",),
        row=("number",),
        aggregate=("text",),
    )
    made = Fold(
        KEYS, GROUPS, INTS, pl.Struct({"c0": pl.String()}), user, keep_empty=compat, atomic=not compat
    )
    model = TwinAggregate(
        lambda: "0",
        lambda _, row, text: f"{text}+{row[1]}" if row[1] != 3 else None,
        lambda _, row, text: f"{text}-{row[1]}",
        compat=compat,
    )
    return made, model


@pytest.mark.parametrize("compat", [False, True])
@given(records=RECORDS, places=st.sets(st.integers(2, 20)))
def test_the_users_functions(records: list[Record], places: set[int], *, compat: bool) -> None:
    made, model = concatenated(compat=compat)
    both(records, places, made, model, lambda text: None if text is None else (text,), compat=compat)


def test_the_twin_is_the_exported_one() -> None:
    assert reference.Aggregate is TwinAggregate


def chain_of(function: Any, dtype: pl.DataType) -> Chain:
    return Chain(Aggregate(KEYS, GROUPS, pl.Struct({"c0": dtype}), (function,)), compat=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("a", 1e300), ("b", 1.0), ("a", None)], 1.0),
        ([("a", 0.1), ("b", 0.2), ("c", 0.3), ("a", None), ("b", None)], 0.3),
        ([("a", math.inf), ("b", 1.5), ("a", None)], 1.5),
        ([("a", math.inf), ("b", -math.inf)], math.nan),
        ([("a", math.nan), ("b", 2.0), ("a", None)], 2.0),
        ([("a", 5e-324), ("b", 1.7976931348623157e308), ("b", None)], 5e-324),
        ([("a", 1.7976931348623157e308), ("b", 1.7976931348623157e308)], math.inf),
    ],
)
def test_sums_of_floats_leave_no_residue(changes: list[tuple[str, float | None]], expected: float) -> None:
    for cuts in (1, len(changes)):
        chain = chain_of(Sum("c0", pl.Float64(), pl.Float64()), pl.Float64())
        log = [(k, "g", None if v is None else {"c0": v}, 1, n) for n, (k, v) in enumerate(changes, start=1)]
        parts = [log] if cuts == 1 else [[one] for one in log]
        *_, (_, _, value, _) = [row for part in parts for row in chain.run(part)]
        assert value["c0"] == expected or (math.isnan(expected) and math.isnan(value["c0"]))


@pytest.mark.parametrize("cuts", [1, 2])
def test_an_infinity_stays_until_its_row_goes_whatever_else_changes(cuts: int) -> None:
    rows = [("a", math.inf), ("b", 1.5), ("b", 2.5), ("a", None), ("b", math.nan), ("c", 1.0), ("b", None)]
    found = totals(Sum("c0", pl.Float64(), pl.Float64()), cuts, *rows)
    assert repr(found) == repr([math.inf, math.inf, math.inf, 2.5, math.nan, math.nan, 1.0])


def test_decimals_keep_their_scale_and_averages_round_half_up() -> None:
    dtype = pl.Decimal(10, 2)
    log = [
        (k, "g", {"c0": Decimal(v)}, 1, n)
        for n, (k, v) in enumerate([("a", "0.01"), ("b", "0.02"), ("c", "0.02")])
    ]
    total = chain_of(Sum("c0", dtype, pl.Decimal(20, 2)), dtype).run(log)
    mean = chain_of(Sum("c0", dtype, pl.Decimal(14, 6), average=True), dtype).run(log)
    assert [row[2]["c0"] for row in total] == [Decimal("0.01"), Decimal("0.03"), Decimal("0.05")]
    assert [row[2]["c0"] for row in mean] == [Decimal("0.010000"), Decimal("0.015000"), Decimal("0.016667")]


def test_intervals_are_added_up_in_microseconds_and_their_average_rounds_half_up() -> None:
    dtype = pl.Duration("us")
    log = [
        (k, "g", None if us is None else {"c0": timedelta(microseconds=us)}, 1, n)
        for n, (k, us) in enumerate(
            [("a", 2), ("b", 3), ("c", -(10**15)), ("c", None), ("a", None), ("b", None)]
        )
    ]
    total, mean = (
        chain_of(Sum("c0", dtype, dtype, average=average), dtype).run(log) for average in (False, True)
    )
    shown = [
        [None if row[2] is None else row[2]["c0"] // timedelta(microseconds=1) for row in rows]
        for rows in (total, mean)
    ]
    assert shown[0] == [2, 5, 5 - 10**15, 5, 3, None]
    assert shown[1] == [2, 3, -333333333333332, 3, 3, None]


def test_a_sum_beyond_64_bits_on_the_way_is_right_again_when_it_is_back() -> None:
    big = (1 << 63) - 1
    log = [("a", "g", {"c0": big}, 1, 1), ("b", "g", {"c0": -big}, 1, 2), ("c", "g", {"c0": 5}, 1, 3)]
    chain = chain_of(Sum("c0", pl.Int64(), pl.Int64()), pl.Int64())
    assert [row[2]["c0"] for row in chain.run(log)] == [big, 0, 5]


def folded(kind: pl.DataType, user: UserFunctions) -> Chain:
    return Chain(Fold(KEYS, GROUPS, INTS, pl.Struct({"c0": kind}), user), compat=False)


def of_functions(initializer: Any, adder: Any, subtractor: Any = None) -> UserFunctions:
    return UserFunctions(initializer, adder, subtractor or adder, ("group",), ("number",), ("total",))


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_result_that_does_not_fit_ends_the_query_and_no_group_starts_anew(cuts: int) -> None:
    user = of_functions(lambda: Decimal(0), lambda _, row, total: total + row.number)
    chain = folded(pl.Decimal(8, 2), user)
    log = [
        (key, "g", {"c0": value}, 1, n)
        for n, (key, value) in enumerate([("a", 900_000), ("b", 200_000), ("c", 1)])
    ]
    parts = [log] if cuts == 1 else [[one] for one in log]
    for part in parts[: cuts // 2]:
        chain.run(part)
    with pytest.raises(FunctionValueError, match=r"Decimal\('1100000.00'\).*'total'.*decimal\(8,2\)"):
        chain.run(parts[cuts // 2])
    if cuts == 3:  # what the state has is what was before
        assert chain.run([("d", "g", {"c0": 5}, 1, 9)])[0][2] == {"c0": Decimal("900005.00")}


def test_what_a_function_raises_is_cut_or_left_out_as_a_value_of_the_row_is() -> None:
    def adder(_: Any, row: Any, total: int) -> int:  # noqa: ARG001
        raise ValueError("secret\x1b" * 1000)

    chain = folded(pl.Int64(), of_functions(int, adder))
    with pytest.raises(ExpressionError, match=r"raised ValueError: secret\\x1bsecret") as raised:
        chain.run([("a", "g", {"c0": 1}, 1, 1)])
    assert len(str(raised.value)) < 1000
    with data_left_out(True), pytest.raises(ExpressionError, match=r"raised ValueError: \(left out\)\."):
        chain.run([("a", "g", {"c0": 1}, 1, 1)])


@pytest.mark.parametrize("role", ["initializer", "adder", "subtractor", "reducer"])
def test_every_function_of_a_user_is_checked(role: str) -> None:
    wrong = {"initializer": (lambda: 1.7, lambda _, row, __: row.number), "adder": (int, lambda *_: 1.7)}
    functions = wrong.get(role, (int, lambda _, row, total: total + row.number))
    if role == "reducer":
        user = UserFunctions(None, lambda *_: (1.7,), lambda *_: (1.7,), ("group",), ("number",), ("number",))
    else:
        user = of_functions(*functions, lambda *_: 1.7)
    log = [("a", "g", {"c0": 1}, 1, 1), ("b", "g", {"c0": 2}, 1, 2), ("a", "g", None, 1, 3)]
    with pytest.raises(FunctionValueError, match=r"1\.7"):
        folded(pl.Int64(), user).run(log)


@pytest.mark.parametrize("returned", [(1,), (1, 2, 3), {"n": 1}, {"n": 1, "m": 2, "k": 3}, 5])
def test_a_result_of_other_columns_is_an_error_that_names_the_columns(returned: Any) -> None:
    user = UserFunctions(lambda: (0, 0), lambda *_: returned, lambda *_: returned, ("g",), ("v",), ("n", "m"))
    made = pl.Struct({"c0": pl.Int64(), "c1": pl.Int64()})
    chain = Chain(Fold(KEYS, GROUPS, INTS, made, user), compat=False)
    with pytest.raises(FunctionValueError, match="column 'n, m', which does not fit 2 columns"):
        chain.run([("a", "g", {"c0": 1}, 1, 1)])


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_function_that_changes_its_aggregate_in_place_changes_no_earlier_result(cuts: int) -> None:
    def adder(_: Any, row: Any, numbers: list[int]) -> list[int]:
        numbers.append(row.number)
        return numbers

    chain = folded(pl.List(pl.Int64()), of_functions(list, adder))
    log = [(key, "g", {"c0": n}, 1, n) for n, key in enumerate("abc")]
    parts = [log] if cuts == 1 else [[one] for one in log]
    found = [row[2]["c0"] for part in parts for row in chain.run(part)]
    assert found == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("cuts", [1, 2])
def test_the_next_call_sees_what_it_would_see_after_a_restart(cuts: int) -> None:
    seen = []

    def adder(_: Any, row: Any, total: Any) -> int:
        seen.append(repr(total))
        return int(row.number)

    chain = folded(pl.Decimal(8, 2), of_functions(lambda: 0, adder))
    log = [("a", "g", {"c0": 5}, 1, 1), ("b", "g", {"c0": 6}, 1, 2)]
    for part in [log] if cuts == 1 else [[one] for one in log]:
        chain.run(part)
    assert seen == ["Decimal('0.00')", "Decimal('5.00')"]


END = 253402318799_000_000
"""The end of the year 9999 in New York, which is the year 10000 in UTC."""
BEGIN = -62135629200_000_000
"""The beginning of the year 1 in Tokyo, which is the year 0 in UTC."""


def of_time(value: Any, kind: pl.DataType) -> pl.DataType:
    """The dtype of a time, or of an array of structs of it."""
    return pl.List(pl.Struct({"at": kind})) if isinstance(value, list) else kind


def times(chain: Chain, kind: pl.DataType, log: Sequence[tuple[str, Any]], first: int) -> list[list[Any]]:
    """Put rows with such cells into one group, step by step; return the cells of the results."""
    value = pl.DataFrame({"c0": column([cell for _, cell in log], kind)}).to_struct()
    (schema,) = chain.stages[0][0].inputs
    rows = [
        {
            "_kh": n,
            "_k0": key,
            "_ts": n,
            "_live": True,
            "_fh": 7,
            "_f0": "g",
            "v": None,
            "_seq": n,
            "_step": n,
        }
        for n, (key, _) in enumerate(log, first)
    ]
    frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64}).with_columns(v=value)
    messages = chain._stage(0, frame).sort(PARENT, NUMBER).rename({PARENT: "_seq"}).drop(NUMBER)
    results = chain._stage(1, messages.with_columns(pl.col("_seq").alias("_step"))).sort(PARENT)
    return [list(one.values()) for one in cells(results["v0"])]


@pytest.mark.parametrize("kind", [pl.Datetime("us", "UTC"), pl.Datetime("us")])
@pytest.mark.parametrize("bound", [END, BEGIN])
def test_times_beyond_the_years_of_python_go_through_every_aggregate(kind: pl.DataType, bound: int) -> None:
    kinds = (
        Kind.MIN,
        Kind.MAX,
        Kind.FIRST,
        Kind.LAST,
        Kind.COLLECT_LIST,
        Kind.COLLECT_SET,
    )
    lists = {Kind.COLLECT_LIST: pl.List(kind), Kind.COLLECT_SET: pl.List(kind)}
    functions: tuple[AnyFunction, ...] = (
        *(Collected(one, "c0", lists.get(one, kind)) for one in kinds),
        CountDistinct("c0", kind),
        Mode("c0", kind),
    )
    chain = Chain(Aggregate(KEYS, GROUPS, pl.Struct({"c0": kind}), functions), compat=False)
    found = times(chain, kind, [("a", bound), ("b", 0)], 1) + times(chain, kind, [("c", bound)], 3)
    low, high = min(bound, 0), max(bound, 0)
    assert found == [
        [bound, bound, bound, bound, [bound], [bound], 1, bound],
        [low, high, bound, 0, [bound, 0], [bound, 0], 2, low],
        [low, high, bound, bound, [bound, 0, bound], [bound, 0], 2, bound],
    ]


@pytest.mark.parametrize("bound", [END, BEGIN])
@pytest.mark.parametrize("nested", [False, True])
def test_times_beyond_the_years_of_python_go_through_functions(bound: int, *, nested: bool) -> None:
    kind = of_time([] if nested else 0, pl.Datetime("us", "UTC"))
    struct = pl.Struct({"c0": kind})
    user = UserFunctions(None, lambda _, row, __: row, lambda _, __, old: old, ("g",), ("until",), ("until",))
    chain = Chain(Fold(KEYS, GROUPS, struct, struct, user), compat=False)
    one, other = ([{"at": 0}], [{"at": bound}, None]) if nested else (0, bound)
    found = times(chain, kind, [("a", one), ("b", other)], 1) + times(chain, kind, [("c", other)], 3)
    assert found == [[one], [other], [other]]


MOST = (1 << 63) - 1


def totals(function: Sum, cuts: int, *values: tuple[str, Any]) -> list[Any]:
    """The results for rows that come, change and go in one group, each in a step."""
    chain = chain_of(function, function.of)
    log = [(key, "g", None if v is None else {"c0": v}, 1, n) for n, (key, v) in enumerate(values, 1)]
    parts = [log] if cuts == 1 else [[one] for one in log]
    return [row[2] and row[2]["c0"] for part in parts for row in chain.run(part)]


AMOUNTS = (
    st.none() | st.floats(-100, 100) | st.sampled_from([1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf])
)
AMOUNT_RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("gh"), AMOUNTS, st.booleans()), max_size=12
)


@pytest.mark.parametrize("average", [False, True])
@given(records=AMOUNT_RECORDS, cut=st.integers(0, 12))
def test_floats_in_limbs_and_as_python_integers_give_the_same_and_remember_the_same(
    records: list[tuple[str, str, float | None, bool]], cut: int, *, average: bool
) -> None:
    found = []
    for limbs in (8, 0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(exact_floats, "_MAX_LIMBS", limbs)
            chain = chain_of(Sum("c0", pl.Float64(), pl.Float64(), average=average), pl.Float64())
            log = [
                (key, group, {"c0": amount} if lives else None, 1, step)
                for step, (key, group, amount, lives) in enumerate(records)
            ]
            told = [chain.run(part) for part in (log[:cut], log[cut:])]
        operator, store = chain.stages[1]
        state = ShardState(store, NoCache(), numbered_traces(operator.traces), "f00d").trace("groups").scan()
        found.append((repr(told), repr(state.sort("_f0").to_dicts())))
    assert found[0] == found[1]


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_change_from_one_end_of_bigint_to_the_other_does_not_wrap(cuts: int) -> None:
    total = Sum("c0", pl.Int64(), pl.Int64())
    assert totals(total, cuts, ("a", 7 * 10**18), ("a", -7 * 10**18)) == [7 * 10**18, -7 * 10**18]
    assert totals(total, cuts, ("a", -MOST - 1), ("a", MOST)) == [-MOST - 1, MOST]


@pytest.mark.parametrize("cuts", [1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_bigint_ends_the_query_and_leaves_the_state_as_it_was(cuts: int, sign: int) -> None:
    chain = chain_of(Sum("c0", pl.Int64(), pl.Int64(), name="total"), pl.Int64())
    log = [("a", "g", {"c0": sign * MOST}, 1, 1), ("b", "g", {"c0": sign * 2}, 1, 2)]
    if cuts == 2:
        chain.run(log[:1])
    with pytest.raises(TotalOverflowError) as caught:
        chain.run(log[cuts - 1 :])
    assert f"The sum in column 'total' of the group (\"g\") is {sign * (MOST + 2)}" in str(caught.value)
    assert "does not fit bigint" in str(caught.value)
    if cuts == 2:
        assert chain.run([("c", "g", {"c0": -sign * 5}, 1, 3)])[0][2] == {"c0": sign * (MOST - 5)}


def test_only_what_a_step_leaves_has_to_fit() -> None:
    chain = chain_of(Sum("c0", pl.Int64(), pl.Int64()), pl.Int64())
    step = [("a", "g", {"c0": MOST}, 1, 1), ("b", "g", {"c0": MOST}, 1, 1), ("c", "g", {"c0": -MOST}, 1, 1)]
    assert [row[2] for row in chain.run(step)] == [{"c0": MOST}]


@pytest.mark.parametrize("cuts", [1, 2])
def test_an_average_has_no_bound_on_the_way(cuts: int) -> None:
    large = 9 * 10**18
    mean = Sum("c0", pl.Int64(), pl.Float64(), average=True)
    assert totals(mean, cuts, ("a", large), ("b", large), ("c", large)) == [9e18, 9e18, 9e18]
    assert totals(mean, cuts, ("a", large), ("b", large), ("b", None), ("a", 2)) == [9e18, 9e18, 9e18, 2.0]


@pytest.mark.parametrize("cuts", [1, 2])
@pytest.mark.parametrize("average", [False, True])
def test_a_decimal_beyond_its_digits_ends_the_query(cuts: int, *, average: bool) -> None:
    dtype, largest = pl.Decimal(38, 2), Decimal("9" * 36 + ".99")
    into = pl.Decimal(38, 6) if average else dtype
    with pytest.raises(
        TotalOverflowError, match=rf"{'average' if average else 'sum'} in column 'x' .*decimal\(38,"
    ) as caught:
        totals(Sum("c0", dtype, into, average=average, name="x"), cuts, ("a", largest), ("b", largest))
    assert caught.value.hint.startswith("Cast the column")
    half = Decimal("5" * 20 + ".25")
    shown = totals(Sum("c0", dtype, into, average=average), cuts, ("a", half), ("b", half))
    assert shown[-1] == (half if average else 2 * half)


def test_sums_and_averages_of_floats_reach_infinity_and_come_back() -> None:
    largest = 1.7976931348623157e308
    rows = [("a", largest), ("b", largest), ("b", None)]
    assert totals(Sum("c0", pl.Float64(), pl.Float64()), 1, *rows) == [largest, math.inf, largest]
    assert totals(Sum("c0", pl.Float64(), pl.Float64(), average=True), 1, *rows) == [largest] * 3


def test_a_difference_beyond_64_bits_does_not_hide_an_overflow() -> None:
    chain = chain_of(Sum("c0", pl.Int64(), pl.Int64()), pl.Int64())
    large = 7 * 10**18
    chain.run([("a", "g", {"c0": -large}, 1, 1), ("b", "g", {"c0": large}, 1, 2)])
    with pytest.raises(TotalOverflowError, match=str(2 * large)):
        chain.run([("a", "g", {"c0": large}, 1, 3)])


def test_functions_are_called_for_rows_that_have_no_columns_but_the_key() -> None:
    value = pl.Struct({"__nothing": pl.Boolean()})
    user = UserFunctions(
        int, lambda _, row, n: n + 1 + len(row), lambda _, __, n: n - 1, ("group",), (), ("n",)
    )
    chain = Chain(Fold(KEYS, GROUPS, value, pl.Struct({"c0": pl.Int64()}), user), compat=False)
    row = {"__nothing": None}
    found = chain.run([("a", "g", row, 1, 1), ("b", "g", row, 1, 2), ("a", "g", None, 1, 3)])
    assert [one[2] for one in found] == [{"c0": 1}, {"c0": 2}, {"c0": 1}]


def test_a_reduction_of_rows_without_columns_keeps_the_group() -> None:
    value = pl.Struct({"__nothing": pl.Boolean()})
    user = UserFunctions(None, lambda _, row, __: row, lambda _, __, old: old, ("group",), (), ())
    chain = Chain(Fold(KEYS, GROUPS, value, value, user), compat=False)
    log = [
        ("a", "g", {"__nothing": None}, 1, 1),
        ("b", "g", {"__nothing": None}, 1, 2),
        ("a", "g", None, 1, 3),
    ]
    assert [one[2] for part in (log[:1], log[1:]) for one in chain.run(part)] == [{"__nothing": None}] * 3


@pytest.mark.parametrize("seed", range(3))
def test_the_last_aggregates_are_those_of_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    functions: dict[str, AnyFunction] = {
        "median(n)": Percentile("c0", pl.Int64(), 0.5),
        "quantile_cont(n, 0.9)": Percentile("c0", pl.Int64(), 0.9),
        "var_samp(n)": Variance("c0", pl.Int64(), population=False, root=False),
        "stddev_pop(n)": Variance("c0", pl.Int64(), population=True, root=True),
        "kurtosis_pop(n)": Kurtosis("c0", pl.Int64()),
        "bit_and(n)": Bits("bit_and", "c0", pl.Int64()),
        "bit_or(n)": Bits("bit_or", "c0", pl.Int64()),
        "bit_xor(n)": Bits("bit_xor", "c0", pl.Int64()),
        **{
            f"{name}(n, n * 100 + id)": OfPairs(name, "c0", pl.Int64(), "c3", pl.Int64())
            for name in (
                "covar_pop",
                "covar_samp",
                "corr",
                "regr_sxy",
                "regr_slope",
                "regr_intercept",
                "regr_r2",
            )
        },
        "bool_and(yes)": AllOrAny("c1", every=True),
        "bool_or(yes)": AllOrAny("c1", every=False),
        "arg_max_null(t, n * 100 + id) FILTER (n IS NOT NULL)": Collected(
            Kind.MAX_BY, "c2", pl.String(), "c3"
        ),
        "string_agg(t, '+' ORDER BY n * 100 + id DESC NULLS LAST)": Collected(
            Kind.STRING_AGG, "c2", pl.String(), "c3", descending=True, delimiter="+"
        ),
        "min(n) FILTER (n = (SELECT min(m) FROM modes WHERE modes.g = rows.g))": Mode("c0", pl.Int64()),
    }
    value = pl.Struct({"c0": pl.Int64(), "c1": pl.Boolean(), "c2": pl.String(), "c3": pl.Int64()})
    chain = Chain(Aggregate(KEYS, GROUPS, value, tuple(functions.values())), compat=False)
    rows: dict[int, tuple[str, Any]] = {}
    told: dict[str | None, Any] = {}
    for part in range(8):
        log = []
        for step in range(40 * part, 40 * part + 40):
            id_, group = rng.randrange(30), rng.choice("gh")
            n = rng.choice([None, *range(-4, 5)])
            row = {
                "c0": n, "c1": rng.choice([None, True, False]), "c2": rng.choice([None, "a", "é"]),
                "c3": None if n is None else n * 100 + id_,
            }  # fmt: skip
            gone = rng.random() < 0.3
            rows.pop(id_, None)
            if not gone:
                rows[id_] = group, row
            log.append((str(id_), None if gone else group, None if gone else row, step, step))
        told |= {group: result for _, group, result, _ in chain.run(log)}
    table = [(group, id_, row["c0"], row["c1"], row["c2"]) for id_, (group, row) in rows.items()]
    with duckdb.connect() as sql:
        sql.execute("CREATE TABLE rows (g VARCHAR, id INT, n BIGINT, yes BOOLEAN, t VARCHAR)")
        sql.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", table)
        sql.execute(
            "CREATE TABLE modes AS SELECT g, n AS m FROM rows WHERE n IS NOT NULL GROUP BY g, n"
            " QUALIFY count(*) = max(count(*)) OVER (PARTITION BY g)"
        )
        columns = ", ".join(functions)
        wanted = {
            row[0]: row[1:] for row in sql.execute(f"SELECT g, {columns} FROM rows GROUP BY g").fetchall()
        }
    for group, result in wanted.items():
        assert list(told[group].values()) == [
            pytest.approx(one, rel=1e-12) if isinstance(one, float) else one for one in result
        ]
