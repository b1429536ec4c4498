"""Aggregates of records, which are never taken out again: exact ones against lists, estimates against the truth."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import polars as pl
import pytest

from tablestream.operators.cells import cells, column
from tablestream.operators.operator import Context
from tablestream.operators.reasons import NULL_KEY_OR_VALUE
from tablestream.operators.reduce.accumulated import Accumulated
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.bits import AllOrAny
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.fold import Fold, UserFunctions
from tablestream.operators.reduce.powers import Variance
from tablestream.operators.reduce.ranked_counts import Mode, Percentile
from tablestream.operators.reduce.record_groups import RecordGroups
from tablestream.operators.reduce.sketched import Sketch, Sketched
from tablestream.operators.reduce.totals import Count, Sum
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces
from tests.operators.test_members import few_heads, shown

GROUP = pl.Schema({"_f0": pl.String()})


class Groups:
    """The operator with a state that outlives it."""

    def __init__(self, of: pl.DataType, *functions: AnyFunction, atomic: bool = False) -> None:
        value = of if isinstance(of, pl.Struct) else pl.Struct({"c0": of})
        groups = Aggregate(pl.Schema(), GROUP, value, functions, keep_empty=True, atomic=atomic)
        self.operator = RecordGroups(groups, pl.Schema({"_k0": pl.String()}))
        self.store, self.dropped = MemoryStore(), Counter[str]()

    def run(self, records: list[tuple[str | None, Any]]) -> list[tuple[str, Any]]:
        """Work off a micro-batch; a record is (group, value), a group of none has no hash."""
        (schema,) = self.operator.inputs
        rows = [
            {
                "_kh": 0, "_k0": None, "_ts": number, "_live": value != "gone",
                "_fh": None if group is None else sum(group.encode()), "_f0": group,
                "v": None if value == "gone" else value if isinstance(value, dict) else {"c0": value},
                "_seq": number, "_step": number,
            }
            for number, (group, value) in enumerate(records, 1)
        ]  # fmt: skip
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        state = ShardState(self.store, NoCache(), numbered_traces(self.operator.traces), "plan")
        found: list[tuple[str, Any]] = []
        for emission in self.operator.run([frame], Context(state.trace, self.dropped)):
            rows = emission.rows.sort("_parent").to_dicts()
            found += [(row["_k0"], row["v0"] and tuple(row["v0"].values())) for row in rows]
        state.commit()
        if isinstance(self.operator.groups, Aggregate):  # what is read from the state is what was told last
            recalled = [
                row for frame in self.operator.groups.recalled(state.trace) for row in frame.to_dicts()
            ]
            read = {row["_f0"]: tuple(row["v"].values()) for row in recalled}
            assert {group: repr(read[group]) for group, _ in found} == {
                group: repr(value) for group, value in found
            }
        return found


ALL = [
    (kind, pl.List(pl.Int64())) if kind in {Kind.COLLECT_LIST, Kind.COLLECT_SET} else (kind, pl.Int64())
    for kind in Kind
    if kind not in {Kind.MIN_BY, Kind.MAX_BY, Kind.STRING_AGG}
]


def by_hand(kind: Kind, values: list[int | None]) -> Any:
    present = [value for value in values if value is not None]
    return {
        Kind.MIN: min(present, default=None),
        Kind.MAX: max(present, default=None),
        Kind.FIRST: values[0],
        Kind.LAST: values[-1],
        Kind.COLLECT_LIST: present,
        Kind.COLLECT_SET: list(dict.fromkeys(present)),
        Kind.COUNT_DISTINCT: len(set(present)),
    }[kind]


@pytest.mark.parametrize("pieces", [1, 7])
def test_what_is_remembered_of_records_is_enough(pieces: int) -> None:
    rng = random.Random(pieces)
    records = [(rng.choice("gh"), rng.choice([None, 1, 2, 3, 4, 5])) for _ in range(200)]
    groups = Groups(pl.Int64(), *(Accumulated(Collected(kind, "c0", into), pl.Int64()) for kind, into in ALL))
    got = []
    size = -(-len(records) // pieces)
    for start in range(0, len(records), size):
        got += groups.run(list(records[start : start + size]))
    seen: dict[str, list[int | None]] = {}
    wanted = []
    for group, value in records:
        seen.setdefault(group, []).append(value)
        wanted.append((group, tuple(by_hand(kind, seen[group]) for kind, _ in ALL)))
    assert got == wanted


OF_TWO: tuple[AnyFunction, ...] = (
    *(
        Accumulated(Collected(kind, "c1", pl.String(), "c0"), pl.String(), pl.Int64())
        for kind in (Kind.MIN_BY, Kind.MAX_BY)
    ),
    *(
        Accumulated(Collected(Kind.STRING_AGG, "c1", pl.String(), by, down, "; "), pl.String(), of_by)
        for by, of_by in (("c0", pl.Int64()), (None, None))
        for down in (False, True)
    ),
    Mode("c1", pl.String()),
    Percentile("c0", pl.Int64(), 0.4),
    Variance("c0", pl.Int64(), population=True, root=True),
    AllOrAny("c2", every=True),
    AllOrAny("c2", every=False),
)


@pytest.mark.parametrize("pieces", [1, 7])
def test_aggregates_of_records_are_those_of_rows_that_are_never_taken_back(pieces: int) -> None:
    rng = random.Random(pieces)
    values: dict[str, list[Any]] = {"c0": [None, 1, 2, 3], "c1": [None, "", "a", "é"], "c2": [None, True]}
    records: list[tuple[str | None, Any]] = [
        (rng.choice("gh"), {name: rng.choice(some) for name, some in values.items()}) for _ in range(120)
    ]
    groups = Groups(pl.Struct({"c0": pl.Int64(), "c1": pl.String(), "c2": pl.Boolean()}), *OF_TWO)
    size = -(-len(records) // pieces)
    with few_heads(2, 1):
        got = [
            one for start in range(0, len(records), size) for one in groups.run(records[start : start + size])
        ]
    rows: dict[str | None, list[Any]] = {}
    wanted = []
    for number, (group, value) in enumerate(records):
        rows.setdefault(group, []).append(("", str(number), value))
        over_rows = (one.shows if isinstance(one, Accumulated) else one for one in OF_TWO)
        wanted.append((group, tuple(shown(one, rows[group]) for one in over_rows)))
    assert got == wanted


def test_nan_is_the_greatest_and_equals_itself() -> None:
    kinds = (Kind.MIN, Kind.MAX, Kind.COUNT_DISTINCT)
    into = (pl.Float64(), pl.Float64(), pl.Int64())
    functions = (
        Accumulated(Collected(kind, "c0", kind_into), pl.Float64())
        for kind, kind_into in zip(kinds, into, strict=True)
    )
    groups = Groups(pl.Float64(), *functions)
    (*_, (_, (least, most, different))) = groups.run(
        [("g", math.nan), ("g", 1.0), ("g", math.nan), ("g", 0.0), ("g", -0.0)]
    )
    assert (least, different) == (0.0, 3)
    assert math.isnan(most)


def test_records_without_a_group_or_a_value_are_dropped_and_counted() -> None:
    groups = Groups(pl.Int64(), Count(), Sum("c0", pl.Int64(), pl.Int64()))
    assert groups.run([("g", 1), (None, 2), ("g", "gone"), ("g", None), ("g", 5)]) == [
        ("g", (1, 1)), ("g", (2, 1)), ("g", (3, 6)),
    ]  # fmt: skip
    assert groups.dropped == {NULL_KEY_OR_VALUE: 2}


def test_estimates_survive_in_the_state_and_are_near() -> None:
    rng = random.Random(1)
    groups = Groups(
        pl.Float64(),
        Sketched(Sketch.COUNT_DISTINCT, "c0", 0.02, pl.Int64()),
        Sketched(Sketch.PERCENTILE, "c0", 0.5, pl.Float64()),
        atomic=True,
    )
    values = [float(rng.randrange(5000)) for _ in range(20_000)]
    for start in range(0, len(values), 5000):
        found = groups.run([("g", value) for value in values[start : start + 5000]])
    _, (different, median) = found[-1]
    assert different == pytest.approx(len(set(values)), rel=0.06)
    assert median == pytest.approx(2500, rel=0.05)


def test_an_empty_text_is_a_value() -> None:
    groups = Groups(pl.String(), Sketched(Sketch.COUNT_DISTINCT, "c0", 0.05, pl.Int64()))
    assert groups.run([("g", ""), ("g", "a"), ("g", "b"), ("g", "")])[-1] == ("g", (3,))


def test_an_estimate_of_nothing() -> None:
    groups = Groups(
        pl.Float64(),
        Sketched(Sketch.COUNT_DISTINCT, "c0", 0.05, pl.Int64()),
        Sketched(Sketch.PERCENTILE, "c0", 0.5, pl.Float64()),
    )
    assert groups.run([("g", None), ("g", math.nan)]) == [("g", (0, None)), ("g", (1, None))]


def test_an_aggregate_of_several_columns_is_a_named_tuple_from_the_first_call_on() -> None:
    def added(_: str, row: Any, total: Any) -> tuple[int, int]:
        return total.n + 1, total.most + row.v

    user = UserFunctions(lambda: (0, 0), added, added, ("g",), ("v",), ("n", "most"))
    made = pl.Struct({"c0": pl.Int64(), "c1": pl.Int64()})
    groups = Groups(pl.Int64())
    fold = Fold(pl.Schema(), GROUP, pl.Struct({"c0": pl.Int64()}), made, user, atomic=False)
    groups.operator = RecordGroups(fold, pl.Schema({"_k0": pl.String()}))
    assert groups.run([("g", 4), ("g", 5)]) == [("g", (1, 4)), ("g", (2, 9))]
    assert groups.run([("g", 1)]) == [("g", (3, 10))]


def test_groups_that_a_function_deleted_leave_nothing_in_the_state() -> None:
    user = UserFunctions(
        lambda: 0, lambda _, row, total: None if row.v < 0 else total + row.v, max, ("g",), ("v",), ("n",)
    )
    made = pl.Struct({"c0": pl.Int64()})
    groups = Groups(pl.Int64())
    fold = Fold(pl.Schema(), GROUP, made, made, user, atomic=False, subtracts=False)
    groups.operator = RecordGroups(fold, pl.Schema({"_k0": pl.String()}))
    assert groups.run([("g", 4), ("h", 5), ("i", -1)]) == [("g", (4,)), ("h", (5,)), ("i", None)]
    assert groups.run([("g", -1)]) == [("g", None)]
    state = ShardState(groups.store, NoCache(), numbered_traces(groups.operator.traces), "plan")
    kept = [one for frame in state.trace("groups").frames() for one in frame["_f0"].to_list()]
    assert kept == ["h"]
    assert groups.run([("g", 3)]) == [("g", (3,))]


@pytest.mark.parametrize("kind", [kind for kind, _ in ALL])
def test_times_beyond_the_years_of_python_are_aggregated(kind: Kind) -> None:
    end, of = 253402318799_000_000, pl.Datetime("us", "UTC")  # the end of the year 9999 in New York
    into = {Kind.COUNT_DISTINCT: pl.Int64(), Kind.COLLECT_LIST: pl.List(of), Kind.COLLECT_SET: pl.List(of)}
    function = Accumulated(Collected(kind, "c0", into.get(kind, of)), of)
    groups = Aggregate(pl.Schema(), GROUP, pl.Struct({"c0": of}), (function,), keep_empty=True, atomic=False)
    operator, store = RecordGroups(groups, pl.Schema({"_k0": pl.String()})), MemoryStore()
    (schema,) = operator.inputs
    found = []
    for number, time in enumerate([0, end, end], 1):
        row = {"_kh": 0, "_ts": number, "_live": True, "_fh": 1, "_f0": "g", "_seq": 1, "_step": 1}
        value = pl.DataFrame({"c0": column([time], of)}).to_struct()
        frame = pl.DataFrame([row], schema={**schema, "_seq": pl.Int64, "_step": pl.Int64}).with_columns(
            v=value
        )
        state = ShardState(store, NoCache(), numbered_traces(operator.traces), "plan")
        (emission,) = operator.run([frame], Context(state.trace, Counter()))
        found += [one["c0"] for one in cells(emission.rows["v0"])]
        state.commit()
    values: list[int | None] = [0, end, end]
    assert found == [by_hand(kind, values[:stop]) for stop in (1, 2, 3)]
