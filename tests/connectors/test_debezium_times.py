"""Dates and times of every year as numbers and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.connectors import infinity
from tablestream.connectors.debezium import times
from tablestream.connectors.debezium.scalars import MisfitError
from tablestream.operators.calendar import DAY_US, date_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(), ZONES)
def test_a_timestamp_with_an_offset_is_read_as_python_reads_it(moment: datetime, zone: timezone) -> None:
    text = moment.replace(tzinfo=zone).isoformat()
    passed = moment.replace(tzinfo=UTC) - EPOCH - (zone.utcoffset(None) or timedelta())
    assert times.micros_of(text) == passed // timedelta(microseconds=1)


@given(st.integers(-(10**8), 10**8))
def test_a_day_of_any_year_comes_back(day: int) -> None:
    assert times.days_of(date_text(day)) == day
    assert times.days_of(date_text(day + 146_097)) == day + 146_097


@given(st.integers(-(2**62), 2**62))
def test_a_timestamp_of_any_year_comes_back(micros: int) -> None:
    assert times.micros_of(times.timestamp_text(micros * 1000)) == micros


@given(st.integers(0, DAY_US))
def test_a_time_of_day_comes_back(micros: int) -> None:
    assert times.micros_of_day(times.time_text(micros * 1000)) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-02-30T00:00:00Z",
        "2024-02-29T25:00:00Z",
        "2024-02-29T24:00:01Z",
        "2024-02-29T00:60:00Z",
        "2024-02-29T00:00:60Z",
        "2024-02-29T00:00:00.1234567Z",
        "2024-02-29T00:00:00Zx",
        "\u0662024-02-29T00:00:00Z",
        "2024-02-29",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(MisfitError):
        times.micros_of(text)


def test_years_before_christ_count_from_zero() -> None:
    assert date_text(-719_528) == "0000-01-01"
    assert times.days_of("-0043-03-15") == -735_160
    assert times.micros_of("infinity") == infinity.AFTER_ALL
    assert times.micros_of("-infinity") == infinity.BEFORE_ALL
