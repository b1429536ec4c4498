"""What the changes of one key said was valid when: after each change, the values over time.

A change of a versioned table holds from its time to the next known one: a late change corrects a part of the past. Any
other change holds from its time on, and replaces what was said of later times, as the row of a table does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Change:
    """A change of one key."""

    time: datetime
    """From when on it holds."""
    value: str | None
    """The row as text. None: the row is deleted."""
    is_latest: bool | None = None
    """Of a versioned table, whether no later version was known. None: the table is not versioned."""
    micro_batch: int | None = None
    """The micro-batch that emitted it. None: not known."""
    changed: str = ""
    """The columns in which the row differs from that of the change before, as text. Empty: there is none, or all are
    alike."""


@dataclass(frozen=True)
class Span:
    """A time for which a value holds. `end`: None if it holds until further notice."""

    begin: datetime
    end: datetime | None
    value: str | None


@dataclass(frozen=True)
class Moment:
    """What is known after a change: spans, which of them it wrote, and whether it corrects an earlier change."""

    change: Change
    spans: tuple[Span, ...]
    written: int
    is_correction: bool


def moments(changes: Sequence[Change], last: int | None = None) -> list[Moment]:
    """Return what is known after each change of a key, in the order of their emission.

    `last` moments get spans, from the span on that their earliest change is in. Default: all moments get all spans, of
    which there are as many as the square of the changes.

    Examples
    --------
    >>> day = [datetime(2024, 1, number) for number in (1, 2, 3)]
    >>> *_, last = moments([Change(day[0], "a", True), Change(day[2], "c", True), Change(day[1], "b", False)])
    >>> [span.value for span in last.spans], last.is_correction
    (['a', 'b', 'c'], True)
    """
    if not changes:
        return []
    times: list[datetime] = []
    values: list[str | None] = []
    found = []
    first_shown = 0 if last is None else max(0, len(changes) - last)
    since = min(change.time for change in changes[first_shown:])
    for number, change in enumerate(changes):
        is_correction = bool(times) and change.time <= times[-1]
        at = bisect_left(times, change.time)
        until = len(times) if change.is_latest is None else bisect_right(times, change.time)
        times[at:until], values[at:until] = [change.time], [change.value]
        first = max(0, bisect_left(times, since) - 1)
        spans = _spans(times[first:], values[first:]) if number >= first_shown else ()
        found.append(Moment(change, spans, at - first, is_correction))
    return found


def _spans(times: Sequence[datetime], values: Sequence[str | None]) -> tuple[Span, ...]:
    ends = [*times[1:], None]
    return tuple(map(Span, times, ends, values))
