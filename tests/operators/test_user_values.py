"""What fits a column of an aggregate, and what is refused."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from math import inf, nan
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tablestream.errors import FunctionValueError
from tablestream.operators.cells import cells, column
from tablestream.operators.reduce.user_values import DELETES, reader, writer

Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - as users make them
ZONED, LOCAL = pl.Datetime("us", "UTC"), pl.Datetime("us")
NESTED = pl.Struct({"a": pl.Int32, "b": pl.List(pl.Decimal(8, 2))})
AT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


def kept(value: Any, kind: pl.DataType) -> Any:
    """What the next call sees of a value, after a restart: it is written into a column, and read from there."""
    found = cells(column([writer(kind, "c")(value)], kind))[0]
    read = reader(kind, "c")
    return found if read is None else read(found)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pl.Boolean(), np.True_, True),
        (pl.Int8(), -128, -128),
        (pl.Int64(), np.int32(7), 7),
        (pl.Int64(), Level.HIGH, 3),
        (pl.Int64(), -(2**63), -(2**63)),
        (pl.Float64(), 3, 3.0),
        (pl.Float64(), np.float32(0.5), 0.5),
        (pl.Float64(), -inf, -inf),
        (pl.Float32(), 0.1, 0.10000000149011612),
        (pl.Float32(), inf, inf),
        (pl.Decimal(8, 2), Decimal("999999.99"), Decimal("999999.99")),
        (pl.Decimal(8, 2), Decimal("1.500"), Decimal("1.50")),
        (pl.Decimal(8, 2), 7, Decimal("7.00")),
        (pl.Decimal(38, 0), 10**38 - 1, Decimal(10**38 - 1)),
        (pl.String(), Word.YES, "yes"),
        (pl.String(), np.str_("é"), "é"),
        (pl.Binary(), bytearray(b"\xff"), b"\xff"),
        (pl.Date(), date(9999, 12, 31), date(9999, 12, 31)),
        (ZONED, AT.astimezone(EAST), AT),
        (ZONED, pd.Timestamp(AT), AT),
        (LOCAL, datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 12)),
        (pl.Duration("us"), timedelta(days=-1, microseconds=1), timedelta(days=-1, microseconds=1)),
        (pl.List(pl.Int64()), (1, None), [1, None]),
        (pl.List(pl.Int64()), np.arange(2), [0, 1]),
        (pl.List(pl.List(pl.Date())), [[date(1, 1, 1)], None, []], [[date(1, 1, 1)], None, []]),
        (NESTED, {"b": [1, None], "a": 2}, {"a": 2, "b": [Decimal("1.00"), None]}),
        (NESTED, Pair(None, ()), {"a": None, "b": []}),
        (NESTED, [None, None], {"a": None, "b": None}),
        (pl.Map(pl.String(), ZONED), OrderedDict(x=AT, y=None), {"x": AT, "y": None}),
        (pl.Map(pl.Date(), pl.Int64()), {date(2024, 1, 1): 1}, {date(2024, 1, 1): 1}),
        (pl.Map(pl.List(pl.Int64()), pl.String()), [((1,), "x")], [([1], "x")]),
        (pl.Map(pl.String(), NESTED), {"k": None}, {"k": None}),
    ],
)
def test_a_value_that_fits_is_kept_as_it_is(kind: pl.DataType, value: Any, expected: Any) -> None:
    found = kept(value, kind)
    assert found == expected
    assert repr(found) == repr(expected).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
    assert kept(None, kind) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pl.Boolean(), 1),
        (pl.Boolean(), "true"),
        (pl.Int8(), 128),
        (pl.Int64(), 2**63),
        (pl.Int64(), 1.0),
        (pl.Int64(), 1.7),
        (pl.Int64(), nan),
        (pl.Int64(), True),
        (pl.Int64(), "1"),
        (pl.Int64(), Decimal(1)),
        (pl.Int64(), (1,)),
        (pl.Float64(), 2**53 + 1),
        (pl.Float64(), 10**400),
        (pl.Float64(), Decimal("0.5")),
        (pl.Float64(), True),
        (pl.Float64(), "0.5"),
        (pl.Float32(), 1e300),
        (pl.Float32(), 2**24 + 1),
        (pl.Decimal(8, 2), Decimal("1000000.00")),
        (pl.Decimal(8, 2), Decimal("0.001")),
        (pl.Decimal(8, 2), 10**6),
        (pl.Decimal(8, 2), 1.5),
        (pl.Decimal(8, 2), Decimal("NaN")),
        (pl.Decimal(8, 2), Decimal("Infinity")),
        (pl.String(), 5),
        (pl.String(), b"x"),
        (pl.String(), "\ud800"),
        (pl.Binary(), "x"),
        (pl.Date(), AT),
        (pl.Date(), "2024-02-29"),
        (ZONED, datetime(2024, 2, 29)),
        (ZONED, date(2024, 2, 29)),
        (ZONED, 1_700_000_000),
        (ZONED, pd.NaT),
        (ZONED, pd.Timestamp(AT) + pd.Timedelta(1, "ns")),
        (LOCAL, AT),
        (LOCAL, pd.NaT),
        (pl.Duration("us"), timedelta.max),
        (pl.Duration("us"), time(12)),
        (pl.List(pl.Int64()), {1, 2}),
        (pl.List(pl.Int64()), (one for one in (1, 2))),
        (pl.List(pl.Int64()), deque([1])),
        (pl.List(pl.String()), "text"),
        (pl.List(pl.Int64()), [1, 1.5]),
        (pl.List(pl.List(pl.Int8())), [[1], [300]]),
        (NESTED, {"a": 1}),
        (NESTED, {"a": 1, "b": [], "c": 2}),
        (NESTED, (1, [], 2)),
        (NESTED, 5),
        (NESTED, {"a": 1, "b": [Decimal("1234567.00")]}),
        (pl.Map(pl.String(), pl.Int64()), {None: 1}),
        (pl.Map(pl.String(), pl.Int64()), {"a": "1"}),
        (pl.Map(pl.String(), pl.Int64()), {1: 1}),
        (pl.Map(pl.String(), pl.Int64()), ["a"]),
        (pl.Map(pl.String(), pl.Int64()), 1),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(kind: pl.DataType, value: Any) -> None:
    with pytest.raises(FunctionValueError, match="for column 'total"):
        writer(kind, "total")(value)


def test_the_error_names_the_place_inside_the_value_and_the_value() -> None:
    kind = pl.Struct({"m": pl.Map(pl.String, pl.List(pl.Decimal(8, 2)))})
    with pytest.raises(FunctionValueError) as caught:
        writer(kind, "total")({"m": {"k": [Decimal("1.234")]}})
    assert str(caught.value) == (
        "[TABLESTREAM_FUNCTION_VALUE] A function returned Decimal('1.234') (Decimal) for column"
        " 'total.m.value.element', which does not fit decimal(8,2). Return a Decimal or an int with at most 6 digits"
        " before the point and 2 after it. None stands for null."
    )
    with pytest.raises(FunctionValueError, match=r"x{150,}'\.\.\. \(str\)"):
        writer(pl.Int64(), "n")("x" * 100_000)


def test_the_hint_says_what_none_means() -> None:
    with pytest.raises(FunctionValueError, match=r"Return a bool\. None deletes the group\.$"):
        writer(pl.Boolean(), "only", DELETES)(1)
    with pytest.raises(FunctionValueError, match=r"Return a str of valid Unicode\.$"):  # no key is None
        writer(pl.Map(pl.String, pl.Int64), "m")({1: 1})


NEW_YORK_END = 253402318799_000_000  # 9999-12-31 23:59:59 in New York
TOKYO_BEGIN = -62135629200_000_000  # 0001-01-01 00:00:00 nine hours before UTC


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [
        (NEW_YORK_END, "9999-12-31 23:59:59-05:00"),
        (253402300799_999_999, "9999-12-31 23:59:59.999999+00:00"),
        (253402300800_000_000, "9999-12-31 23:00:00-01:00"),
        (TOKYO_BEGIN, "0001-01-01 00:00:00+09:00"),
        (-62135596800_000_000, "0001-01-01 00:00:00+00:00"),
        (-62135596800_000_001, "0001-01-01 00:59:59.999999+01:00"),
    ],
)
def test_a_timestamp_beyond_pythons_years_in_utc_is_seen_in_a_zone_that_has_it(
    time_us: int, shown: str
) -> None:
    read = reader(ZONED, "until")
    assert read is not None
    assert str(read(time_us)) == shown
    assert writer(ZONED, "until")(read(time_us)) == time_us
    assert max(read(time_us), AT) == (AT if time_us < 0 else read(time_us))


@pytest.mark.parametrize(
    ("kind", "cell", "shown"),
    [
        (ZONED, NEW_YORK_END + 86_400_000_000, 'timestamp "+10000-01-02T04:59:59.000000Z"'),
        (LOCAL, NEW_YORK_END, 'timestamp_ntz "+10000-01-01T04:59:59.000000"'),
        (pl.Date(), -719528, 'date "0000-01-01"'),
        (pl.List(ZONED), [2**62], 'timestamp "+148108-07-06T14:00:27.387904Z"'),
    ],
)
def test_a_time_that_python_does_not_have_is_an_error_with_its_column(
    kind: pl.DataType, cell: Any, shown: str
) -> None:
    read = reader(kind, "until")
    assert read is not None
    with pytest.raises(FunctionValueError) as caught:
        read(cell)
    assert "Column 'until" in str(caught.value)
    assert shown in str(caught.value)
