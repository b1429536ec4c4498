"""Each pair of key types is compared in a type that keeps all keys of both apart, or is refused by name."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import tablestream as ts
from tablestream.errors import KeyMismatchError
from tablestream.spark.columns import typed
from tablestream.spark.compared import common_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

RANDOM = random.Random(53)
TIMES = [
    *("2011-12-29 23:30:00", "2011-12-30 00:00:00", "2011-12-30 12:00:00", "2011-12-31 00:00:00"),
    *("2024-03-31 01:59:59.999999", "2024-03-31 02:30:00", "2024-03-31 03:30:00"),
    *("2024-10-27 02:30:00", "2024-10-27 03:30:00", "0001-01-02 00:00:00", "9999-12-30 23:59:59.999999"),
]


def whole(bits: int) -> list[str]:
    """Integers, many of them neighbours at the powers of two."""
    last = 2**bits - 1
    near = (sign * (2**power + step) for power in range(bits) for step in (-1, 0, 1) for sign in (-1, 1))
    anywhere = (RANDOM.randint(-last - 1, last) for _ in range(100))
    return [str(one) for one in {*near, *anywhere, last, -last - 1} if -last - 1 <= one <= last]


def decimals(digits: int, scale: int) -> list[str]:
    """Decimals, many of them neighbours at the powers of ten."""
    last = 10**digits - 1
    near = (
        sign * (last // 10**power - step) for power in range(digits) for step in range(3) for sign in (-1, 1)
    )
    anywhere = (RANDOM.randint(-last, last) for _ in range(100))
    return [f"{one}e-{scale}" for one in {*near, *anywhere} if abs(one) <= last]


FLOATS = [
    "NaN",
    "Infinity",
    "-0.0",
    "0.0",
    "0.1",
    "0.30000000000000004",
    "0.3",
    "1e-45",
    "5e-324",
    "16777217",
    "1e30",
]
#: Per type of key values that a cast could make equal.
VALUES: dict[str, Sequence[str]] = {
    "boolean": ["true", "false"],
    "tinyint": whole(7),
    "smallint": whole(15),
    "int": whole(31),
    "bigint": whole(63),
    "float": [*FLOATS, *whole(31)],
    "double": [*FLOATS, *whole(63)],
    "decimal(5,2)": decimals(5, 2),
    "decimal(15,0)": decimals(15, 0),
    "decimal(15,15)": decimals(15, 15),
    "decimal(16,2)": decimals(16, 2),
    "decimal(38,0)": decimals(38, 0),
    "decimal(38,18)": decimals(38, 18),
    "string": ["", " ", "a", "a ", "A", "1", "1.0", "01"],
    "char(4)": ["a", "A", "1"],
    "varchar(4)": ["", " ", "a", "a ", "A"],
    "binary": ["", " ", "a", "a "],
    "date": sorted({time[:10] for time in TIMES}),
    "timestamp": TIMES,
    "timestamp_ntz": TIMES,
    "interval hour": ["INTERVAL '1' HOUR", "INTERVAL '-1' HOUR"],
    "interval day to second": [
        f"INTERVAL '{days} 01:00:00.00000{n}' DAY TO SECOND" for days in "01" for n in "01"
    ],
}
FAMILIES = [
    *(["boolean"], ["binary"], ["string", "char(4)", "varchar(4)"], ["date", "timestamp", "timestamp_ntz"]),
    ["interval hour", "interval day to second"],
    [name for name in VALUES if "int" in name.split(" ")[0][-3:] or name[:3] in {"dec", "dou", "flo"}],
]
#: The pairs of one family that have no type which keeps all keys of both apart.
REFUSED = {
    *((one, exact) for one in ("float", "double") for exact in ("bigint", "decimal(16,2)", "decimal(38,0)")),
    *((one, "decimal(38,18)") for one in ("float", "double")),
    *(
        (one, "decimal(38,0)")
        for one in ("decimal(5,2)", "decimal(15,15)", "decimal(16,2)", "decimal(38,18)")
    ),
    *(("timestamp", one) for one in ("date", "timestamp_ntz")),
}
PAIRS = list(combinations_with_replacement(VALUES, 2))


@pytest.fixture(scope="module")
def kinds(spark: SparkSession) -> dict[str, T.DataType]:
    """The types, as Spark's DataFrames have them; their texts keep a declared length, as some sessions do."""
    made = {name: T.DataType.fromDDL(name) for name in VALUES}
    assert spark is not None  # it reads the names of types
    assert isinstance(made["char(4)"], T.CharType)
    return made


def is_compared(one: str, other: str) -> bool:
    together = any(one in family and other in family for family in FAMILIES)
    return one == other or (together and not {(one, other), (other, one)} & REFUSED)


def test_a_pair_is_compared_exactly_if_a_type_holds_both(kinds: dict[str, T.DataType]) -> None:
    for one, other in PAIRS:
        found = common_type(kinds[one], kinds[other])
        assert (found is not None) == is_compared(one, other), (one, other, found)
        assert common_type(kinds[other], kinds[one]) == found


@pytest.mark.exhaustive
def test_no_pair_of_types_makes_one_key_of_two(spark: SparkSession, kinds: dict[str, T.DataType]) -> None:
    """Neighbours, limits and random values of each type; the zone has no 30th of December 2011."""
    columns = {}
    for pair in PAIRS:
        common = common_type(*(kinds[name] for name in pair))
        for name in pair if common is not None else ():
            assert common is not None
            own = f"transform(array({', '.join(map(literal, VALUES[name]))}), x -> {typed('x', kinds[name])})"
            compared = f"transform({own}, y -> {typed('y', common)})"
            columns[name, common.simpleString()] = (
                f"size(array_distinct({own})) - size(array_distinct({compared}))"
            )
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
    try:
        (row,) = spark.range(1).selectExpr(*columns.values()).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert {place: lost for place, lost in zip(columns, row, strict=True) if lost} == {}


def test_a_pair_without_such_a_type_is_refused_with_the_cast_to_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of keys, and of a foreign key and a key: every way to join two tables looks for one type."""
    (tmp_path / "log").mkdir()
    names = {
        name: f"k{number}" for number, name in enumerate(VALUES) if not name.startswith(("char", "varchar"))
    }
    log = ts.from_files(
        spark, tmp_path / "log", "parquet", ", ".join(f"{k} {name}" for name, k in names.items())
    )
    tables = {
        name: ts.table(
            log.selectExpr("*", f"{k} AS v"), k, columns=["v"], timestamp=F.lit(0).cast("timestamp"), name=k
        )
        for name, k in names.items()
    }
    refused = [(a, b) for a, b in PAIRS if {a, b} <= {*names} and not is_compared(a, b)]
    for one, other in refused:
        left, right = tables[one], tables[other]
        for on in (None, "v"):
            with pytest.raises(
                KeyMismatchError, match=r"keeps them apart.*Cast one side: .*F\.col\("
            ) as error:
                left.join(right, on=on)
            assert f"A key of ({one}) cannot be compared with a key of ({other}): " in error.value.reason
    left, right = tables["bigint"], tables["double"]
    as_global = ts.global_table(
        log, names["double"], columns=[], timestamp=F.lit(0).cast("timestamp"), name="g"
    )
    builds: list[Callable[[], object]] = [
        lambda: left.one_to_many(right, on="v"),
        lambda: left.join_many(ts.lookup(right, on="v")),
        lambda: left.join(as_global, on="v"),
        lambda: ts.stream(log, names["bigint"], columns=[]).join(right, on=names["bigint"]),
    ]
    for build in builds:
        with pytest.raises(KeyMismatchError, match="keeps them apart"):
            build()


def literal(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
