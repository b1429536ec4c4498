"""A foreign-key join of versioned tables: its two halves.

A *subscription* has the time span in which a left row points at a right key.

The first half is keyed by the left table's key. It makes subscriptions to right keys of the versions of left rows:

====================================  ========================================================================
a version arrives at ``t``, and       is sent
====================================  ========================================================================
an older one was valid until then     its subscription again, which now ends at ``t``
another one began at ``t``            its subscription again, which now ends as it begins
it points at a right key              its subscription, to be answered
it points at nothing                  a piece of the result: the row alone (left), or nothing (inner; counted)
it is a tombstone                     a piece of the result: nothing
====================================  ========================================================================

The second half is keyed by the right table's key. It joins subscriptions with the versions of the right row. What
arrives becomes pieces of the result, for `result_history`:

===================================  ===========================================================================
arrives                              is sent
===================================  ===========================================================================
a subscription that asks             a piece for each version of the right row that is valid during it
a subscription that now ends sooner  nothing: its left row's next version says what comes after it
a version of the right row           for each subscription, a piece for the time in which both are valid; by left key
                                     and time
===================================  ===========================================================================

A piece is the left row with the right row. Without a right row it is the left row alone (left) or nothing (inner).
Versions are too late under the rules of `history_join`; so is a subscription that ended before ``observed - history``.

References
----------
KIP-213; KIP-914 ("Attempt 2"); ``docs/semantics/joining-histories.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import ints, ranks, stored_rows
from tablestream.operators.joins.result_history import END, piece_schema
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Pointing, keyed_rows
from tablestream.operators.reasons import EXPIRED, NULL_FOREIGN_KEY
from tablestream.operators.versions import BOUND, INPUT, POSITION, OpenVersions, Versions, columns_of
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, TS, last_by
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: Whether a subscription is new and asks for its right rows.
ASKS = "_asks"
#: A subscription to send: the change that causes it, its number there, its time span, and the place of its left row.
_SUBSCRIPTION: Mapping[str, type[pl.DataType]] = dict.fromkeys((POSITION, NUMBER, TS, END, "row"), pl.Int64)
#: The number of the input.
_SUBSCRIPTIONS = 0
#: A piece of the result: the message that causes it, its number there, its time span, and the places of both rows.
_PIECE: Mapping[str, type[pl.DataType]] = dict.fromkeys((PARENT, NUMBER, TS, END, "left", "right"), pl.Int64)


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


@dataclass(frozen=True)
class HistoryAnswer(Pointing):
    """The right half of a foreign-key join of versioned tables.

    Input 0: subscriptions, as `HistorySubscribe` sends them. Input 1: ``_fh``, key, ``_ts``, ``_live``, ``_latest``,
    ``v``. Output 0: pieces, as `ResultHistory` reads them. Cost: the messages, and all subscriptions to each right key
    with an arriving version.
    """

    history_us: int
    """How far back the result is maintained, in microseconds."""
    keep_left: bool = False
    """Whether unmatched left rows are emitted."""

    parameters = ("keep_left", "history_us")
    reasons = (EXPIRED,)
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        values = (self.value, self.right_value)
        subscribe = HistorySubscribe(self.keys, self.foreign_keys, *values, self.history_us)
        return subscribe.outputs[0], self._versions.changes

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (piece_schema(self.keys, (self.value, self.right_value)),)

    @property
    def _versions(self) -> Versions:
        return Versions(FOREIGN_HASH, self.foreign_keys, self.right_value, self.history_us, name="right")

    @property
    def _subscriptions(self) -> TraceSpec:
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, KEY_HASH: pl.Int64(), **self.keys}
        columns |= {TS: pl.Int64(), END: pl.Int64(), LIVE: pl.Boolean(), "v": self.value}
        return TraceSpec(
            name="subscriptions",
            hash=FOREIGN_HASH,
            key=tuple(self.foreign_keys),
            unique=(*self.keys, TS),
            unique_hash=KEY_HASH,
            schema=pl.Schema(columns),
            expires=END,
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace, self._subscriptions)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Answer the subscriptions that ask, send new versions to all subscriptions, and remember both."""
        arrived, changes = inputs
        events = self._versions.in_time(inputs, context)
        stored = stored_rows(context.trace(self._subscriptions.name), changes)
        trace = context.trace(self._versions.name)
        columns = [FOREIGN_HASH, *self.foreign_keys, KEY_HASH, *self.keys, TS, END, "v"]
        subscriptions = pl.concat([stored.select(columns), arrived.select(columns)])
        versions = self._versions.opened(trace, changes, subscriptions)
        answers = _Answers(versions, subscriptions, ranks(subscriptions, list(self.keys)), stored.height)
        pieces = columns_of(answers.pieces(events, arrived[ASKS].to_list()), _PIECE)
        context.dropped[EXPIRED] += answers.expired
        yield Emission(0, self._rows(pieces, subscriptions, versions))
        versions.remember(trace, context.observed)
        number = np.array(versions.numbers[1][stored.height :], dtype=np.int64)
        lasts = (pl.col(END) > pl.col(TS)).fill_null(value=True)
        last = last_by(arrived, number, [*self.keys, TS]).with_columns(lasts.alias(LIVE))
        bound = self._versions.bound(context.observed)
        context.trace(self._subscriptions.name).insert(last, expired_before=bound)

    def _rows(
        self, pieces: pl.DataFrame, subscriptions: pl.DataFrame, versions: OpenVersions
    ) -> pl.DataFrame:
        """The pieces as messages."""
        right = ints(pieces["right"])
        live = pl.Series(LIVE, (right >= 0) | self.keep_left, dtype=pl.Boolean)
        left = subscriptions.select(KEY_HASH, *self.keys, pl.col("v").alias("v0"))[pieces["left"]]
        return left.hstack(pieces.select(PARENT, NUMBER, TS, END)).with_columns(
            live,
            pl.when(live).then("v0").alias("v0"),
            gather(versions.payload, right).alias("v1"),
        )


class _Answers:
    """Joins the subscriptions to some right keys with the versions of their rows, in the order of their places.

    `versions`: the versions of the right keys. `subscriptions`: the `stored` subscriptions of the state, then the
    arriving ones. `left_keys`: the rank of each one's left key: versions are sent in this order.
    """

    def __init__(
        self, versions: OpenVersions, subscriptions: pl.DataFrame, left_keys: Sequence[int], stored: int
    ) -> None:
        self.expired = 0
        self._versions, self._left_keys, self._stored = versions, left_keys, stored
        self._spans: list[tuple[int, int | None]] = list(subscriptions.select(TS, END).iter_rows())
        self._at: dict[int, dict[tuple[int, int], int]] = {}  # by right key, then by left key and time
        for position in range(stored):
            self._add(position)

    def pieces(self, events: pl.DataFrame, asks: Sequence[bool]) -> Iterator[tuple[int | None, ...]]:
        """Process subscriptions and versions; how each changes the result."""
        columns = events.select(SEQ, TS, INPUT, POSITION, LIVE, BOUND)
        for seq, time, of, at, exists, bound in columns.iter_rows():
            if of == _SUBSCRIPTIONS:
                yield from self._subscribe(self._stored + at, seq, bound, asks=asks[at])
            else:
                yield from self._put(at, time, seq, bound, exists=exists)

    def _add(self, position: int) -> None:
        at = self._at.setdefault(self._versions.numbers[1][position], {})
        at[self._left_keys[position], self._spans[position][0]] = position

    def _subscribe(
        self, position: int, seq: int, bound: int, *, asks: bool
    ) -> Iterator[tuple[int | None, ...]]:
        """Add a subscription, and answer it."""
        self._add(position)
        begin, end = self._spans[position]
        if not asks:
            return
        if end is not None and end <= bound:
            self.expired += 1
            return
        history = self._versions.asked(position)
        history.forget(bound)
        for number, (start, stop, row) in enumerate(history.during(begin, end)):
            yield seq, number, start, stop, position, row

    def _put(
        self, at: int, time: int, seq: int, bound: int, *, exists: bool
    ) -> Iterator[tuple[int | None, ...]]:
        """Write a version, and send pieces for the subscriptions during which it is valid, by left key and time."""
        history = self._versions.written(at)
        history.forget(bound)
        self._versions.put(at, time, exists=exists)
        end, row = history.end(time), self._versions.row(at, exists=exists)
        number, subscribed = 0, self._at.get(self._versions.key(at), {})
        for of_key in sorted(subscribed):
            position = subscribed[of_key]
            its_begin, its_end = self._spans[position]
            begin = max(its_begin, time)
            until = end if its_end is None else its_end if end is None else min(its_end, end)
            if until is None or until > max(begin, bound):
                yield seq, number, begin, until, position, row
                number += 1
