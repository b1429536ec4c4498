"""The order of Spark's types: which holds every value of which."""

from __future__ import annotations

from itertools import product

from pyspark.sql import types as T

from tablestream.base.type_lattice import BITS, Misfit, holds, misfits

DECIMALS = [
    T.DecimalType(p, s) for p, s in [(3, 0), (5, 0), (9, 0), (10, 0), (18, 0), (19, 0), (21, 2), (38, 19)]
]
KINDS = [*(kind() for kind in BITS), T.FloatType(), T.DoubleType(), *DECIMALS, T.StringType(), T.DateType()]


def test_it_is_an_order() -> None:
    pairs = {(wide, narrow) for wide, narrow in product(KINDS, KINDS) if holds(wide, narrow)}
    assert {(kind, kind) for kind in KINDS} <= pairs
    assert not {(one, other) for one, other in pairs if one != other and (other, one) in pairs}
    assert {(a, d) for (a, b), (c, d) in product(pairs, pairs) if b == c} <= pairs


def test_what_holds_a_number_has_its_least_and_its_greatest_value() -> None:
    for kind, bits in BITS.items():
        least = -(1 << bits - 1)
        assert [holds(T.FloatType(), kind()), holds(T.DoubleType(), kind())] == [bits <= 25, bits <= 54]
        for decimal in DECIMALS:
            assert holds(decimal, kind()) is (10 ** (decimal.precision - decimal.scale) > -least)
            assert holds(kind(), decimal) is (decimal.scale == 0 and 10**decimal.precision <= -least)


def test_a_part_that_does_not_fit_is_named_with_its_way() -> None:
    given = (
        T.StructType().add("a", T.MapType(T.LongType(), T.ArrayType(T.DoubleType()))).add("B", T.DateType())
    )
    stored = (
        T.StructType().add("a", T.MapType(T.IntegerType(), T.ArrayType(T.FloatType()))).add("b", T.DateType())
    )
    wrong = [Misfit("a.key", "bigint", "int"), Misfit("a.value.element", "double", "float")]
    assert list(misfits(given, stored, "")) == [*wrong, Misfit("B", "date", None)]
    assert list(misfits(given, stored, "", fold=str.lower)) == wrong
