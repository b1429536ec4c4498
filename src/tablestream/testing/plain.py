"""Plain values of a test's rows, which need no Spark.

A column is plain if each of its cells is null, a Python value of exactly its type, or a text of the common form of
its type, such as ``-12``, ``10.5``, ``true``, ``2024-01-02`` and ``2024-01-02 09:00``. For these the results are those
of Spark's casts. Everything else is `None` here, and Spark's to evaluate or to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from tablestream.base.type_lattice import BITS

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FRACTION = re.compile(r"-?([0-9]{1,15})(?:\.([0-9]{1,15}))?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
_TIME_ZONE, _LARGE = "spark.sql.session.timeZone", "spark.sql.execution.arrow.useLargeVarTypes"


def plain_columns(
    spark: SparkSession, kinds: Sequence[T.DataType], rows: Sequence[tuple[Any, ...]]
) -> list[pa.Array] | None:
    """Return the columns of rows, in the types in which Spark hands them over; None if one is not plain."""
    if spark.conf.get(_LARGE) == "true":
        return None
    is_utc, columns = in_utc(spark), []
    for at, kind in enumerate(kinds):
        column = _column(kind, [row[at] for row in rows], is_utc=is_utc)
        if column is None:
            return None
        columns.append(column)
    return columns


def plain_text(value: Any, kind: T.DataType, known: Mapping[str, str | None], *, is_utc: bool) -> str | None:
    """Return the text of a value of Arrow as Spark's cast writes it.

    `known`: texts of other values of the column, by `repr`. Only numbers with a fraction need them.

    Raises `LookupError`: the value is not plain, or has no known text.
    """
    if value is None:
        return None
    if type(kind) in BITS or _is_text(kind) or isinstance(kind, T.DateType):
        return str(value)
    if isinstance(kind, T.BooleanType):
        return "true" if value else "false"
    if isinstance(kind, T.TimestampType) and is_utc:
        text = str(value.replace(tzinfo=None))
        return text.rstrip("0") if "." in text else text
    return known[repr(value)]


def in_utc(spark: SparkSession) -> bool:
    """Whether the session's times are in UTC."""
    return spark.conf.get(_TIME_ZONE) == "UTC"


def _column(kind: T.DataType, cells: Sequence[Any], *, is_utc: bool) -> pa.Array | None:
    """A column of Arrow; None if a cell is not plain."""
    given = [one for one in cells if one is not None]
    if not given:
        return pa.nulls(len(cells), to_arrow_type(kind, timezone="UTC"))
    are_texts = all(type(one) is str for one in given) and not _is_text(kind)
    read = _from_text(kind, is_utc=is_utc) if are_texts else _from_python(kind)
    if read is None:
        return None
    try:
        values = [None if one is None else read(one) for one in cells]
    except ValueError:
        return None
    return pa.array(values, to_arrow_type(kind, timezone="UTC"))


def _from_text(kind: T.DataType, *, is_utc: bool) -> Callable[[str], Any] | None:
    """What reads a text of a type, or raises a ValueError."""
    if isinstance(kind, T.DecimalType):
        return lambda cell: _decimal(cell, kind)
    if type(kind) in BITS:
        return lambda cell: _whole(_matched(_WHOLE, cell, int), BITS[type(kind)])
    if isinstance(kind, T.TimestampType) and is_utc:
        return lambda cell: _matched(_TIME, cell, datetime.fromisoformat).replace(tzinfo=UTC)
    readers: dict[type[T.DataType], Callable[[str], Any]] = {
        T.BooleanType: _boolean,
        T.DoubleType: lambda cell: _matched(_FRACTION, cell, float),
        T.DateType: lambda cell: _matched(_DATE, cell, date.fromisoformat),
    }
    return readers.get(type(kind))


def _from_python(kind: T.DataType) -> Callable[[Any], Any] | None:
    """What checks a value of a type, or raises a ValueError."""
    if type(kind) in BITS:
        return lambda cell: _whole(_exactly(int, cell), BITS[type(kind)])
    exact: dict[type[T.DataType], type] = {T.BooleanType: bool, T.DoubleType: float, T.DateType: date}
    python = str if _is_text(kind) else exact.get(type(kind))
    return None if python is None else lambda cell: _exactly(python, cell)


def _is_text(kind: T.DataType) -> bool:
    """Whether it is a string, and neither of a length nor of a collation."""
    return kind == T.StringType()


def _exactly(kind: type, cell: Any) -> Any:
    if type(cell) is not kind:
        raise ValueError
    return cell


def _matched(form: re.Pattern[str], cell: str, read: Callable[[str], Any]) -> Any:
    if not form.fullmatch(cell):
        raise ValueError
    return read(cell)


def _boolean(cell: str) -> bool:
    if cell not in {"true", "false"}:
        raise ValueError
    return cell == "true"


def _whole(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _decimal(cell: str, kind: T.DecimalType) -> Decimal:
    """A number that has a place for each of its digits."""
    found = _FRACTION.fullmatch(cell)
    if found is None or len(found[1]) > kind.precision - kind.scale or len(found[2] or "") > kind.scale:
        raise ValueError
    return Decimal(cell)
