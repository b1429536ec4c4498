"""Dates and times as numbers, for all years: Python's ``datetime`` ends at the years 1 and 9999.

Dates are days since 1970-01-01; timestamps are microseconds since then, in UTC; times of day are microseconds since
midnight. Debezium writes the infinity of a timestamp as one of two numbers, after and before all other times.
"""

from __future__ import annotations

import re

from tablestream.connectors.infinity import AFTER_ALL, BEFORE_ALL
from tablestream.operators.calendar import DAY_US, date_text, day_of

MICROS_A_SECOND = 1_000_000

_DATE = r"(?P<year>[+-]?\d{4,9})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
_ONLY_DATE, _ONLY_TIME = re.compile(_DATE + _ZONE), re.compile(_TIME + _ZONE)
_TIMESTAMP = re.compile(f"{_DATE}[T ]{_TIME}{_ZONE}")


class NotATimeError(ValueError):
    """The text is not a date or time, or has more digits than microseconds."""


def days_of(text: str) -> int:
    """Read a date such as ``2024-02-29`` or ``-0043-03-15Z``: days since 1970."""
    return _days(_matched(_ONLY_DATE, text))


def micros_of_day(text: str) -> int:
    """Read a time of day such as ``13:14:15.5Z``: microseconds since midnight; the offset does not count."""
    return _micros(_matched(_ONLY_TIME, text))


def micros_of(text: str) -> int:
    """Read a timestamp such as ``2024-02-29T13:14:15.5Z``: microseconds since 1970 in UTC.

    ``infinity`` and ``-infinity`` are Debezium's numbers for them.
    """
    if text in {"infinity", "-infinity"}:
        return AFTER_ALL if text == "infinity" else BEFORE_ALL
    found = _matched(_TIMESTAMP, text)
    return _days(found) * DAY_US + _micros(found) - _offset(found["zone"]) * MICROS_A_SECOND


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
        raise NotATimeError("is not a date or time in ISO form")
    return found


def _days(found: re.Match[str]) -> int:
    try:
        return day_of(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError as error:
        raise NotATimeError("is not a day of the calendar") from error


def _micros(found: re.Match[str]) -> int:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    fraction = (found["fraction"] or "").ljust(9, "0")
    if hour > 24 or minute > 59 or second > 59:
        raise NotATimeError("is not a time of day")
    if fraction[6:].strip("0"):
        raise NotATimeError("has more digits than microseconds")
    micros = ((hour * 60 + minute) * 60 + second) * MICROS_A_SECOND + int(fraction[:6])
    if micros > DAY_US:
        raise NotATimeError("is not a time of day")
    return micros


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    parts = zone[1:].replace(":", "")
    seconds = int(parts[:2]) * 3600 + int(parts[2:4] or 0) * 60 + int(parts[4:6] or 0)
    return -seconds if zone[0] == "-" else seconds
