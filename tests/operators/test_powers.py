"""Statistics that follow from sums of powers: of the values that are there, however they are cut."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.bits import Bits
from tablestream.operators.reduce.powers import Deviations, Kurtosis, OfPairs, Skewness
from tests.operators.test_groups import GROUPS, KEYS, Chain, cut

NAMES = ("covar_pop", "covar_samp", "regr_sxy", "corr", "regr_slope", "regr_intercept", "regr_r2")
NUMBERS = st.integers(-5, 5).map(float) | st.sampled_from([0.1, -1e-30, 2.0**60, 1e200])
#: (key, pair or a tombstone)
CHANGES = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.tuples(NUMBERS, NUMBERS)), max_size=20)


def told(
    functions: tuple[AnyFunction, ...],
    kinds: tuple[pl.DataType, ...],
    changes: list[tuple[str, Any]],
    places: set[int],
) -> list[tuple[Any, ...] | None]:
    """The results after each change of a row, a tuple of its columns, cut at some places."""
    value = pl.Struct({f"c{number}": kind for number, kind in enumerate(kinds)})
    chain = Chain(Aggregate(KEYS, GROUPS, value, functions), compat=False)
    log = [
        (key, None if row is None else "g", row and dict(zip(("c0", "c1"), row, strict=False)), 1, n)
        for n, (key, row) in enumerate(changes)
    ]
    found = [one for part in cut(log, places) for *_, one, _ in chain.run(part)]
    return [one and tuple(one.values()) for one in found]


@given(changes=CHANGES, places=st.sets(st.integers(0, 20)))
def test_pairs_leave_no_residue(changes: list[tuple[str, Any]], places: set[int]) -> None:
    kind = pl.Float64()
    functions = tuple(OfPairs(name, "c0", kind, "c1", kind) for name in NAMES)
    rows: dict[str, Any] = {}
    expected: list[tuple[float | None, ...] | None] = []
    for key, row in changes:
        if row is None and key not in rows:
            continue
        rows.pop(key, None)
        rows |= {} if row is None else {key: row}
        expected.append(pairs(list(rows.values())) if rows else None)
    found = told(functions, (kind, kind), changes, places)
    assert [one and [*map(_short, one)] for one in found] == [one and [*map(_short, one)] for one in expected]


def pairs(rows: list[tuple[float, float]]) -> tuple[float | None, ...]:
    """The same from the exact deviations of the pairs."""
    exact = [(Fraction(y), Fraction(x)) for y, x in rows]
    n, mean_y, mean_x = len(exact), *(sum(one) / len(exact) for one in zip(*exact, strict=True))
    yy, xx = (sum((one[at] - mean) ** 2 for one in exact) for at, mean in ((0, mean_y), (1, mean_x)))
    yx = sum((y - mean_y) * (x - mean_x) for y, x in exact)
    r2 = Fraction(yx * yx, yy * xx) if yy and xx else None
    return (
        _float(yx / n),
        _float(yx / (n - 1)) if n > 1 else None,
        _float(yx),
        None if r2 is None else math.copysign(math.sqrt(r2), yx),
        _float(yx / xx) if xx else None,
        _float(mean_y - yx / xx * mean_x) if xx else None,
        None if not xx else 1.0 if r2 is None else float(r2),
    )


def _float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value + 0.0:.12g}"


def test_a_large_pair_that_comes_and_goes_leaves_the_small_ones_as_they_were() -> None:
    functions = tuple(OfPairs(name, "c0", pl.Float64(), "c1", pl.Float64()) for name in NAMES)
    changes: list[tuple[str, Any]] = [
        ("a", (1.5, 0.5)),
        ("b", (0.5, 1.5)),
        ("c", (2.0**200, 2.0**200)),
        ("c", None),
    ]
    _, before, _, after = told(functions, (pl.Float64(), pl.Float64()), changes, {2, 3})
    assert before == after == (-0.25, -0.5, -0.5, -1.0, -1.0, 2.0, 1.0)


@given(
    values=st.lists(st.none() | st.integers(-128, 127), min_size=1, max_size=12),
    places=st.sets(st.integers(0, 24)),
)
def test_bits_are_those_of_the_values_that_are_there(values: list[int | None], places: set[int]) -> None:
    kind = pl.Int8()
    functions = tuple(Bits(name, "c0", kind) for name in ("bit_and", "bit_or", "bit_xor"))
    changes: list[tuple[str, Any]] = [(str(n), (one,)) for n, one in enumerate(values)]
    changes += [(str(n), None) for n in range(len(values))]
    expected: list[tuple[int | None, ...] | None] = []
    for there in (
        *(values[: n + 1] for n in range(len(values))),
        *(values[n + 1 :] for n in range(len(values))),
    ):
        known = [one for one in there if one is not None]
        every, some, odd = -1, 0, 0
        for one in known:
            every, some, odd = every & one, some | one, odd ^ one
        expected.append((every, some, odd) if known else (None,) * 3 if there else None)
    assert told(functions, (kind,), changes, places) == expected


@pytest.mark.parametrize(
    ("kind", "values", "skewness", "kurtosis"),
    [
        (pl.Int64(), [1, 2, 3, 10], 1.0182337649086284, -0.7696),
        (pl.Decimal(8, 2), [Decimal(one) / 100 for one in (1, 2, 3, 10)], 1.0182337649086284, -0.7696),
        (pl.Float64(), [1e200, 2e200, 3e200, 1e201], 1.0182337649086284, -0.7696),
        (pl.Float64(), [5.0, 5.0], None, None),
        (pl.Float64(), [5.0, math.inf], math.nan, math.nan),
        (pl.Float64(), [math.nan], math.nan, math.nan),
        (pl.Int64(), [7], None, None),
        (pl.Int64(), [None], None, None),
    ],
)  # fmt: skip
def test_skewness_and_kurtosis(
    kind: pl.DataType, values: list[Any], skewness: float, kurtosis: float
) -> None:
    changes: list[tuple[str, Any]] = [
        ("gone", (values[0],)),
        *((str(n), (one,)) for n, one in enumerate(values)),
    ]
    functions = (Skewness("c0", kind), Kurtosis("c0", kind), Deviations("c0", kind))
    (*_, found) = told(functions, (kind,), [*changes, ("gone", None)], {2})
    assert found is not None
    assert list(map(_short, found[:2])) == list(map(_short, (skewness, kurtosis)))


def test_pairs_with_what_is_not_finite_are_not_numbers_until_they_leave() -> None:
    functions = tuple(OfPairs(name, "c0", pl.Float32(), "c1", pl.Int64()) for name in NAMES)
    changes: list[tuple[str, Any]] = [("a", (1.5, 2)), ("b", (math.inf, 3)), ("c", (2.5, 4)), ("b", None)]
    found = told(functions, (pl.Float32(), pl.Int64()), changes, {1})
    assert found[0] == (0.0, None, 0.0, None, None, None, None)
    assert all(one is not None and math.isnan(one) for one in found[2] or ())
    assert found[3] == (0.5, 1.0, 1.0, 1.0, 0.5, 0.5, 1.0)
