"""The changes of a versioned table beside what was valid at their time before.

"Before" is the row as of the change's time, among the versions that came until then.

=========  ========  ==================================================================================
before     change    emits
=========  ========  ==================================================================================
any        row       the row, beside the row before if that is kept
row        tombston  the tombstone, beside the row before if that is kept
none       tombston  nothing if `quiet` (no row goes), else the tombstone
=========  ========  ==================================================================================

`final`: of each key and time the last change of the micro-batch only, nothing where no row was nor is, and "before"
means before the micro-batch. A change is then the latest if it is so at the end of the micro-batch.

References
----------
``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import gather
from tablestream.operators.operator import PARENT, Context, Emission, keyed_changes
from tablestream.operators.upsert import OLD
from tablestream.operators.versions import OpenVersions, Versions, running_maximum
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, TS
from tablestream.state.trace import TraceSpec


@dataclass(frozen=True)
class VersionedUpsert:
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
        As `versions` says.
    keep_old
        Whether the row before is emitted (as ``old``).
    quiet
        Whether a tombstone where no row was valid is left out.
    final
        Whether only the last change per key, time and micro-batch leaves.

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
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**keyed_changes(self.keys, self.value), LATEST: pl.Boolean()}),)

    @property
    def _versions(self) -> Versions:
        return Versions(KEY_HASH, self.keys, self.value, self.history_us, self.forgetful)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit the changes that are changes, and remember the versions."""
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        versions = self._versions.opened(trace, arrived)
        highest = running_maximum(arrived[TS], context.observed)
        before = self._write(arrived, versions, (highest - self.history_us).to_list())
        if len(highest):
            context.observed = int(highest[-1])
        yield Emission(0, self._emitted(arrived, versions, before))
        versions.remember(trace, context.observed)

    def _write(self, arrived: pl.DataFrame, versions: OpenVersions, bounds: Sequence[int]) -> list[int]:
        """Write the changes in their order; return the place of what was valid before each."""
        changes = list(arrived.select(TS, LIVE).iter_rows())

        def valid(at: int) -> int:
            return versions.written(at).as_of(changes[at][0], bounds[at])

        before = [valid(at) for at in range(len(changes))] if self.final else []
        for at, (time, exists) in enumerate(changes):
            if not self.final:
                before.append(valid(at))
            versions.put(at, time, exists=exists)
        return before

    def _emitted(self, arrived: pl.DataFrame, versions: OpenVersions, before: Sequence[int]) -> pl.DataFrame:
        """Put the changes that leave beside what was valid before them."""
        old = np.array(before, dtype=np.int64)
        rows = arrived.rename({SEQ: PARENT})
        leaves = pl.lit(value=True) if not (self.quiet or self.final) else pl.col(LIVE) | pl.lit(old >= 0)
        if self.final:
            key = pl.Series("_kid", versions.numbers[0], dtype=pl.Int64)
            newest = pl.Series([versions.written(at).times[-1] for at in range(rows.height)], dtype=pl.Int64)
            rows = rows.with_columns(key, (pl.col(TS) == newest).alias(LATEST))
            leaves &= pl.col(PARENT) == pl.col(PARENT).last().over("_kid", TS)
        chosen = rows.select(leaves).to_series().to_numpy() if rows.height else np.zeros(0, dtype=bool)
        images = [gather(versions.payload, old[chosen]).alias(OLD)] if self.keep_old else []
        shown = rows.filter(pl.Series(chosen)).select(PARENT, KEY_HASH, *self.keys, TS, LIVE, LATEST, "v")
        return shown.with_columns(*images)
