"""A versioned table: its changes, with whether each is the latest of its key, and with the row before.

`VersionedTable` reads changes as they arrive:

======================================  ======================================================================
change                                  emits
======================================  ======================================================================
older than ``observed - history``       nothing; dropped, counted. ``observed`` is of all keys of the shard
older than another one of its key       the change, marked as not the latest
any other                               the change, marked as the latest
======================================  ======================================================================

`VersionedUpsert` emits each with the row that was valid at its time before. "Before" is the row as of the change's
time, among the versions that arrived earlier.

=========  ========  ==================================================================================
before     change    emits
=========  ========  ==================================================================================
any        row       the row, with the row before if `keep_old`
row        tombston  the tombstone, with the row before if `keep_old`
none       tombston  nothing if `minimal` (no row is deleted), else the tombstone
=========  ========  ==================================================================================

A late row that is followed by a tombstone ends at the tombstone's time. If such tombstones may have been left out
(`minimal`), the tombstone is emitted then.

`final`: only the last change of each key and time in the micro-batch is emitted, and "before" means before the
micro-batch. A tombstone is emitted where a row was, or where it ends one. A change is then the latest if it is so at
the end of the micro-batch.

References
----------
KIP-889, KIP-914; ``docs/semantics/versioned-tables.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable
from tablestream.operators.reasons import EXPIRED
from tablestream.operators.upsert import OLD
from tablestream.operators.versions import OpenVersions, Versions, columns_of
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: An emission: its change, its number there, its time, the places of its row and the row before, whether it is latest.
_CHANGE: Mapping[str, type[pl.DataType]] = {
    "at": pl.Int64,
    NUMBER: pl.Int64,
    TS: pl.Int64,
    "row": pl.Int64,
    "before": pl.Int64,
    LATEST: pl.Boolean,
}
_Change = tuple[int, int, int, int, int, bool]


@dataclass(frozen=True)
class _OfVersions(OfTable):
    """Remembers the versions of a table's rows."""

    history_us: int
    """How far back the table has versions, in microseconds."""
    forgetful: bool = False
    """See `versions`."""

    keeps_shard = True

    @property
    def _versions(self) -> Versions:
        return Versions(KEY_HASH, self.keys, self.value, self.history_us, self.forgetful)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)


@dataclass(frozen=True)
class VersionedTable(_OfVersions):
    """Distinguish late changes from the latest; those older than the history are not accepted.

    Notes
    -----
    Input 0: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same and ``_latest``.
    """

    parameters = ("history_us",)
    reasons = (EXPIRED,)
    rejects = True

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**self.inputs[0], LATEST: pl.Boolean()}),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        bounds, context.observed = self._versions.bounds(arrived[TS], context.observed)
        in_time = arrived[TS] >= bounds
        accepted = arrived.filter(in_time)
        context.reject(EXPIRED, arrived.filter(~in_time))
        trace = context.trace(self.traces[0].name)
        versions = self._versions.opened(trace, accepted)
        latest = [
            versions.put(position, time, exists=exists)
            for position, (time, exists) in enumerate(accepted.select(TS, LIVE).iter_rows())
        ]
        changes = accepted.rename({SEQ: PARENT}).drop(STEP)
        yield Emission(0, changes.with_columns(pl.Series(LATEST, latest, dtype=pl.Boolean)))
        versions.remember(trace, context.observed)


@dataclass(frozen=True)
class VersionedUpsert(_OfVersions):
    """Emit changes with the row before.

    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``_latest``, ``v``; the output also has ``old``.
    """

    keep_old: bool = False
    """Whether the row before is emitted (as ``old``)."""
    minimal: bool = True
    """Whether to leave out a tombstone if no row was valid at its time."""
    final: bool = False
    """Whether to emit only the last change per key, time and micro-batch."""

    parameters = ("keep_old", "minimal", "final", "history_us")

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**super().inputs[0], LATEST: pl.Boolean()}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        old = {OLD: self.value} if self.keep_old else {}
        return (pl.Schema({**self.inputs[0], **old}),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        versions = self._versions.opened(trace, arrived)
        found, context.observed = self._versions.bounds(arrived[TS], context.observed)
        bounds = found.to_list()
        changes = (self._final if self.final else self._every)(arrived, versions, bounds)
        yield Emission(0, self._emitted(arrived, versions, columns_of(changes, _CHANGE)))
        versions.remember(trace, context.observed)

    def _every(
        self, arrived: pl.DataFrame, versions: OpenVersions, bounds: Sequence[int]
    ) -> Iterator[_Change]:
        """Write the changes in their order, and emit each one."""
        for at, (time, exists, latest) in enumerate(arrived.select(TS, LIVE, LATEST).iter_rows()):
            history = versions.written(at)
            before = history.as_of(time, bounds[at])
            versions.put(at, time, exists=exists)
            if exists or before >= 0 or not self.minimal:
                yield (at, 0, time, versions.row(at, exists=exists), before, latest)
            end = history.end(time)
            if self.minimal and exists and before < 0 and end is not None and history.as_of(end, None) < 0:
                yield (at, 1, end, -1, versions.row(at), end == history.times[-1])

    def _final(
        self, arrived: pl.DataFrame, versions: OpenVersions, bounds: Sequence[int]
    ) -> Iterator[_Change]:
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
                yield (at, int(time != changes[at][0]), time, row, old, newest)

    def _emitted(self, arrived: pl.DataFrame, versions: OpenVersions, changes: pl.DataFrame) -> pl.DataFrame:
        """The emitted changes, each with the row that was valid before it."""
        payload, rows = versions.payload, ints(changes["row"])
        old = [gather(payload, ints(changes["before"])).alias(OLD)] if self.keep_old else []
        keys = arrived.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys)[changes["at"]]
        return keys.hstack(changes.select(NUMBER, TS, LATEST)).with_columns(
            pl.Series(LIVE, rows >= 0, dtype=pl.Boolean), gather(payload, rows).alias("v"), *old
        )
