"""Variances and standard deviations: of the values that are there, whatever their sizes, and however they are cut."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from tablestream.operators.reduce.aggregate import Aggregate
from tablestream.operators.reduce.powers import Variance
from tests.operators.test_groups import GROUPS, KEYS, Chain, cut, in_compat

#: Of a sample, and of all values: the variance, and its root.
FOUR = [(population, root) for population in (False, True) for root in (False, True)]


def told(kind: pl.DataType, changes: list[tuple[str, Any]], places: set[int]) -> list[Any]:
    """The four results after each change, cut at some places."""
    functions = tuple(Variance("c0", kind, *which) for which in FOUR)
    chain = Chain(Aggregate(KEYS, GROUPS, pl.Struct({"c0": kind}), functions), compat=False)
    log = [
        (key, None if value is None else "g", None if value is None else {"c0": value}, 1, n)
        for n, (key, value) in enumerate(changes)
    ]
    found = [one for part in cut(log, places) for *_, one, _ in chain.run(part)]
    return [None if one is None else tuple(one.values()) for one in found]


@pytest.mark.parametrize("size", [1e-320, 5e-324, 1e-200, 1.0, 1e160, 1e200, 8e307])
def test_a_root_is_right_where_its_square_is_too_large_or_too_small_for_a_float(size: float) -> None:
    found = told(pl.Float64(), [("a", size), ("b", -size)], set())[-1]
    variance, root, of_all, root_of_all = found
    assert root_of_all == size
    assert root == pytest.approx(size * 2**0.5, rel=1e-15, abs=5e-324)
    assert (of_all, variance) == tuple(_float(times * Fraction(size) ** 2) for times in (1, 2))


def _float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf


@pytest.mark.parametrize("seed", range(4))
def test_values_of_all_sizes_leave_no_residue(seed: int) -> None:
    draw = random.Random(seed)
    rows: dict[str, float] = {}
    changes: list[tuple[str, float | None]] = []
    expected = []
    for n in range(60):
        going = rows and draw.random() < 0.4
        key = draw.choice(list(rows)) if going else f"k{n}"
        value = None if going else draw.choice([0.0, 5e-324, 0.1, 2.0, 2.0**40, 1e300]) * draw.randint(-3, 3)
        changes.append((key, value))
        rows.pop(key, None)
        rows |= {} if value is None else {key: value}
        expected.append(variances(list(map(Fraction, rows.values()))))
    found = told(pl.Float64(), changes, set(draw.sample(range(60), 15)))
    assert [one and (one[0], one[2]) for one in found] == expected


def variances(values: list[Fraction]) -> tuple[float | None, float] | None:
    """The variance of a sample, and that of all; None where there are no rows."""
    if not values:
        return None
    mean = sum(values, Fraction()) / len(values)
    total = sum(((one - mean) ** 2 for one in values), Fraction())
    return None if len(values) == 1 else _float(total / (len(values) - 1)), _float(total / len(values))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pl.Int8(), [-128, 127]),
        (pl.Int64(), [-(2**63), 2**63 - 1]),
        (pl.Float32(), [-0.0, 2.0**100]),
        (pl.Decimal(38, 38), [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)]),
        (pl.Decimal(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    ],
)
def test_the_bounds_of_every_type_have_exact_variances(kind: pl.DataType, values: list[Any]) -> None:
    found = told(kind, [("a", values[0]), ("b", values[1])], {1})[-1]
    assert (found[0], found[2]) == variances(list(map(Fraction, values)))


@pytest.mark.parametrize("root", [False, True])
def test_a_variance_of_values_that_are_not_there_is_not_a_number(root: bool) -> None:
    """With Kafka Streams' defects a removal can come before its row."""
    function = Variance("c0", pl.Int64(), population=True, root=root)
    assert repr(in_compat([function], [(5, None), (None, 2), (None, 3)])) == "[(None,), (None,), (nan,)]"
