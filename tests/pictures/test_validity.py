"""What is known after each change of a key: compared with a slow definition, point by point."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.pictures.validity import Change, Moment, moments

START = datetime(2024, 1, 2, 9)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def changes(times: list[int], *, versioned: bool) -> list[Change]:
    """Changes with these times; the value is the number of the change, and every fourth deletes."""
    return [
        Change(at(time), None if number % 4 == 3 else str(number), True if versioned else None)
        for number, time in enumerate(times)
    ]


def valid(moment: Moment, time: datetime) -> str | None:
    """The value that is valid at a time, as the moment knows it."""
    found = [one for one in moment.spans if one.begin <= time and (one.end is None or time < one.end)]
    assert len(found) <= 1
    return found[0].value if found else None


def expected(known: list[Change], time: datetime) -> str | None:
    """The value valid at a time, from its definition."""
    before = [(number, one) for number, one in enumerate(known) if one.time <= time]
    if not before:
        return None
    if known[0].is_latest is None:  # the row was replaced from its time on
        return before[-1][1].value
    return max(before, key=lambda pair: (pair[1].time, pair[0]))[1].value


@pytest.mark.parametrize("versioned", [False, True])
@given(times=st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_the_value_at_every_time_is_that_of_the_definition(times: list[int], *, versioned: bool) -> None:
    given_changes = changes(times, versioned=versioned)
    known = moments(given_changes)
    assert [one.change for one in known] == given_changes
    for number, moment in enumerate(known, start=1):
        for minute in range(-1, 8):
            assert valid(moment, at(minute)) == expected(given_changes[:number], at(minute))
        written = moment.spans[moment.written]
        assert (written.begin, written.value) == (moment.change.time, moment.change.value)


def test_a_change_that_is_not_after_all_earlier_ones_is_a_correction() -> None:
    for versioned in (False, True):
        known = moments(changes([1, 5, 5, 3, 6], versioned=versioned))
        assert [one.is_correction for one in known] == [False, False, True, True, False]


def test_in_an_unversioned_table_a_late_row_is_followed_by_later_ones() -> None:
    # The row of time 3 replaced that of time 5: what comes at 4 is after the row that it replaces.
    known = moments(changes([5, 3, 4], versioned=False))
    assert [one.is_correction for one in known] == [False, True, False]
    assert [(one.begin, one.value) for one in known[-1].spans] == [(at(3), "1"), (at(4), "2")]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.booleans(), st.integers(1, 5))
def test_the_last_moments_have_the_newest_of_their_spans(
    times: list[int], versioned: bool, last: int
) -> None:
    given_changes = changes(times, versioned=versioned)
    since = min(change.time for change in given_changes[-last:])
    for whole, cut in zip(moments(given_changes)[-last:], moments(given_changes, last)[-last:], strict=True):
        assert (cut.change, cut.is_correction) == (whole.change, whole.is_correction)
        assert cut.spans == whole.spans[len(whole.spans) - len(cut.spans) :]
        assert cut.spans[cut.written] == whole.spans[whole.written]
        assert all(span in cut.spans for span in whole.spans if span.end is None or span.end > since)


def test_ten_thousand_changes_take_no_more_spans_than_are_shown() -> None:
    known = moments(changes(list(range(10_000)), versioned=True), last=40)
    assert sum(len(one.spans) for one in known) <= 40 * 41
