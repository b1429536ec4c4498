"""What the versions of a right row mean to the left rows that are joined as of a time.

Each left row asks for the version of its right row at its *as-of time*:

==========  =========================================================  ==========================================
             found as of ``t``                                          changed by a version that begins at ``v``
==========  =========================================================  ==========================================
backward    the last version up to ``t``, if it is a row               ``v <= t <`` the next version
forward     the first row from ``t`` on                                the last row before ``v`` ``< t <= v``
==========  =========================================================  ==========================================

A *span* is such a range of as-of times, with the row that is found there now. A version that is no row, and takes none
away, makes no span.

A version is forgotten when it ended before ``observed - history``. What was found before the first version that is
still known, and before that bound, is then unknown: such left rows keep what they have, and no version changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from tablestream.operators.buffer.time_index import BEGIN, END
from tablestream.operators.versions import History, OpenVersions


class Span(NamedTuple):
    """As-of times from `low` up to, but not including, `high`, at which a right change finds something else.

    `put`: the position of the right change. `before`, `row`: the places of the payload found before and now; -1: none.
    """

    put: int
    low: int
    high: int
    before: int
    row: int


@dataclass
class AsOfVersions:
    """Writes versions, and looks them up, in the order of their places.

    Attributes
    ----------
    versions
        The versions: `puts` are the right changes, and those `asked` for the left messages.
    forward
        Which of the rules above applies.
    bound
        How far back the history reaches at this place.
    spans
        What the right changes have changed.
    """

    versions: OpenVersions
    forward: bool
    bound: int = BEGIN
    spans: list[Span] = field(default_factory=list)

    def put(self, position: int, time: int, bound: int, *, exists: bool) -> None:
        """Write a right change."""
        self.bound = bound
        history = self.versions.written(position)
        known_since, before = self._known_since(history), self._found(history, time)
        if self.forward and not exists and not self._has_row(history, time):
            before = -1  # it takes no row away, so nothing changes
        self.versions.put(position, time, exists=exists)
        row = self._found(history, time)
        if self.forward:
            last = history.row_before(time)
            low, high = known_since if last is None else last + 1, time + 1
        else:
            end = history.end(time)
            low, high = time, END if end is None else end
        if low < high and (before >= 0 or exists):
            self.spans.append(Span(position, low, high, before, row))

    def look_up(self, position: int, as_of: int) -> int | None:
        """The place of the payload that a left message finds; -1: none. None: it is not known any more."""
        history = self.versions.asked(position)
        return None if as_of < self._known_since(history) else self._found(history, as_of)

    def _known_since(self, history: History) -> int:
        """Since when all versions of a row are known."""
        history.forget(self.bound)
        return min(self.bound, history.times[0]) if history.times else self.bound

    def _found(self, history: History, time: int) -> int:
        return history.following(time) if self.forward else history.as_of(time, None)

    @staticmethod
    def _has_row(history: History, time: int) -> bool:
        at = history.place(time)
        return at is not None and history.rows[at] >= 0


def settled(spans: Iterable[Span], steps: Sequence[int], keys: Sequence[int]) -> Iterator[Span]:
    """Settle the spans of each step and key: an as-of time changes once, by the last right change that concerns it.

    `steps`, `keys`: the step and the number of the key of each right change.

    Examples
    --------
    >>> list(settled([Span(0, 3, 9, -1, 7), Span(1, 5, 9, 7, -1)], [1, 1], [0, 0]))
    [Span(put=0, low=3, high=5, before=-1, row=7)]
    """
    for _, of_step in groupby(spans, key=lambda span: steps[span.put]):
        of_keys: dict[int, list[Span]] = {}
        for span in of_step:
            of_keys.setdefault(keys[span.put], []).append(span)
        for together in of_keys.values():
            yield from together if len(together) == 1 else _cut(together)


def _cut(spans: Sequence[Span]) -> Iterator[Span]:
    """Cut spans where one begins or ends, and leave out those that find what was found before."""
    times = sorted({time for span in spans for time in (span.low, span.high)})
    for low, high in pairwise(times):
        mine = [span for span in spans if span.low <= low and high <= span.high]
        if mine and mine[0].before != mine[-1].row:
            yield mine[-1]._replace(low=low, high=high, before=mine[0].before)
