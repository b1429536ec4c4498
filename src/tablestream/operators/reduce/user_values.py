"""Conversion of values to what the user's functions receive, and of what they return.

A value fits a column if the column's type represents exactly that value, and the value is of a matching kind:

=========================  =====================================================================
type                       fits
=========================  =====================================================================
boolean                    a bool
tinyint ... bigint         an int in the type's range, and no bool
float, double              a float (rounded to the type, not to infinity); an int that it holds exactly
decimal(p, s)              a Decimal or an int, with at most s digits after the point that are not 0
string, binary             a str that is valid Unicode; bytes
date                       a date that is no datetime
timestamp, timestamp_ntz   a datetime with a time zone; one without
interval day to second     a timedelta
array                      a list, a tuple or a NumPy array
struct                     a dict with the names of its fields, or a list or tuple with as many values
map                        a dict, or a list of pairs; no key is None or appears twice
=========================  =====================================================================

NumPy's numbers, booleans and strings fit like Python's. None fits everywhere except as a map key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import polars as pl

from tablestream.base.data_text import cut_text, data_text
from tablestream.errors import FunctionValueError
from tablestream.operators.calendar import EPOCH_DAY, FIRST_US, LAST_US
from tablestream.operators.cells import KEY, VALUE, as_json, dtype
from tablestream.operators.reduce.collected import hashable

Convert = Callable[[Any], Any]
#: A conversion, and a description of the values that it accepts.
_Conversion = tuple[Convert, str]

_BITS: dict[type[pl.DataType], int] = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_NAMES: dict[type[pl.DataType], str] = {
    pl.Boolean: "boolean", pl.Int8: "tinyint", pl.Int16: "smallint", pl.Int32: "int", pl.Int64: "bigint",
    pl.Float32: "float", pl.Float64: "double", pl.String: "string", pl.Binary: "binary", pl.Date: "date",
    pl.Duration: "interval day to second", pl.List: "array", pl.Struct: "struct", pl.Map: "map",
}  # fmt: skip
_EPOCH, _EPOCH_NTZ = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamp_ntz
_MICROSECOND, _HOUR_US = timedelta(microseconds=1), 3_600_000_000
#: What None means: in a column or a part of one, and as the whole aggregate.
IS_NULL, DELETES = " None stands for null.", " None deletes the group."


def type_name(kind: pl.DataType) -> str:
    """Return Spark's name of a type.

    Examples
    --------
    >>> type_name(pl.Decimal(8, 2))
    'decimal(8,2)'
    """
    if isinstance(kind, pl.Decimal):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "timestamp_ntz" if kind.time_zone is None else "timestamp"
    return _NAMES[type(kind)]


def reader(kind: pl.DataType, column: str) -> Convert | None:
    """Return the conversion from a column's cells to what users see; None if cells need no conversion.

    The conversion raises `FunctionValueError` for a date that Python cannot represent.

    Lists and dictionaries are new objects, so a function may change them. A map whose keys Python cannot hash is a list
    of pairs.
    """
    if isinstance(kind, pl.Datetime):
        return _reading(kind, column, _moment if kind.time_zone is not None else _local_time)
    if isinstance(kind, pl.Date):
        return _reading(kind, column, lambda days: date.fromordinal(days + EPOCH_DAY))
    if isinstance(kind, pl.List):
        inner = reader(dtype(kind.inner), f"{column}.element")
        return _reading(kind, column, list if inner is None else lambda cell: list(map(inner, cell)))
    if isinstance(kind, pl.Struct):
        parts = {one.name: any_reader(one.dtype, f"{column}.{one.name}") for one in kind.fields}
        return _reading(kind, column, lambda cell: {name: read(cell[name]) for name, read in parts.items()})
    if isinstance(kind, pl.Map):
        key, value = any_reader(kind.key, f"{column}.key"), any_reader(kind.value, f"{column}.value")
        made = list if isinstance(kind.key, pl.List | pl.Struct) else dict
        return _reading(
            kind, column, lambda cell: made((key(part[KEY]), value(part[VALUE])) for part in cell)
        )
    return None


def any_reader(kind: Any, column: str) -> Convert:
    """Return the conversion from a column's cells to what users see, also if cells need none."""
    return reader(dtype(kind), column) or (lambda cell: cell)


def _reading(kind: pl.DataType, column: str, convert: Convert) -> Convert:
    """Convert values that are not null; raise for those that cannot be converted."""

    def read(cell: Any) -> Any:
        if cell is None:
            return None
        try:
            return convert(cell)
        except (OverflowError, ValueError) as problem:
            raise FunctionValueError(
                f"Column '{column}' has the {type_name(kind)} {cut_text(as_json(cell, kind))}, which Python cannot"
                " represent.",
                hint="Exclude the column with group_by(..., value=[...]), or cast it to a string there.",
            ) from problem

    return read


def _moment(time_us: int) -> datetime:
    """The datetime of a timestamp: in UTC or, if Python cannot represent that year, in the nearest zone where it can.

    The zone has a whole-hour offset. So the end of the year 9999 in New York is ``9999-12-31 23:59:59-05:00``.
    """
    if FIRST_US <= time_us <= LAST_US:
        return _EPOCH + timedelta(0, 0, time_us)
    behind, ahead = -(-(time_us - LAST_US) // _HOUR_US), -(-(FIRST_US - time_us) // _HOUR_US)
    hours = ahead if time_us < FIRST_US else -behind
    zone = timezone(timedelta(hours=hours))  # raises for a day or more
    return _local_time(time_us + hours * _HOUR_US).replace(tzinfo=zone)


def _local_time(time_us: int) -> datetime:
    return _EPOCH_NTZ + timedelta(0, 0, time_us)


def writer(kind: pl.DataType, column: str, none: str = IS_NULL) -> Convert:
    """Return the conversion from what a function returned for a column to a cell; it raises for what does not fit.

    `kind`, `column`: the column's type and name. `none`: what None means there, for the hint.
    """
    convert, wanted = _conversion(kind, column)

    def write(value: Any) -> Any:
        if value is None:
            return None
        try:
            cell = convert(value)
        except (TypeError, ValueError, ArithmeticError):
            cell = None
        if cell is None:
            raise misfit(value, column, type_name(kind), wanted, none)
        return cell

    return write


def misfit(value: Any, column: str, name: str, wanted: str, none: str) -> FunctionValueError:
    """Return the error for a value that does not fit."""
    return FunctionValueError(
        f"A function returned {data_text(value)} ({type(value).__name__}) for column '{column}', which does not fit"
        f" {name}.",
        hint=f"Return {wanted}.{none}",
    )


def _conversion(kind: pl.DataType, column: str) -> _Conversion:
    """A conversion that returns a cell for a value that fits, and returns None or raises for one that does not."""
    if isinstance(kind, pl.List | pl.Struct | pl.Map):
        return _conversion_of_parts(kind, column)
    if isinstance(kind, pl.Decimal):
        before = kind.precision - kind.scale
        words = f"a Decimal or an int with at most {before} digits before the point and {kind.scale} after it"
        return _to_decimal(kind), words
    if isinstance(kind, pl.Datetime):
        zoned = kind.time_zone is not None
        return _to_time(zoned=zoned), f"a datetime {'with' if zoned else 'without'} a time zone"
    if type(kind) in _BITS:
        bits = _BITS[type(kind)] - 1
        return _to_integer(1 << bits), f"an int from -2**{bits} to 2**{bits} - 1"
    return _FLAT[type(kind)]


def _conversion_of_parts(kind: pl.List | pl.Struct | pl.Map, column: str) -> _Conversion:
    if isinstance(kind, pl.List):
        return _to_array(writer(dtype(kind.inner), f"{column}.element")), "a list or a tuple"
    if isinstance(kind, pl.Struct):
        parts = {one.name: writer(dtype(one.dtype), f"{column}.{one.name}") for one in kind.fields}
        return _to_struct(parts), f"a dict or a tuple of {', '.join(parts)}"
    parts = {KEY: writer(dtype(kind.key), f"{column}.key", none="")}
    parts[VALUE] = writer(dtype(kind.value), f"{column}.value")
    return _to_map(_to_struct(parts)), "a dict without None as a key"


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _to_integer(limit: int) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is int or _is_int(value):
            return int(value) if -limit <= value < limit else None
        return None

    return convert


def _to_float(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value)
    return float(value) if _is_int(value) and float(value) == value else None


def _to_narrow_float(value: Any) -> Any:
    wide = _to_float(value)
    if wide is None:
        return None
    (narrow,) = struct.unpack("<f", struct.pack("<f", wide))  # raises if it would be infinite
    return None if _is_int(value) and narrow != wide else narrow


def _to_decimal(kind: pl.Decimal) -> Convert:
    exact = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    zero = Decimal(0).scaleb(-kind.scale)

    def convert(value: Any) -> Any:
        if isinstance(value, Decimal):
            number = value
        elif _is_int(value):
            number = Decimal(int(value))
        else:
            return None
        return (exact.quantize(number, zero) or zero) if number.is_finite() else None  # -0 is 0

    return convert


def _to_string(value: Any) -> Any:
    return value.encode().decode() if isinstance(value, str) else None


def _to_days(value: Any) -> Any:
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return value.toordinal() - EPOCH_DAY if is_date else None


def _to_time(*, zoned: bool) -> Convert:
    epoch = _EPOCH if zoned else _EPOCH_NTZ

    def convert(value: Any) -> Any:
        if isinstance(value, datetime) and (value.utcoffset() is not None) is zoned:
            return _whole_us(value - epoch)
        return None

    return convert


def _to_interval(value: Any) -> Any:
    if not isinstance(value, timedelta):
        return None
    us = _whole_us(value)
    return None if us is None or not -(1 << 63) <= us < 1 << 63 else timedelta(microseconds=us)


def _whole_us(value: Any) -> Any:
    """A timedelta in microseconds. Those of pandas may be NaT, or have parts of a microsecond, which would be lost."""
    if type(value) is not timedelta and getattr(value, "nanoseconds", None):
        return None
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _to_array(part: Convert) -> Convert:
    return lambda value: list(map(part, value)) if isinstance(value, list | tuple | np.ndarray) else None


def _to_struct(parts: dict[str, Convert]) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            value = [value[name] for name in parts] if value.keys() == parts.keys() else None
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            return None
        return {name: part(one) for (name, part), one in zip(parts.items(), value, strict=True)}

    return convert


def _to_map(pair: Convert) -> Convert:
    def convert(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value if isinstance(value, list) else None
        made = None if pairs is None else list(map(pair, pairs))
        if made is None or any(one is None or one[KEY] is None for one in made):
            return None
        return made if len({hashable(one[KEY]) for one in made}) == len(made) else None

    return convert


_FLAT: dict[type[pl.DataType], _Conversion] = {
    pl.Boolean: (lambda value: bool(value) if isinstance(value, bool | np.bool_) else None, "a bool"),
    pl.Float32: (_to_narrow_float, "a float, or an int that a float holds exactly"),
    pl.Float64: (_to_float, "a float, or an int that a double holds exactly"),
    pl.String: (_to_string, "a str of valid Unicode"),
    pl.Binary: (
        lambda value: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None,
        "bytes",
    ),
    pl.Date: (_to_days, "a date without a time"),
    pl.Duration: (_to_interval, "a timedelta of at most 2**63 microseconds"),
}
