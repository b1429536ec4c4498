"""First half of a foreign-key join of versioned tables: versions of left rows become subscriptions to right keys.

Keyed by the left table's key. A *subscription* has the time span in which a left row points at a right key.

====================================  ========================================================================
a version arrives at ``t``, and       is sent
====================================  ========================================================================
an older one was valid until then     its subscription again, which now ends at ``t``
another one began at ``t``            its subscription again, which now ends as it begins
it points at a right key              its subscription, to be answered
it points at nothing                  a piece of the result: the row alone (left), or nothing (inner; counted)
it is a tombstone                     a piece of the result: nothing
====================================  ========================================================================

Versions are too late under the rules of `history_join`.

References
----------
KIP-213; KIP-914 ("Attempt 2"); ``docs/semantics/joining-histories.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.joins.result_history import END, piece_schema
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Pointing, keyed_rows
from tablestream.operators.reasons import EXPIRED, NULL_FOREIGN_KEY
from tablestream.operators.versions import BOUND, POSITION, OpenVersions, Versions, columns_of
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: Whether a subscription is new and asks for its right rows.
ASKS = "_asks"
#: A subscription to send: the change that causes it, its number there, its time span, and the place of its left row.
_SUBSCRIPTION: Mapping[str, type[pl.DataType]] = dict.fromkeys((POSITION, NUMBER, TS, END, "row"), pl.Int64)


@dataclass(frozen=True)
class HistorySubscribe(Pointing):
    """The left half of a foreign-key join of versioned tables.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``_latest``, ``_fh`` (null: the foreign key is null), foreign key, ``v``.
    Output 0, subscriptions: ``_fh``, foreign key, ``_kh``, key, ``_ts``, ``_end``, ``_asks``, ``v``. Output 1: pieces,
    as `ResultHistory` reads them.
    """

    history_us: int
    """How far back the result is maintained, in microseconds."""
    keep_left: bool = False
    """Whether unmatched left rows are emitted."""

    parameters = ("keep_left", "history_us")
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        columns = {LATEST: pl.Boolean(), FOREIGN_HASH: pl.Int64(), **self.foreign_keys, "v": self.value}
        return (keyed_rows(self.keys, columns),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        row = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), END: pl.Int64()}
        foreign = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys}
        subscriptions = {**foreign, **row, ASKS: pl.Boolean(), "v": self.value}
        return pl.Schema(subscriptions), piece_schema(self.keys, (self.value, self.right_value))

    @property
    def _versions(self) -> Versions:
        row = pl.Struct({FOREIGN_HASH: pl.Int64(), **self.foreign_keys, "v": self.value})
        return Versions(KEY_HASH, self.keys, row, self.history_us, name="left")

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EXPIRED,) if self.keep_left else (EXPIRED, NULL_FOREIGN_KEY)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        in_time = self._versions.in_time(inputs, context)
        changes = arrived[in_time[POSITION]].with_columns(in_time[BOUND])
        points = pl.col(FOREIGN_HASH).is_not_null()
        if not self.keep_left:
            context.reject(NULL_FOREIGN_KEY, changes.filter(pl.col(LIVE) & ~points).drop(BOUND))
        trace = context.trace(self._versions.name)
        row = pl.struct(FOREIGN_HASH, *self.foreign_keys, "v").alias("v")
        puts = changes.select(SEQ, KEY_HASH, *self.keys, TS, LIVE, BOUND, row)
        versions = self._versions.opened(trace, puts)
        sent = self._sent(puts, versions)
        place = [PARENT, NUMBER, KEY_HASH, *self.keys, TS, END]
        yield Emission(0, sent.filter(points).select(*place, FOREIGN_HASH, *self.foreign_keys, ASKS, "v"))
        live = pl.col(LIVE) & self.keep_left
        values = pl.when(live).then("v").alias("v0"), pl.lit(None, self.right_value).alias("v1")
        yield Emission(1, sent.filter(~points & pl.col(ASKS)).select(*place, live.alias(LIVE), *values))
        versions.remember(trace, context.observed)

    def _sent(self, puts: pl.DataFrame, versions: OpenVersions) -> pl.DataFrame:
        """All subscriptions to send, each with its left row; a tombstone has none."""
        sent = columns_of(_subscriptions(puts, versions), _SUBSCRIPTION)
        row = ints(sent["row"])
        fields = gather(versions.payload, row).struct
        names = (FOREIGN_HASH, *self.foreign_keys, "v")
        keys = puts.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys)[sent[POSITION]]
        return keys.hstack(sent.select(NUMBER, TS, END)).with_columns(
            pl.col(NUMBER).eq(1).alias(ASKS),
            pl.Series(LIVE, row >= 0, dtype=pl.Boolean),
            *(fields.field(name).alias(name) for name in names),
        )


def _subscriptions(puts: pl.DataFrame, versions: OpenVersions) -> Iterator[tuple[int | None, ...]]:
    """Write the arriving versions; the subscription that each ends, and its own."""
    for position, (time, exists, bound) in enumerate(puts.select(TS, LIVE, BOUND).iter_rows()):
        history = versions.written(position)
        history.forget(bound)
        begin, row = history.floor(time)
        if begin is not None and row >= 0:
            yield position, 0, begin, time, row
        versions.put(position, time, exists=exists)
        yield position, 1, time, history.end(time), versions.row(position, exists=exists)
