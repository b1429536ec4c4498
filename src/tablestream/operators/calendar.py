"""The calendar of all years, in days and microseconds since 1970; Python's dates are those of the years 1 to 9999.

The calendar, and with it the rules of a time zone, repeat after 400 years.
"""

from __future__ import annotations

from datetime import date, time

DAY_US = 86_400_000_000
#: The first and the last microsecond of the years 1 to 9999, as for timestamps in Python and SQL.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
#: The ordinal that Python's dates have for 1970.
EPOCH_DAY = date(1970, 1, 1).toordinal()
_YEARS, _DAYS = 400, 146_097
#: The years that repeat.
CYCLE_US = _DAYS * DAY_US


def day_of(year: int, month: int, day: int) -> int:
    """Return a date's day; raises ValueError for what is none.

    Examples
    --------
    >>> day_of(1970, 1, 2), day_of(10000, 1, 1), day_of(-1, 12, 31)
    (1, 2932897, -719529)
    """
    cycles, rest = divmod(year, _YEARS)
    return date(_YEARS + rest, month, day).toordinal() - EPOCH_DAY + (cycles - 1) * _DAYS


def date_text(day: int) -> str:
    """Write a date in ISO 8601; years outside 1 to 9999 get a sign.

    Examples
    --------
    >>> date_text(2932897), date_text(-719529)
    ('+10000-01-01', '-0001-12-31')
    """
    cycles, rest = divmod(day + EPOCH_DAY - 1, _DAYS)
    within = date.fromordinal(rest + 1)
    year = within.year + cycles * _YEARS
    sign = "+" if year > date.max.year else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{within:%m-%d}"


def clock(day_us: int) -> time:
    """Return the time of day, of a number of microseconds below a day."""
    seconds, us = divmod(day_us, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, us)


def time_text(time_us: int, *, zoned: bool) -> str:
    """Write a time in ISO 8601.

    Examples
    --------
    >>> time_text(253402318799_000_000, zoned=True)
    '+10000-01-01T04:59:59.000000Z'
    """
    day, rest_us = divmod(time_us, DAY_US)
    return f"{date_text(day)}T{clock(rest_us).isoformat('microseconds')}{'Z' if zoned else ''}"
