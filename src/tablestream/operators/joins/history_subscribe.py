"""First half of a foreign-key join of versioned tables: versions of left rows become stays at right keys.

Keyed by the left table's key. A *stay* is the time span in which a left row points at a right key.

====================================  ========================================================================
a version arrives at ``t``, and       is sent
====================================  ========================================================================
an older one was valid until then     its stay again, which now ends at ``t``
another one began at ``t``            its stay again, which now ends as it begins
it points at a right key              its stay, to be answered
it points at nothing                  a piece of the result: the row alone (left), or nothing (inner; counted)
it is a tombstone                     a piece of the result: nothing
====================================  ========================================================================

Versions are too late under the rules of `history_join`.

References
----------
KIP-213; KIP-914 ("Attempt 2"); ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.events import gather
from tablestream.operators.joins.foreign_key_subscribe import NULL_FOREIGN_KEY
from tablestream.operators.joins.result_history import END, piece_schema
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator
from tablestream.operators.versions import EXPIRED, OpenVersions, Versions, running_maximum
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, TS
from tablestream.state.trace import TraceSpec

#: Whether a stay is new and asks for its right rows.
ASKS = "_asks"


@dataclass(frozen=True)
class HistorySubscribe(Operator):
    """The left half of a foreign-key join of versioned tables.

    Parameters
    ----------
    keys, foreign_keys
        The columns and dtypes of the left table's key and of the foreign key.
    value, right_value
        The dtypes of the two values.
    history_us
        How far back the result is maintained, in microseconds.
    keep_left
        Whether unmatched left rows are emitted.

    Notes
    -----
    Input: ``_kh``, key, ``_ts``, ``_live``, ``_latest``, ``_fh`` (null: the foreign key is null), foreign key, ``v``.
    Output 0, stays: ``_fh``, foreign key, ``_kh``, key, ``_ts``, ``_end``, ``_asks``, ``v``. Output 1: pieces, as
    `ResultHistory` reads them.
    """

    keys: pl.Schema
    foreign_keys: pl.Schema
    value: pl.DataType
    right_value: pl.DataType
    history_us: int
    keep_left: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("keep_left", "history_us")

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        columns = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), LIVE: pl.Boolean()}
        columns |= {LATEST: pl.Boolean(), FOREIGN_HASH: pl.Int64(), **self.foreign_keys, "v": self.value}
        return (pl.Schema(columns),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        row = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), END: pl.Int64()}
        stays = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, **row, ASKS: pl.Boolean(), "v": self.value}
        return pl.Schema(stays), piece_schema(self.keys, (self.value, self.right_value))

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

    @property
    def rejects(self) -> bool:
        return True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Write the versions, and send how their stays change."""
        (changes,) = inputs
        trace = context.trace(self._versions.name)
        row = pl.struct(FOREIGN_HASH, *self.foreign_keys, "v").alias("v")
        puts = changes.select(SEQ, KEY_HASH, *self.keys, TS, LIVE, LATEST, row)
        points = pl.col(FOREIGN_HASH).is_not_null()
        versions = self._versions.opened(trace, puts)
        stays = _Stays(versions, self.history_us, context)
        expired = stays.work(puts)
        context.reject(EXPIRED, changes[expired])
        if not self.keep_left:
            in_time = ~pl.int_range(pl.len()).is_in(expired)
            context.reject(NULL_FOREIGN_KEY, changes.filter(in_time & pl.col(LIVE) & ~points))
        sent = stays.sent(puts.select(SEQ, KEY_HASH, *self.keys))
        rows = sent["v"].struct
        foreign = [rows.field(name).alias(name) for name in (FOREIGN_HASH, *self.foreign_keys)]
        sent = sent.with_columns(*foreign, rows.field("v").alias("v"))
        place = [PARENT, NUMBER, KEY_HASH, *self.keys, TS, END]
        yield Emission(0, sent.filter(points).select(*place, FOREIGN_HASH, *self.foreign_keys, ASKS, "v"))
        live = pl.col(LIVE) & self.keep_left
        values = pl.when(live).then("v").alias("v0"), pl.lit(None, self.right_value).alias("v1")
        yield Emission(1, sent.filter(~points & pl.col(ASKS)).select(*place, live.alias(LIVE), *values))
        versions.remember(trace, context.observed)


@dataclass
class _Stays:
    """How stays change: columns of the same length."""

    versions: OpenVersions
    history_us: int
    context: Context
    positions: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def work(self, puts: pl.DataFrame) -> list[int]:
        """Process the arriving versions; return the positions of those that are too late."""
        expired = []
        highest = running_maximum(puts[TS], self.context.observed)
        bounds = (highest - self.history_us).to_list()
        for position, (time, exists, latest) in enumerate(puts.select(TS, LIVE, LATEST).iter_rows()):
            if latest or time >= bounds[position]:
                self._put(position, time, bounds[position], exists=exists)
            else:
                expired.append(position)
        if len(highest):
            self.context.observed = int(highest[-1])
        return expired

    def _put(self, position: int, time: int, bound: int, *, exists: bool) -> None:
        history = self.versions.written(position)
        history.forget(bound)
        begin, row = history.floor(time)
        if begin is not None and row >= 0:
            self._send(position, 0, begin, time, row)
        self.versions.put(position, time, exists=exists)
        self._send(position, 1, time, history.end(time), self.versions.row(position, exists=exists))

    def _send(self, position: int, number: int, begin: int, end: int | None, row: int) -> None:
        self.positions.append(position)
        self.numbers.append(number)
        self.begins.append(begin)
        self.ends.append(end)
        self.rows.append(row)

    def sent(self, puts: pl.DataFrame) -> pl.DataFrame:
        """All stays to send, each with its left row; a tombstone has none."""
        rows = np.array(self.rows, dtype=np.int64)
        return puts[self.positions].with_columns(
            pl.col(SEQ).alias(PARENT),
            pl.Series(NUMBER, self.numbers, dtype=pl.Int64),
            pl.Series(TS, self.begins, dtype=pl.Int64),
            pl.Series(END, self.ends, dtype=pl.Int64),
            pl.Series(ASKS, self.numbers, dtype=pl.Int64) == 1,
            pl.Series(LIVE, rows >= 0, dtype=pl.Boolean),
            gather(self.versions.payload, rows).alias("v"),
        )
