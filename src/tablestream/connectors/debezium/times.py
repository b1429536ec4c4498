"""Dates and times of records as columns.

=========  =====================================================  ==============================================
Kind       The record has                                         The column may be
=========  =====================================================  ==============================================
date       days since 1970; text such as ``2024-02-29Z``          date; string; int or bigint, days
time       a count since midnight; text such as ``13:14:15Z``     string; bigint, microseconds
local      a count since 1970; text                               timestamp_ntz, timestamp; string; bigint, microseconds
instant    text such as ``2024-02-29T13:14:15+01:00``; a count    timestamp, timestamp_ntz; string; bigint, microseconds
=========  =====================================================  ==============================================

A timestamp without a zone counts as one in UTC. A timestamp's infinity is the number that Debezium writes for it,
before or after all other times (the years -290308 and 294247), and text ``infinity`` in a string. Nanoseconds that
are not whole microseconds fit a string only.

A count since midnight may be negative or more than a day: MySQL's ``TIME`` is a duration of up to 838:59:59.

As numbers, dates are days since 1970-01-01, timestamps microseconds since then in UTC, and times of day microseconds
since midnight, for all years: Python's ``datetime`` ends at the years 1 and 9999.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from tablestream.connectors import infinity
from tablestream.connectors.debezium.scalars import MisfitError, Modes, Scalar
from tablestream.connectors.debezium.types import Unit, meaning_of
from tablestream.connectors.debezium.wire import Wire
from tablestream.operators.calendar import DAY_US, FIRST_US, LAST_US, date_text, day_of

_NANOS: dict[Unit, int] = {
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
    "isostring": 1_000,
}
_MICROS = range(FIRST_US, LAST_US + 1)
_DAYS = range(FIRST_US // DAY_US, LAST_US // DAY_US + 1)
_INT32 = 1 << 31
_INT64 = 1 << 63
_MICROS_A_SECOND = 1_000_000
_NANOS_OF_LONGEST_TIME = (839 * 3600 * _MICROS_A_SECOND - 1) * 1000

_DATE = r"(?P<year>[+-]?\d{4,9})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
_ONLY_DATE, _ONLY_TIME = re.compile(_DATE + _ZONE), re.compile(_TIME + _ZONE)
_TIMESTAMP = re.compile(f"{_DATE}[T ]{_TIME}{_ZONE}")


def day(wire: Wire, target: T.DataType, _modes: Modes) -> Scalar | None:
    """Convert a date."""
    if isinstance(target, T.StringType):
        return Scalar(lambda value: date_text(_day(value)), pa.string())
    if isinstance(target, T.DateType) and wire.guessed:
        return Scalar(_plausible(_day, _DAYS), pa.int32())
    if isinstance(target, (T.DateType, T.IntegerType)):
        return Scalar(_day, pa.int32(), plain=int)
    return Scalar(_day, pa.int64(), plain=int) if isinstance(target, T.LongType) else None


def time_of_day(wire: Wire, target: T.DataType, _modes: Modes) -> Scalar | None:
    """Convert a time of day."""
    factor = _NANOS[meaning_of(wire).unit]
    if isinstance(target, T.StringType):
        return Scalar(lambda value: time_text(_of_day(value, factor)), pa.string())
    if isinstance(target, T.LongType):
        return Scalar(lambda value: _micros(_of_day(value, factor)), pa.int64())
    return None


def time_as_text(unit: Unit) -> Callable[[Any], str]:
    """Return what writes a count since midnight, in a unit, as text."""
    return lambda value: time_text(_of_day(value, _NANOS[unit]))


def timestamp(wire: Wire, target: T.DataType, _modes: Modes) -> Scalar | None:
    """Convert a timestamp, with or without a zone."""
    meaning = meaning_of(wire)
    unit = meaning.unit
    if isinstance(target, (T.TimestampType, T.TimestampNTZType)) and wire.guessed:
        return Scalar(_plausible(lambda value: _timestamp(value, unit), _MICROS), pa.int64())
    if isinstance(target, (T.TimestampType, T.TimestampNTZType, T.LongType)):
        bulk = _instants if meaning.kind == "instant" else None
        plain = int if unit == "microseconds" else None
        return Scalar(lambda value: _timestamp(value, unit), pa.int64(), plain=plain, bulk=bulk)
    if isinstance(target, T.StringType):
        return Scalar(lambda value: _timestamp_text(value, unit, keep=meaning.kind == "instant"), pa.string())
    return None


def _plausible(read: Callable[[Any], int], known: range) -> Callable[[Any], int]:
    """Read a time; one that is a number, without a schema that says its unit, must be of the years 1 to 9999."""

    def one(value: Any) -> int:
        found = read(value)
        if isinstance(value, str) or found in known or found in infinity.NAMES:
            return found
        raise MisfitError("is outside the years 1 to 9999: set times= to its unit")

    return one


def _instants(values: list[Any]) -> pa.Array:
    """Convert texts with a zone; raises for what Arrow does not read, such as years before 0."""
    texts = pa.array(values, pa.string())
    return pc.cast(texts, pa.timestamp("us", tz="UTC")).view(pa.int64())


def _day(value: Any) -> int:
    if isinstance(value, str):
        return days_of(value)
    if type(value) is int and -_INT32 <= value < _INT32:
        return value
    raise MisfitError("is not a date")


def _of_day(value: Any, factor: int) -> int:
    """Read a time of day, in nanoseconds."""
    if isinstance(value, str):
        return micros_of_day(value) * 1000
    if type(value) is not int or abs(value * factor) > _NANOS_OF_LONGEST_TIME:
        raise MisfitError("is not a time of day")
    return value * factor


def _timestamp(value: Any, unit: Unit) -> int:
    if isinstance(value, str):
        return micros_of(value)
    if type(value) is not int:
        raise MisfitError("is not a timestamp")
    if unit == "nanoseconds" and value in {_INT64 - 1, -_INT64}:
        return infinity.AFTER_ALL if value > 0 else infinity.BEFORE_ALL
    return _micros(value * _NANOS[unit])


def _micros(nanos: int) -> int:
    micros, rest = divmod(nanos, 1000)
    if rest:
        raise MisfitError("has more digits than microseconds, which only a string holds")
    if not -_INT64 <= micros < _INT64:
        raise MisfitError("is too large")
    return micros


def _timestamp_text(value: Any, unit: Unit, *, keep: bool) -> str:
    if isinstance(value, str) and keep:
        return value
    if unit == "nanoseconds" and type(value) is int and -_INT64 < value < _INT64 - 1:
        return timestamp_text(value)
    micros = _timestamp(value, unit)
    return infinity.NAMES.get(micros) or timestamp_text(micros * 1000)


def days_of(text: str) -> int:
    """Read a date such as ``2024-02-29`` or ``-0043-03-15Z``: days since 1970."""
    return _day_of(_matched(_ONLY_DATE, text))


def micros_of_day(text: str) -> int:
    """Read a time of day such as ``13:14:15.5Z``: microseconds since midnight; the offset does not count."""
    return _micros_of_time(_matched(_ONLY_TIME, text))


def micros_of(text: str) -> int:
    """Read a timestamp such as ``2024-02-29T13:14:15.5Z``: microseconds since 1970 in UTC.

    ``infinity`` and ``-infinity`` are Debezium's numbers for them.
    """
    if text in infinity.NAMES.values():
        return infinity.AFTER_ALL if text == "infinity" else infinity.BEFORE_ALL
    found = _matched(_TIMESTAMP, text)
    return _day_of(found) * DAY_US + _micros_of_time(found) - _offset(found["zone"]) * _MICROS_A_SECOND


def time_text(nanos: int) -> str:
    """Write nanoseconds since midnight as a time of day, with as many digits as it needs."""
    seconds, fraction = divmod(abs(nanos), 1_000_000_000)
    digits = f".{fraction:09d}".rstrip("0").rstrip(".")
    sign = "-" if nanos < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def timestamp_text(nanos: int) -> str:
    """Write nanoseconds since 1970 as a timestamp without a zone, with as many digits as it needs."""
    days, rest = divmod(nanos, DAY_US * 1000)
    return f"{date_text(days)}T{time_text(rest)}"


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None or not text.isascii():
        raise MisfitError("is not a date or time in ISO form")
    return found


def _day_of(found: re.Match[str]) -> int:
    try:
        return day_of(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError as error:
        raise MisfitError("is not a day of the calendar") from error


def _micros_of_time(found: re.Match[str]) -> int:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    fraction = (found["fraction"] or "").ljust(9, "0")
    if hour > 24 or minute > 59 or second > 59:
        raise MisfitError("is not a time of day")
    if fraction[6:].strip("0"):
        raise MisfitError("has more digits than microseconds")
    micros = ((hour * 60 + minute) * 60 + second) * _MICROS_A_SECOND + int(fraction[:6])
    if micros > DAY_US:
        raise MisfitError("is not a time of day")
    return micros


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    parts = zone[1:].replace(":", "")
    seconds = int(parts[:2]) * 3600 + int(parts[2:4] or 0) * 60 + int(parts[4:6] or 0)
    return -seconds if zone[0] == "-" else seconds
