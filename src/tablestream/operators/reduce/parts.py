"""Parts of the messages to groups: results that grow with their group are not all in memory at once.

A list of rows that come one after the other has 1, 2, ..., n values: n messages make n * n / 2. So messages are worked
off in parts, each of which makes about `PART_BYTES`. How much a part makes is known only afterwards: the first one is
small, and each one decides how large the next one is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from tablestream.operators.cells import dtype
from tablestream.operators.reduce.groups import GroupEvents

#: About so many bytes of results are made at once.
PART_BYTES = 32 << 20
#: The most turns of the first part, and by how much the next part may be larger than the one before.
FIRST_TURNS, GROWTH = 1024, 8


def has_any_size(kind: pl.DataType) -> bool:
    """Whether some values of a dtype can be much larger than others."""
    if isinstance(kind, pl.Struct):
        return any(has_any_size(dtype(one.dtype)) for one in kind.fields)
    return isinstance(kind, pl.String | pl.Binary | pl.List)


class Parts:
    """The parts of sorted messages; tell `made` after each of them.

    Parameters
    ----------
    events
        The messages.
    size_bytes
        About how large the largest result is before the first message. None: results do not grow, so there is one part.
    """

    def __init__(self, events: GroupEvents, size_bytes: float | None) -> None:
        self._events, self._turns = events, len(events)
        if size_bytes is not None and len(events) > 1:
            grown = events.messages["v"].estimated_size() / len(events)
            fits = min(PART_BYTES / max(size_bytes, 1.0), (PART_BYTES / max(grown, 1.0)) ** 0.5)
            self._turns = max(1, min(FIRST_TURNS, int(fits)))
        self._fixed, self._taken = size_bytes is None, 0

    def __iter__(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the position of each part's first message, and its messages. No turn is divided."""
        starts = np.append(self._events.turn_start, len(self._events))
        if len(starts) == 1:
            yield 0, self._events.messages
        done = 0
        while done < len(starts) - 1:
            end = min(done + self._turns, len(starts) - 1)
            self._taken = end - done
            yield int(starts[done]), self._events.messages[int(starts[done]) : int(starts[end])]
            done = end

    def made(self, size_bytes: float) -> None:
        """Tell how many bytes of results the last part made."""
        if not self._fixed:
            # As if results grew from nothing, each by as much: then the last part's last one is twice its average.
            fits = self._taken * ((1 + PART_BYTES / max(size_bytes, 1.0)) ** 0.5 - 1)
            self._turns = max(1, min(GROWTH * self._turns, int(fits)))
