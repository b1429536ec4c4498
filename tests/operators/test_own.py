"""Aggregates of a user's own: their state, and what their methods get, do not depend on how the messages are cut."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from tablestream.base.data_text import data_left_out
from tablestream.errors import ExpressionError
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.own import Anew, Subtracting
from tablestream.operators.reduce.ranked_counts import Mode
from tests.operators.test_groups import GROUPS, KEYS, Chain

POINT = pl.Struct({"x": pl.Float64(), "y": pl.List(pl.Float64())})


class Mean:
    """A mean in floats: what was subtracted leaves a residue, and there is none of no values."""

    def zero(self) -> Any:
        return 0, 0.0

    def add(self, state: Any, value: float) -> Any:
        return state["n"] + 1, state["total"] + value

    def subtract(self, state: Any, value: float) -> Any:
        return state["n"] - 1, state["total"] - value

    def finish(self, state: Any) -> Any:
        return state["total"] / state["n"]


class Signs(Mean):
    """The signs of values, one after the other."""

    def zero(self) -> Any:
        return []

    def add(self, state: Any, value: Any) -> Any:
        parts = [value] if isinstance(value, float) else [value["x"], *value["y"]]
        return [*state, *(math.copysign(1, one) for one in parts)]

    def subtract(self, state: Any, value: Any) -> Any:  # noqa: ARG002
        return state[:-1]

    def finish(self, state: Any) -> Any:
        return state


class Forgets(Mean):
    """The last value, which a subtraction forgets; it begins with another state than it has then."""

    def zero(self) -> Any:
        return 7.0

    def add(self, state: Any, value: float) -> Any:
        return None if state is None else value

    def subtract(self, state: Any, value: float) -> Any:  # noqa: ARG002
        return None

    def finish(self, state: Any) -> Any:
        return state


FLOAT, FLOATS = pl.Float64(), pl.List(pl.Float64())
MEAN = pl.Struct({"n": pl.Int64(), "total": pl.Float64()})


def told(
    function: AnyFunction,
    changes: list[tuple[str, Any]],
    cuts: int,
    *,
    keep_empty: bool = False,
    kind: pl.DataType = FLOAT,
) -> list[Any]:
    """The results after each change of a row, of one group."""
    chain = Chain(
        Aggregate(KEYS, GROUPS, pl.Struct({"c0": kind}), (function,), keep_empty=keep_empty), compat=False
    )
    log = [
        (key, None if value is None else "g", None if value is None else {"c0": value}, 1, n)
        for n, (key, value) in enumerate(changes)
    ]
    parts = [log] if cuts == 1 else [[one] for one in log]
    return [None if found is None else found["c0"] for part in parts for *_, found, _ in chain.run(part)]


@pytest.mark.parametrize("cuts", [1, 4])
def test_a_group_that_comes_back_begins_anew_and_one_without_rows_is_not_finished(cuts: int) -> None:
    function = Subtracting("c0", FLOAT, FLOAT, MEAN, "mean", Mean())
    changes = [("a", 0.1), ("b", 0.2), ("a", None), ("b", None), ("a", 0.3)]
    assert told(function, changes, cuts) == [0.1, (0.1 + 0.2) / 2, 0.1 + 0.2 - 0.1, None, 0.3]


@pytest.mark.parametrize("cuts", [1, 4])
def test_a_state_that_is_none_is_a_state(cuts: int) -> None:
    function = Subtracting("c0", FLOAT, FLOAT, FLOAT, "forgets", Forgets())
    changes = [("a", 0.1), ("b", 0.2), ("a", None), ("c", 0.3)]
    assert told(function, changes, cuts) == [0.1, 0.2, None, None]


@pytest.mark.parametrize("cuts", [1, 4])
@pytest.mark.parametrize("function", ["subtracting", "anew"])
def test_a_group_that_is_kept_without_rows_is_finished(cuts: int, function: str) -> None:
    made: AnyFunction = Subtracting("c0", FLOAT, FLOATS, FLOATS, "signs", Signs())
    if function == "anew":
        made = Anew("c0", FLOAT, FLOATS, FLOATS, "signs", Signs())
    found = told(made, [("a", 2.0), ("a", None)], cuts, keep_empty=True)
    assert found == [[1.0], []]


@pytest.mark.parametrize("cuts", [1, 4])
def test_no_value_of_a_group_is_minus_zero_whichever_row_brought_it(cuts: int) -> None:
    changes: list[tuple[str, Any]] = [("a", 0.0), ("b", -0.0), ("a", None)]
    function = Anew("c0", FLOAT, FLOATS, FLOATS, "signs", Signs())
    assert told(function, changes, cuts) == [[1.0], [1.0, 1.0], [1.0]]
    points = [(key, x if x is None else {"x": x, "y": [x]}) for key, x in changes]
    function = Anew("c0", POINT, FLOATS, FLOATS, "signs", Signs())
    assert told(function, points, cuts, kind=POINT) == [[1.0] * 2, [1.0] * 4, [1.0] * 2]
    numbers = pl.Struct({"x": pl.Float64()})
    points = [(key, x if x is None else {"x": x}) for key, x in changes]
    found = told(Mode("c0", numbers), points, cuts, kind=numbers)
    assert repr(found) == repr([{"x": 0.0}] * 3)


@pytest.mark.parametrize("made", [Subtracting, Anew])
def test_what_a_method_raises_is_cut_or_left_out_as_values_are(made: type[Subtracting | Anew]) -> None:
    class Odd(Mean):
        def add(self, *_: Any) -> Any:
            raise ValueError("secret\x1b" * 1000)

    function = made("c0", FLOAT, FLOAT, MEAN, "odd", Odd())
    with pytest.raises(ExpressionError, match=r"raised ValueError: secret\\x1bsecret") as raised:
        told(function, [("a", 1.0)], 1)
    assert len(str(raised.value)) < 1000
    with data_left_out(True), pytest.raises(ExpressionError, match=r"raised ValueError: \(left out\)"):
        told(function, [("a", 1.0)], 1)
