"""Sums of floats in limbs, against sums of fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.arrangement import Arrangement
from tablestream.operators.reduce.exact_floats import Limbs, Scaled, summed
from tablestream.operators.reduce.groups import GroupEvents

LARGEST, SMALLEST = 1.7976931348623157e308, 5e-324

#: Values whose sums have ties, carries and cancellations: few bits, far apart within the window.
_NEAR = st.builds(
    math.ldexp,
    st.integers(-(1 << 53) + 1, (1 << 53) - 1)
    | st.sampled_from([-1, 1, (1 << 53) - 1, (1 << 31), -(1 << 32)]),
    st.integers(-60, 60),
)
_FEW = st.builds(
    math.ldexp, st.sampled_from([-3, -1, 1, 3]), st.sampled_from([-64, -54, -53, -1, 0, 1, 53, 64])
)
VALUES = st.none() | st.just(0.0) | _NEAR | _FEW | st.sampled_from([math.nan, math.inf, -math.inf])
MESSAGES = st.lists(st.tuples(st.integers(0, 2), VALUES, VALUES), max_size=20)
BASES = st.lists(st.tuples(st.integers(-(1 << 90), 1 << 90), st.integers(-80, 20)), min_size=3, max_size=3)


def limbs_of(messages: list[tuple[int, float | None, float | None]], base: list[Scaled]) -> Limbs | None:
    """Sum messages, which are sorted by their group."""
    group = np.array([one[0] for one in messages], dtype=np.int64)
    new, old = (pl.Series([one[n] for one in messages], dtype=pl.Float64) for n in (1, 2))
    return summed(
        GroupEvents(pl.DataFrame(), pl.DataFrame(), Arrangement.of(group), atomic=False), new, old, base
    )


def exact(value: float | None) -> Fraction:
    return Fraction(value) if value is not None and math.isfinite(value) else Fraction(0)


def rounded(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(MESSAGES, BASES)
def test_sums_are_exact_and_rounded_once(
    messages: list[tuple[int, float | None, float | None]], base: list[Scaled]
) -> None:
    messages = sorted(messages, key=lambda one: one[0])
    groups = sorted({group for group, _, _ in messages})
    dense = [(groups.index(group), new, old) for group, new, old in messages]
    limbs = limbs_of(dense, base[: len(groups)])
    assert limbs is not None
    totals = [whole * Fraction(2) ** exponent for whole, exponent in base]
    expected = []
    for group, new, old in dense:
        totals[group] += exact(new) - exact(old)
        expected.append(totals[group])
    assert [whole * Fraction(2) ** limbs.exponent for whole in limbs.numbers()] == expected
    floats = limbs.floats().tolist()
    assert floats == [rounded(one) for one in expected]
    assert not any(math.copysign(1, one) < 0 for one in floats if one == 0)
    at = np.arange(len(dense) - 1, -1, -1)
    assert limbs.at(at).floats().tolist() == floats[::-1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0**-53], 1.0),
        ([1.0, 2.0**-53, 2.0**-180], 1.0 + 2.0**-52),
        ([1.0 + 2.0**-52, 2.0**-53], 1.0 + 2.0**-51),
        ([-1.0, -(2.0**-53), -(2.0**-180)], -1.0 - 2.0**-52),
        ([2.0**31, 2.0**31 - 1, 2.0**-22], 2.0**32 - 1),
        ([SMALLEST, SMALLEST, -SMALLEST * 3], -SMALLEST),
        ([2.0**-1022, -SMALLEST], 2.0**-1022 - SMALLEST),
        ([LARGEST, LARGEST], math.inf),
        ([-LARGEST, -LARGEST], -math.inf),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([LARGEST, 2.0**969], LARGEST),
        ([LARGEST, 2.0**970], math.inf),
    ],
)
def test_ties_and_the_ends_of_the_range(values: list[float], expected: float) -> None:
    limbs = limbs_of([(0, value, None) for value in values], [(0, 0)])
    assert limbs is not None
    assert limbs.floats()[-1] == expected


def test_a_window_that_would_be_too_wide_is_left_to_the_caller() -> None:
    assert limbs_of([(0, 1e300, None), (0, 1.0, None)], [(0, 0)]) is None
    assert limbs_of([(0, 1.0, None)], [(1, 900)]) is None
