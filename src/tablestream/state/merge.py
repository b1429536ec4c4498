"""When and how runs are merged: newer rows win, and memory is bounded by one chunk per run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tablestream.state.changes import LIVE
from tablestream.state.positions import MIX, all_same, stable_order, starts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tablestream.state.trace_spec import TraceSpec


def runs_to_merge(rows: Sequence[int]) -> int:
    """Return how many of the newest runs, including the one being inserted, are merged into one.

    Starting at the newest run, the merge takes in the preceding run as long as that has less than twice the rows taken
    so far.

    `rows`: the runs' rows, oldest first; the last one is being inserted. Returns: at least 1, which means that nothing
    is merged; 0 if there is no run.

    Notes
    -----
    *Few runs.* After a merge each run has at least twice the rows of the next. Where the merge stopped, the
    preceding run has at least twice the rows that were taken, and the result has no more than these. Elsewhere
    it held before. So n rows lie in at most ``1 + log2(n)`` runs.

    *Few rewrites.* Consider a merge as a series of pairwise merges, which write no less: a run of ``a`` rows, with
    ``b`` newer ones, ``a < 2 b``, becomes one of ``r <= a + b``. Let ``v = a + b - r`` rows vanish.
    If ``v <= b / 2``, then ``r >= a + b / 2 > 1.25 a``: every row of the older run moves up to a run at least
    1.25 times as large, which can happen to a row ``log(n) / log(1.25)`` times.
    If ``v > b / 2``, then ``v > (a + b) / 6``, since ``b > (a + b) / 3``: fewer than 6 rows are written for
    each one that vanishes, and a row vanishes once.
    As long as rows vanish only because they were replaced, ``r`` is no less than either part, so no row moves
    down. A merge that also removes tombstones may move rows down; the rows that vanish pay for this.
    So an inserted row costs O(log n) writes.

    Examples
    --------
    >>> runs_to_merge([1000, 300, 100]), runs_to_merge([1000, 150, 100]), runs_to_merge([400, 150, 100])
    (1, 2, 3)
    """
    taken = count = 0
    for size in reversed(rows):
        if count and size >= 2 * taken:
            break
        taken += size
        count += 1
    return count


@dataclass(frozen=True)
class Piece:
    """A part of a run to merge: its range of hashes, and how to read it."""

    min_hash: int
    max_hash: int
    load: Callable[[], pl.DataFrame]


def merge(
    sources: Sequence[Sequence[Piece]],
    spec: TraceSpec,
    *,
    drop_tombstones: bool,
    expired_before: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Merge runs, newest first, into frames that together are sorted by hash and hold the newest rows.

    Rows that expired before `expired_before` become tombstones, as older versions of them may lie in other runs.

    The merge goes through the ranges of hashes between the ends of the pieces. In each range it reads at most one piece
    of each source (more only where one hash fills several pieces), so memory does not grow with the runs.
    """
    cursors = [_Cursor(source, spec.hash) for source in sources]
    for end in sorted({piece.max_hash for source in sources for piece in source}):
        parts = [part for cursor in cursors for part in cursor.take(end)]
        merged = newest_rows(parts, spec) if len(sources) > 1 else pl.concat(parts)
        if expired_before is not None and spec.expires is not None:
            merged = _expired(merged, spec, expired_before)
        yield without_tombstones(merged) if drop_tombstones else merged


def without_tombstones(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out tombstones."""
    live = rows[LIVE].to_numpy()
    return rows if live.all() else rows[pl.Series(np.flatnonzero(live))]


def _expired(rows: pl.DataFrame, spec: TraceSpec, before: int) -> pl.DataFrame:
    """Turn expired rows into tombstones."""
    over = (pl.col(spec.expires or "") < before).fill_null(value=False)
    kept = {spec.hash, spec.unique_hash, spec.expires, LIVE, *spec.identity}
    emptied = (pl.when(~over).then(name).alias(name) for name in rows.columns if name not in kept)
    return rows.with_columns((pl.col(LIVE) & ~over).alias(LIVE), *emptied)


class _Cursor:
    """The position of the merge in one run."""

    def __init__(self, pieces: Sequence[Piece], hash_column: str) -> None:
        self._pieces = pieces
        self._hash = hash_column
        self._index = 0
        self._row = 0

    def take(self, end: int) -> Iterator[pl.DataFrame]:
        """Take the remaining rows whose hash is at most `end`."""
        while self._index < len(self._pieces) and self._pieces[self._index].min_hash <= end:
            piece = self._pieces[self._index]
            frame = piece.load()
            if piece.max_hash > end:
                stop = int(np.searchsorted(frame[self._hash].to_numpy(), end, side="right"))
                yield frame[self._row : stop]
                self._row = stop
                return
            yield frame[self._row :]
            self._index, self._row = self._index + 1, 0


def newest_rows(frames: Iterable[pl.DataFrame], spec: TraceSpec) -> pl.DataFrame:
    """From frames, newest first, keep the first version of every row, sorted by hash."""
    stacked = pl.concat(frames, rechunk=True)
    kept = _first_by_hash(stacked, spec)
    return stacked[_first_by_columns(stacked, spec) if kept is None else kept]


def _first_by_hash(stacked: pl.DataFrame, spec: TraceSpec) -> pl.Series | None:
    """Find the row numbers of first versions by hash alone; None if hashes do not suffice."""
    if spec.unique and spec.unique_hash is None:
        return None
    hashes = stacked[spec.hash].to_numpy()
    identity = hashes if spec.unique_hash is None else (hashes * MIX) ^ stacked[spec.unique_hash].to_numpy()
    order = stable_order(identity)
    first = starts(identity[order])
    later = np.flatnonzero(~first)
    # Versions of a row are adjacent in `order`. If all neighbours of equal hash are versions of one row,
    # then all rows of that hash are; otherwise two different rows of one hash are neighbours somewhere.
    if not all_same(stacked, spec.identity, order[later], order[later - 1]):
        return None
    kept = order[first]
    if spec.unique_hash is not None:
        kept = kept[stable_order(hashes[kept])]
    return pl.Series(kept)


def _first_by_columns(stacked: pl.DataFrame, spec: TraceSpec) -> pl.Series:
    """Find the row numbers of first versions by the columns themselves: slower, but correct for any hash."""
    return (
        stacked.select(list(dict.fromkeys((spec.hash, *spec.identity))))
        .with_row_index("_row")
        .unique(subset=list(spec.identity), keep="first")
        .sort(spec.hash, "_row")["_row"]
    )
