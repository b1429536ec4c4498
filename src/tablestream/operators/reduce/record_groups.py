"""Records by group: sends a stream's records to their groups; records are never retracted.

=========================  ===========================================================
record                     effect
=========================  ===========================================================
no value                   dropped, counted
a part of the group null   default: a group like any other; compat: dropped, counted
any other                  added to its group
=========================  ===========================================================

`aggregate` and `fold` compute the groups' results and decide when they are emitted.

References
----------
Kafka Streams ``KGroupedStream``; ``docs/semantics/streams.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tablestream.operators.operator import CanBeThin, Context, Emission, keyed_rows
from tablestream.operators.reasons import FAILED, NULL_KEY_OR_VALUE
from tablestream.operators.reduce.aggregate import Aggregate
from tablestream.operators.reduce.fold import Fold
from tablestream.operators.reduce.regroup import IS, OLD, WAS
from tablestream.state.changes import FOREIGN_HASH, LIVE
from tablestream.state.trace_spec import TraceSpec


@dataclass(frozen=True)
class RecordGroups(CanBeThin):
    """Send records to their groups.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``_fh`` (null: no group), group key, ``v``. Output 0: that of `groups`.
    """

    groups: Aggregate | Fold
    """The operator that keeps the groups; its rows have no key."""
    keys: pl.Schema
    """The key columns of the stream, and their dtypes."""

    rejects = True
    keeps_shard = True

    @property
    def reasons(self) -> tuple[str, ...]:
        catches = isinstance(self.groups, Fold) and self.groups.on_error != "fail"
        return (NULL_KEY_OR_VALUE, FAILED) if catches else (NULL_KEY_OR_VALUE,)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        group = {FOREIGN_HASH: pl.Int64(), **self.groups.group_keys}
        return (keyed_rows(self.keys, {**group, "v": self.groups.value}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return self.groups.outputs

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return self.groups.traces

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        grouped = pl.col(FOREIGN_HASH).is_not_null() & pl.col(LIVE)
        records = arrived.filter(grouped)
        context.reject(NULL_KEY_OR_VALUE, arrived.filter(~grouped))
        if records.is_empty():
            return
        none = pl.lit(None, self.groups.value).alias(OLD)
        messages = records.with_columns(pl.lit(value=False).alias(WAS), pl.lit(value=True).alias(IS), none)
        yield from replace(self.groups, final=self.final, thin=self.thin).run([messages], context)
