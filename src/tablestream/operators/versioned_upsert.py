"""Emit the changes of a versioned table, each with the row that was valid at its time before.

"Before" is the row as of the change's time, among the versions that arrived earlier.

=========  ========  ==================================================================================
before     change    emits
=========  ========  ==================================================================================
any        row       the row, with the row before if `keep_old`
row        tombston  the tombstone, with the row before if `keep_old`
none       tombston  nothing if `quiet` (no row is deleted), else the tombstone
=========  ========  ==================================================================================

A late row that is followed by a tombstone ends at the tombstone's time. If such tombstones may have been left out
(`quiet`), the tombstone is emitted then.

`final`: only the last change of each key and time in the micro-batch is emitted, and "before" means before the
micro-batch. A tombstone is emitted where a row was, or where it ends one. A change is then the latest if it is so at
the end of the micro-batch.

References
----------
``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from tablestream.operators.events import gather
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_changes
from tablestream.operators.upsert import OLD
from tablestream.operators.versions import OpenVersions, Versions, running_maximum
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, TS
from tablestream.state.trace import TraceSpec


@dataclass(frozen=True)
class VersionedUpsert(Operator):
    """Remember the versions of a table's rows.

    Parameters
    ----------
    keys
        The key columns and their dtypes.
    value
        The dtype of the value.
    history_us
        How far back the table has versions, in microseconds.
    forgetful
        See `versions`.
    keep_old
        Whether the row before is emitted (as ``old``).
    quiet
        Whether to leave out a tombstone if no row was valid at its time.
    final
        Whether to emit only the last change per key, time and micro-batch.

    Notes
    -----
    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``_latest``, ``v``; the output also has ``old``.
    """

    keys: pl.Schema
    value: pl.DataType
    history_us: int
    forgetful: bool = False
    keep_old: bool = False
    quiet: bool = True
    final: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("keep_old", "quiet", "final", "history_us")

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**keyed_changes(self.keys, self.value), LATEST: pl.Boolean()}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        old = {OLD: self.value} if self.keep_old else {}
        return (pl.Schema({**self.inputs[0], **old}),)

    @property
    def _versions(self) -> Versions:
        return Versions(KEY_HASH, self.keys, self.value, self.history_us, self.forgetful)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit the changes according to the rules above, and remember the versions."""
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        versions = self._versions.opened(trace, arrived)
        highest = running_maximum(arrived[TS], context.observed)
        bounds = (highest - self.history_us).to_list()
        if len(highest):
            context.observed = int(highest[-1])
        told = (
            self._final(arrived, versions, bounds) if self.final else self._every(arrived, versions, bounds)
        )
        yield Emission(0, self._emitted(arrived, versions, told))
        versions.remember(trace, context.observed)

    def _every(self, arrived: pl.DataFrame, versions: OpenVersions, bounds: Sequence[int]) -> Iterator[_Told]:
        """Write the changes in their order, and emit each one."""
        for at, (time, exists, latest) in enumerate(arrived.select(TS, LIVE, LATEST).iter_rows()):
            history = versions.written(at)
            before = history.as_of(time, bounds[at])
            versions.put(at, time, exists=exists)
            if exists or before >= 0 or not self.quiet:
                yield _Told(at, 0, time, versions.row(at, exists=exists), before, latest)
            end = history.end(time)
            if self.quiet and exists and before < 0 and end is not None and history.as_of(end, None) < 0:
                yield _Told(at, 1, end, -1, versions.row(at), end == history.times[-1])

    def _final(self, arrived: pl.DataFrame, versions: OpenVersions, bounds: Sequence[int]) -> Iterator[_Told]:
        """Write all changes, and emit what differs from before where a row is or was valid, or one ends."""
        changes = list(arrived.select(TS, LIVE).iter_rows())
        before = [versions.written(at).as_of(time, bounds[at]) for at, (time, _) in enumerate(changes)]
        last: dict[tuple[int, int], tuple[int, int]] = {}
        for at, (time, exists) in enumerate(changes):
            versions.put(at, time, exists=exists)
            last[versions.key(at), time] = (at, before[at])
            end = versions.written(at).end(time)
            if exists and before[at] < 0 and end is not None:
                last.setdefault((versions.key(at), end), (at, -1))
        for (_, time), (at, was) in last.items():
            history = versions.written(at)
            row, ended = history.as_of(time, None), history.as_of(time - 1, None)
            if row >= 0 or was >= 0 or ended >= 0:
                newest = not history.times or time >= history.times[-1]
                old = was if was >= 0 or row >= 0 else ended
                yield _Told(at, int(time != changes[at][0]), time, row, old, newest)

    def _emitted(self, arrived: pl.DataFrame, versions: OpenVersions, told: Iterable[_Told]) -> pl.DataFrame:
        """Pair the emitted changes with the rows that were valid before them."""
        columns = list(zip(*told, strict=True)) or [()] * len(_Told._fields)
        at, number, time, row, old, latest = columns
        rows = np.array(row, dtype=np.int64)
        images = [gather(versions.payload, np.array(old, dtype=np.int64)).alias(OLD)] if self.keep_old else []
        return arrived.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys)[list(at)].with_columns(
            pl.Series(NUMBER, number, dtype=pl.Int64),
            pl.Series(TS, time, dtype=pl.Int64),
            pl.Series(LIVE, rows >= 0, dtype=pl.Boolean),
            pl.Series(LATEST, latest, dtype=pl.Boolean),
            gather(versions.payload, rows).alias("v"),
            *images,
        )


class _Told(NamedTuple):
    """An emission: its change, number there, time, the places of its row and the one before, whether it is latest."""

    at: int
    number: int
    time: int
    row: int
    before: int
    latest: bool
