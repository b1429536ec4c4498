"""Second half of a foreign-key join of versioned tables: joins stays with the versions of the right row.

Keyed by the right table's key. A *stay* is the time span in which a left row points at a right key. What arrives
becomes pieces of the result, for `result_history`:

==============================  ================================================================================
arrives                         is sent
==============================  ================================================================================
a stay that asks                a piece for each version of the right row that is valid during it
a stay that now ends earlier    nothing: its left row's next version says what comes after it
a version of the right row      for each stay, a piece for the time in which both are valid; by left key and time
==============================  ================================================================================

A piece is the left row with the right row. Without a right row it is the left row alone (left) or nothing (inner).
Versions are too late under the rules of `history_join`; so is a stay that ended before ``observed - history``.

References
----------
KIP-213; KIP-914 ("Attempt 2"); ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from tablestream.operators.events import gather, touched_keys
from tablestream.operators.joins.history_subscribe import ASKS
from tablestream.operators.joins.result_history import END, piece_schema
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator
from tablestream.operators.versions import EXPIRED, OpenVersions, Versions, running_maximum
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, TS, last_by
from tablestream.state.trace import TraceSpec


@dataclass(frozen=True)
class HistoryAnswer(Operator):
    """The right half of a foreign-key join of versioned tables.

    Parameters
    ----------
    keys, foreign_keys
        The columns and dtypes of the left table's key and of the right table's.
    value, right_value
        The dtypes of the two values.
    history_us
        How far back the result is maintained, in microseconds.
    keep_left
        Whether unmatched left rows are emitted.

    Notes
    -----
    Input 0: stays, as `HistorySubscribe` sends them. Input 1: ``_fh``, key, ``_ts``, ``_live``, ``_latest``, ``v``.
    Output 0: pieces, as `ResultHistory` reads them. Cost: the arriving stays and versions, and all stays at each right
    key with an arriving version.
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
        foreign = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys}
        stay = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), END: pl.Int64(), ASKS: pl.Boolean()}
        right = {TS: pl.Int64(), LIVE: pl.Boolean(), LATEST: pl.Boolean()}
        return (
            pl.Schema({**foreign, **stay, "v": self.value}),
            pl.Schema({**foreign, **right, "v": self.right_value}),
        )

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (piece_schema(self.keys, (self.value, self.right_value)),)

    @property
    def _versions(self) -> Versions:
        return Versions(FOREIGN_HASH, self.foreign_keys, self.right_value, self.history_us, name="right")

    @property
    def _stays(self) -> TraceSpec:
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, KEY_HASH: pl.Int64(), **self.keys}
        columns |= {TS: pl.Int64(), END: pl.Int64(), LIVE: pl.Boolean(), "v": self.value}
        return TraceSpec(
            name="stays",
            number=1,
            hash=FOREIGN_HASH,
            key=tuple(self.foreign_keys),
            unique=(*self.keys, TS),
            unique_hash=KEY_HASH,
            schema=pl.Schema(columns),
            expires=END,
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace, self._stays)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EXPIRED,)

    @property
    def rejects(self) -> bool:
        return True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Answer the stays that ask, send new versions to all stays, and remember both."""
        stays, puts = inputs
        foreign = [FOREIGN_HASH, *self.foreign_keys]
        stored = context.trace(self._stays.name).lookup(touched_keys([puts.select(foreign)]))
        trace = context.trace(self._versions.name)
        asking = pl.concat([stored.select(foreign), stays.select(foreign)])
        versions = self._versions.opened(trace, puts, asking)
        every = pl.concat([one.select(KEY_HASH, *self.keys, TS, END, "v") for one in (stored, stays)])
        pieces = _Pieces(self, versions, context, stored.height, self._ranks(every), every)
        pieces.work(stays, puts)
        yield Emission(0, pieces.frame())
        observed = context.observed
        versions.remember(trace, observed)
        number = pl.Series(versions.numbers[1][stored.height :], dtype=pl.Int64)
        last = last_by(stays, number, [*self.keys, TS]).with_columns(
            (pl.col(END).is_null() | (pl.col(END) > pl.col(TS))).alias(LIVE)
        )
        bound = None if observed is None else observed - self.history_us
        context.trace(self._stays.name).insert(last, expired_before=bound)

    def _ranks(self, rows: pl.DataFrame) -> list[int]:
        """Number the left keys of some rows in key order; stays are answered in this order."""
        return rows.select(pl.struct(*self.keys).rank("dense").cast(pl.Int64)).to_series().to_list()


class _Stay(NamedTuple):
    """The time in which a left row points at a right key, and its position among the stays."""

    position: int
    begin: int
    end: int | None


@dataclass
class _Pieces:
    """How the result changes, piece by piece: columns of the same length.

    Attributes
    ----------
    every
        The `stored` stays of the state, then the arriving ones; `keys` numbers their left keys.
    """

    join: HistoryAnswer
    versions: OpenVersions
    context: Context
    stored: int
    keys: Sequence[int]
    every: pl.DataFrame
    parents: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    lefts: list[int] = field(default_factory=list)
    rights: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Load the stays of the state."""
        self._standing: dict[int, dict[tuple[int, int], _Stay]] = {}
        times = self.every.select(TS, END)
        self._times = list(times.iter_rows())
        for position in range(self.stored):
            self._stand(position)

    def work(self, stays: pl.DataFrame, puts: pl.DataFrame) -> None:
        """Process stays and versions in their order."""
        position, told = pl.int_range(pl.len(), dtype=pl.Int64).alias("at"), pl.lit(None, pl.Boolean)
        events = pl.concat(
            [
                stays.select(SEQ, TS, position, ASKS, told.alias(LIVE), told.alias(LATEST)),
                puts.select(SEQ, TS, position, told.alias(ASKS), LIVE, LATEST),
            ]
        ).sort(SEQ)
        highest = running_maximum(events[TS], self.context.observed)
        bounds = (highest - self.join.history_us).alias("bound")
        expired = []
        for seq, time, at, asks, exists, latest, bound in events.with_columns(bounds).iter_rows():
            if asks is not None:
                self._come(self.stored + at, seq, bound, asks=asks)
            elif latest or time >= bound:
                self._put(at, time, seq, bound, exists=exists)
            else:
                expired.append(at)
        if len(highest):
            self.context.observed = int(highest[-1])
        self.context.reject(EXPIRED, puts[expired], 1)

    def _stand(self, position: int) -> _Stay:
        stay = _Stay(position, *self._times[position])
        standing = self._standing.setdefault(self.versions.numbers[1][position], {})
        standing[self.keys[position], stay.begin] = stay
        return stay

    def _come(self, position: int, seq: int, bound: int, *, asks: bool) -> None:
        """Add a stay, and answer it."""
        stay = self._stand(position)
        if not asks:
            return
        if stay.end is not None and stay.end <= bound:
            self.context.dropped[EXPIRED] += 1
            return
        history = self.versions.asked(position)
        history.forget(bound)
        begins = [stay.begin, *history.between(stay.begin, stay.end)]
        for number, (begin, end) in enumerate(zip(begins, [*begins[1:], stay.end], strict=True)):
            self._add(seq, number, stay, begin, end, history.as_of(begin, None))

    def _put(self, at: int, time: int, seq: int, bound: int, *, exists: bool) -> None:
        """Write a version, and send pieces for the stays in which it is valid, in the order of their keys and times."""
        history = self.versions.written(at)
        history.forget(bound)
        self.versions.put(at, time, exists=exists)
        end, row = history.end(time), self.versions.row(at, exists=exists)
        number, standing = 0, self._standing.get(self.versions.key(at), {})
        for of_key in sorted(standing):
            stay = standing[of_key]
            begin = max(stay.begin, time)
            until = min((one for one in (stay.end, end) if one is not None), default=None)
            if until is None or until > max(begin, bound):
                self._add(seq, number, stay, begin, until, row)
                number += 1

    def _add(self, seq: int, number: int, stay: _Stay, begin: int, end: int | None, right: int) -> None:
        self.parents.append(seq)
        self.numbers.append(number)
        self.lefts.append(stay.position)
        self.begins.append(begin)
        self.ends.append(end)
        self.rights.append(right)

    def frame(self) -> pl.DataFrame:
        """The pieces as messages."""
        rights = np.array(self.rights, dtype=np.int64)
        live = pl.Series(LIVE, (rights >= 0) | self.join.keep_left, dtype=pl.Boolean)
        rows = self.every.select(KEY_HASH, *self.join.keys, pl.col("v").alias("v0"))[self.lefts]
        return rows.with_columns(
            pl.Series(PARENT, self.parents, dtype=pl.Int64),
            pl.Series(NUMBER, self.numbers, dtype=pl.Int64),
            pl.Series(TS, self.begins, dtype=pl.Int64),
            pl.Series(END, self.ends, dtype=pl.Int64),
            live,
            pl.when(live).then("v0").alias("v0"),
            gather(self.versions.payload, rights).alias("v1"),
        )
