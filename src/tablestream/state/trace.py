"""Traces: what operators remember of their inputs.

A trace is a list of immutable runs, oldest first, each sorted by the hash of the lookup key. A row is identified
by its key and unique columns. Of several versions the one in the newest run counts; if that is a tombstone, the row
is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tablestream.state.changes import LIVE
from tablestream.state.merge import Piece, merge, newest_rows, runs_to_merge, without_tombstones
from tablestream.state.positions import Ints, expanded, stable_order, starts
from tablestream.state.run import RunInfo, RunStorage, compact
from tablestream.state.trace_spec import TraceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_ROW = "_row"


@dataclass(frozen=True)
class Found:
    """Live rows that were found, by place."""

    rows: pl.DataFrame
    """The hash and identity columns, and ``_row`` (Int64): the place of the row in `column`."""
    chunks: tuple[pl.DataFrame, ...]
    """The chunks that contain them."""
    spec: TraceSpec

    def column(self, name: str) -> pl.Series:
        """Return a column of all rows in the chunks, without copying it."""
        parts = [chunk[name] for chunk in self.chunks]
        return pl.concat(parts, rechunk=False) if parts else self.spec.nothing[name]


class Trace:
    """The state of one operator input in one shard; `shard.ShardState.trace` makes it.

    `storage`: reads and writes its runs. `runs`: the live runs, oldest first. `next_number`: returns the number of a
    new run.
    """

    def __init__(self, storage: RunStorage, runs: Sequence[RunInfo], next_number: Callable[[], int]) -> None:
        self.spec = storage.spec
        self._storage = storage
        self._runs = tuple(runs)
        self._dropped: list[RunInfo] = []
        self._next_number = next_number

    @property
    def runs(self) -> tuple[RunInfo, ...]:
        """The live runs, oldest first."""
        return self._runs

    def lookup(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Find the live rows of some keys.

        `keys`: the hash column and the key columns; distinct rows. Null key parts and NaN equal themselves. A null hash
        has no rows. Returns: the newest version of every row that is not a tombstone, with the trace's schema, in no
        particular order.

        The cost grows with the keys and the rows found, and with the logarithm of the rows stored. Columns are
        gathered only for the rows found. Chunks whose range of hashes excludes all keys are not read.
        """
        asked, distinct = self._asked(keys)
        found = [rows for _, _, rows, _ in self._search(asked, list(self.spec.schema), distinct=distinct)]
        return self._live(found, settled=distinct and not self.spec.unique)

    def between(self, low: int, high: int) -> pl.DataFrame:
        """Find the live rows whose hash lies between two values, both included.

        `low`, `high`: the range. It is meaningful if the hash column holds a time. Returns: the newest version of every
        row that is not a tombstone, with the trace's schema, in no particular order.

        Cost grows with the rows in the range, and with the logarithm of the rows stored. Chunks outside the range
        are not read.
        """
        found = [rows for run in reversed(self._runs) for rows in self._within(run, low, high)]
        return self._live(found, settled=len(self._runs) == 1)

    def reach(self, low: int, rows: int) -> int | None:
        """Return the smallest hash up to which at least so many rows are stored, counted from `low` on.

        Tombstones and replaced rows count. None if fewer are stored. Cost grows with `rows` in each run.
        """
        found = [pl.Series([], dtype=pl.Int64)]
        for run in self._runs:
            wanted = rows
            for part in self._within(run, low, run.max_hash):
                found.append(part[self.spec.hash].head(wanted))
                wanted -= found[-1].len()
                if not wanted:
                    break
        hashes = pl.concat(found).sort()
        return int(hashes[rows - 1]) if hashes.len() >= rows else None

    def _within(self, run: RunInfo, low: int, high: int) -> Iterator[pl.DataFrame]:
        """Read the rows of a run whose hash lies in a range, chunk by chunk."""
        for index, chunk in enumerate(run.chunks):
            if chunk.max_hash >= low and chunk.min_hash <= high:
                rows = self._storage.read(run, index)
                hashes = rows[self.spec.hash]
                first, end = hashes.search_sorted(low, "left"), hashes.search_sorted(high, "right")
                yield rows[int(first) : int(end)]

    def find(self, keys: pl.DataFrame) -> Found:
        """Find the live rows of some keys, without their payload.

        `keys`: as for `lookup`. Returns: the rows that exist, from which their other columns can be gathered part by
        part.
        """
        asked, distinct = self._asked(keys)
        return self._found(self._search(asked, self._light.names(), distinct=distinct))

    def find_between(self, low: Ints, high: Ints) -> Found:
        """Find the live rows whose hash lies in one of several ranges, without their payload.

        `low`, `high`: the ranges, both ends included; in any order, and they may overlap. Returns: as for `find`. Cost
        as for `between`.
        """
        low, high = _disjoint(low, high)
        return self._found(self._search_between(low, high, self._light.names()))

    def _search_between(
        self, low: Ints, high: Ints, columns: Sequence[str]
    ) -> Iterator[tuple[RunInfo, int, pl.DataFrame, Ints]]:
        """Search the chunks, newest run first, for rows in disjoint rising ranges of hashes, as `_search` does."""
        for run in reversed(self._runs):
            for index, chunk in enumerate(run.chunks):
                mine = (low <= chunk.max_hash) & (high >= chunk.min_hash)
                if not mine.any():
                    continue
                stored = self._storage.read(run, index)
                hashes = stored[self.spec.hash].to_numpy()
                first, end = np.searchsorted(hashes, low[mine]), np.searchsorted(hashes, high[mine], "right")
                _, places = expanded(first, end)
                if len(places):
                    yield run, index, stored[list(columns)][pl.Series(places)], places

    @property
    def _light(self) -> pl.Schema:
        """The columns that tell rows apart, and whether they are live."""
        names = (self.spec.hash, self.spec.unique_hash, *self.spec.identity, LIVE)
        return pl.Schema({name: self.spec.schema[name] for name in names if name})

    def _found(self, parts: Iterable[tuple[RunInfo, int, pl.DataFrame, Ints]]) -> Found:
        """Collect the live rows that a search finds, with the columns of `_light`."""
        places: list[pl.DataFrame] = []
        chunks: list[pl.DataFrame] = []
        start: dict[tuple[int, int], int] = {}
        for run, index, rows, places_in_chunk in parts:
            if (run.number, index) not in start:
                start[run.number, index] = sum(chunk.height for chunk in chunks)
                chunks.append(self._storage.read(run, index))
            places.append(rows.hstack([pl.Series(_ROW, places_in_chunk + start[run.number, index])]))
        light = replace(self.spec, schema=pl.Schema({**self._light, _ROW: pl.Int64()}))
        several = len(places) > 1
        rows = newest_rows(_popped(places), light) if several else pl.concat(places or [light.nothing])
        found = without_tombstones(rows)[[name for name in light.schema if name != LIVE]]
        return Found(found, tuple(chunks), self.spec)

    def _asked(self, keys: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
        """The keys to search for, sorted by hash, and whether no two of them share a hash."""
        keys = _conform(keys, {name: self.spec.schema[name] for name in (self.spec.hash, *self.spec.key)})
        if keys[self.spec.hash].has_nulls():  # records that point at nothing; no stored row has a null hash
            keys = keys.filter(pl.col(self.spec.hash).is_not_null())
        keys = _sorted_by_hash(keys, self.spec)
        return keys, bool(starts(keys[self.spec.hash].to_numpy()).all())

    def _search(
        self, keys: pl.DataFrame, columns: Sequence[str], *, distinct: bool
    ) -> Iterator[tuple[RunInfo, int, pl.DataFrame, Ints]]:
        """Search the chunks, newest run first, for the rows of some keys: `columns`, and their places in the chunk."""
        find = self._find if distinct else self._find_slowly
        for run in reversed(self._runs):
            for index in range(len(run.chunks)):
                if not keys.height:
                    return
                found = find(run, index, keys, columns)
                if found is None:
                    continue
                rows, places, of_key = found
                yield run, index, rows, places
                if not self.spec.unique:  # a key has one row: older runs need not be searched for it
                    rest = np.setdiff1d(np.arange(keys.height), of_key, assume_unique=True)
                    keys = keys[pl.Series(rest)]

    def _find(
        self, run: RunInfo, index: int, keys: pl.DataFrame, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, Ints, Ints] | None:
        """Find the rows of one chunk for sorted keys of distinct hashes, their places, and the number of each key.

        Return None if there are none. The chunk is not read if no key's hash lies in its range.
        """
        chunk = run.chunks[index]
        hashes = keys[self.spec.hash].to_numpy()
        first = 0
        if len(run.chunks) > 1:
            first = int(np.searchsorted(hashes, chunk.min_hash, side="left"))
            hashes = hashes[first : int(np.searchsorted(hashes, chunk.max_hash, side="right"))]
            if not len(hashes):
                return None
        stored = self._storage.read(run, index)
        found = stored[self.spec.hash].to_numpy()
        of_key, place = expanded(np.searchsorted(found, hashes), np.searchsorted(found, hashes, "right"))
        of_key = of_key + first
        if not len(place):
            return None
        rows = stored[list(columns)][pl.Series(place)]
        for name in self.spec.key:  # equal hashes do not imply equal keys
            wanted = keys[name][pl.Series(of_key)]
            if not rows[name].equals(wanted, null_equal=True):
                equal = rows[name].eq_missing(wanted)
                rows, place, of_key = rows.filter(equal), place[equal.to_numpy()], of_key[equal.to_numpy()]
        return (rows, place, of_key) if len(place) else None

    def _find_slowly(
        self, run: RunInfo, index: int, keys: pl.DataFrame, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, Ints, Ints] | None:
        """Do the same if two of the keys share a hash, which almost never happens; name no keys as found."""
        stored = self._storage.read(run, index).with_row_index(_ROW)
        rows = stored.join(keys, on=list(self.spec.key), how="semi", nulls_equal=True)
        places = rows[_ROW].cast(pl.Int64).to_numpy()
        return (rows.select(columns), places, places[:0]) if len(places) else None

    def _live(self, found: list[pl.DataFrame], *, settled: bool) -> pl.DataFrame:
        """The live newest versions of rows found newest first, with their own strings."""
        found = [rows for rows in found if rows.height]
        if not found:
            return self.spec.nothing
        rows = pl.concat(found) if settled or len(found) == 1 else newest_rows(found, self.spec)
        return compact(without_tombstones(rows))

    def insert(self, rows: pl.DataFrame, *, expired_before: int | None = None) -> None:
        """Add versions of rows as a new run, and merge runs if needed.

        `rows`: at most one for each key and unique columns, which is not checked. A row that is not live is a
        tombstone; its other columns are null. Without rows, no run is added. `expired_before`: rows that expired before
        this (see `TraceSpec.expires`) are removed when runs are merged.

        See `merge.runs_to_merge` for what is merged and what that costs. Tombstones are removed when the oldest run is
        merged.
        """
        if not rows.height:
            return
        rows = _sorted_by_hash(_conform(rows, self.spec.schema), self.spec)
        merged = runs_to_merge([*(run.rows for run in self._runs), rows.height]) - 1
        kept, taken = self._runs[: len(self._runs) - merged], self._runs[len(self._runs) - merged :]
        hashes = rows[self.spec.hash]
        sources = [[Piece(int(hashes[0]), int(hashes[-1]), lambda: rows)]]
        sources += [list(self._pieces(run)) for run in reversed(taken)]
        frames = merge(sources, self.spec, drop_tombstones=not kept, expired_before=expired_before)
        made = self._storage.write(self._next_number, frames)
        self._runs = (*kept, made) if made else kept
        self._dropped += taken
        self._storage.use.merges += bool(taken)

    def _pieces(self, run: RunInfo) -> Iterator[Piece]:
        for index, chunk in enumerate(run.chunks):
            yield Piece(chunk.min_hash, chunk.max_hash, partial(self._storage.read, run, index))

    def frames(self, hashed: int | None = None) -> Iterator[pl.DataFrame]:
        """Yield all live rows, together sorted by hash, or those of one hash; needs memory for one chunk of each run.

        Chunks whose range excludes the hash are not read.
        """
        if hashed is not None:
            yield self.between(hashed, hashed)
            return
        sources = [list(self._pieces(run)) for run in reversed(self._runs)]
        yield from merge(sources, self.spec, drop_tombstones=True)

    def scan(self) -> pl.DataFrame:
        """Return all live rows, sorted by hash; needs memory for all of them."""
        frames = [compact(frame) for frame in self.frames()]
        return pl.concat(frames) if frames else self.spec.nothing

    def remove_dropped(self) -> None:
        """Remove the runs that merges replaced from the state of record; `shard.ShardState.commit` calls it."""
        for run in self._dropped:
            self._storage.remove(run)
        self._dropped = []


def _conform(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Take the schema's columns in its order; a column that holds only nulls may still lack its type."""
    frame = frame[list(schema)]
    return frame if frame.schema == schema else frame.cast(pl.Schema(schema))


def _sorted_by_hash(rows: pl.DataFrame, spec: TraceSpec) -> pl.DataFrame:
    """Sort rows by hash."""
    hashes = rows[spec.hash].to_numpy()
    return rows if (hashes[1:] >= hashes[:-1]).all() else rows[pl.Series(stable_order(hashes))]


def _popped(frames: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Hand over frames one by one, so that nobody else holds them when they have been copied."""
    while frames:
        yield frames.pop(0)


def _disjoint(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Unite ranges that overlap; those that remain rise."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    first = np.append(True, low[1:] > high[:-1])[: len(low)]
    return low[first], high[np.append(first[1:], True)[: len(low)]]
