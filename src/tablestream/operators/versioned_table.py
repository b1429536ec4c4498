"""A versioned table: emits its changes as they arrive, and whether each is the latest of its key.

======================================  ======================================================================
change                                  emits
======================================  ======================================================================
older than ``observed - history``       nothing; dropped, counted. ``observed`` is of all keys of the shard
older than another one of its key       the change, marked as not the latest
any other                               the change, marked as the latest
======================================  ======================================================================

References
----------
KIP-889, KIP-914; ``docs/semantics/versioned-tables.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.operator import PARENT, Context, Emission, Operator, keyed_changes
from tablestream.operators.reasons import EXPIRED
from tablestream.operators.versions import Versions
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.trace import TraceSpec


@dataclass(frozen=True)
class VersionedTable(Operator):
    """Remember a table's versions, and distinguish late changes from the latest.

    Parameters
    ----------
    keys
        The key columns and their dtypes.
    value
        The dtype of the value.
    history_us
        How far back versions are kept, and late changes accepted, in microseconds.
    forgetful
        See `versions`.

    Notes
    -----
    Input 0: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same and ``_latest``.
    """

    keys: pl.Schema
    value: pl.DataType
    history_us: int
    forgetful: bool = False

    parameters = ("history_us",)
    reasons = (EXPIRED,)
    rejects = True
    keeps_shard = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**self.inputs[0], LATEST: pl.Boolean()}),)

    @property
    def _versions(self) -> Versions:
        return Versions(KEY_HASH, self.keys, self.value, self.history_us, self.forgetful)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Write the changes in their order, and emit them."""
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
