"""Second half of a join as of a time: joins subscriptions with the versions of the right rows.

Keyed by the right table's key. A subscription is a left row under its right key and its as-of time: to the first half,
`foreign_key_subscribe`, both together are the foreign key.

=====================  ===========================================
left message           answer
=====================  ===========================================
UNSUBSCRIBE            none
UNSUBSCRIBE_ANSWER     tombstone
ANSWER_ALWAYS          row; INNER, and nothing is found: tombstone
ANSWER_IF_FOUND        row if something is found, else none
=====================  ===========================================

=============================================  =======================================================================
a right change, and as of the left row's time  answer to each left row, in the order of (as-of time, left key)
=============================================  =======================================================================
another row is found, or the row again         row
nothing is found any more                      INNER: tombstone; LEFT: row without a right part
nothing was found, and nothing is              none
=============================================  =======================================================================

A result has the time of its left row, so that a correction replaces the result that it corrects.

If it is not known any more what is found, a left row that was there before is answered with the right row that it had.
Any other finds nothing; counted, but not dropped with LEFT. A right change that is older than the history and not the
latest of its row is dropped and counted.

A step's right changes come before its left messages. A left row that changed in the step is answered once, for this
change, unless it has no answer.

Each left row asks for the version of its right row at its *as-of time*:

==========  =========================================================  ==========================================
             found as of ``t``                                          changed by a version that begins at ``v``
==========  =========================================================  ==========================================
backward    the last version up to ``t``, if it is a row               ``v <= t <`` the next version
forward     the first row from ``t`` on                                the last row before ``v`` ``< t <= v``
==========  =========================================================  ==========================================

A *span* is such a range of as-of times, with the row that is found there now. A version that is no row, and takes none
away, makes no span.

A version is forgotten when it ended before ``observed - history``. What was found before the first version that is
still known, and before that bound, is then unknown: such left rows keep what they have, and no version changes them.

References
----------
``docs/semantics/as-of-joins.md``; KIP-213 for the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, END
from tablestream.operators.calendar import FIRST_US
from tablestream.operators.events import bools, expanded_in_parts, ints
from tablestream.operators.joins.foreign_key_answer import AFTER_FAN_OUT
from tablestream.operators.joins.foreign_key_subscribe import KIND, NEW, Ask, ask_schema
from tablestream.operators.joins.merged_order import OPEN, MergedOrder
from tablestream.operators.joins.subscriptions import Subscriptions
from tablestream.operators.operator import (
    FAN_OUT_ROWS,
    NUMBER,
    PARENT,
    Context,
    Emission,
    Operator,
    keyed_rows,
    numbered_on,
)
from tablestream.operators.reasons import BEFORE_HISTORY, EXPIRED
from tablestream.operators.versions import BOUND, POSITION, History, OpenVersions, Versions
from tablestream.state.changes import (
    AS_OF,
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    SEQ,
    STEP,
    TS,
    last_by,
    number_keys,
)
from tablestream.state.positions import Bools, Ints, gather
from tablestream.state.trace import Found
from tablestream.state.trace_spec import TraceSpec

#: A number that rises with the as-of time among the subscriptions to one right key, and tells most keys apart.
KEY_TIME = "_kt"
_TIME_BITS = 40
#: The year 1, and the length of a step of `KEY_TIME`: 2 ** 40 of them are more than 9999 years.
_STEP_US = 1 << 19


def key_times(hashes: Ints, times: Ints) -> Ints:
    """Put a part of the hash of a key before a time, as one number."""
    steps = np.clip(times // _STEP_US - FIRST_US // _STEP_US, 0, (1 << _TIME_BITS) - 1)
    return np.asarray(((hashes >> _TIME_BITS) << _TIME_BITS) + steps)


@dataclass(frozen=True)
class AsOfAnswer(Operator):
    """The right half of a join as of a time.

    Input 0: the messages of `ForeignKeySubscribe`, whose foreign key ends with ``_as_of``. Input 1: ``_fh``, key,
    ``_ts``, ``_live``, ``_latest``, ``v``. Output 0: ``_kh``, left key, ``_ts``, ``_live``, ``v0``, ``v1``. Cost: the
    changes, the versions of their right keys, and the left rows that a right change answers. Memory: their keys, and
    the payload of `FAN_OUT_ROWS` answers.
    """

    keep_left: bool
    """LEFT: an unmatched left row is a row of the result."""
    keys: pl.Schema
    foreign_keys: pl.Schema
    """The columns and dtypes of the left table's key and of the right table's."""
    left_value: pl.DataType
    right_value: pl.DataType
    """The dtypes of the two values."""
    history_us: int
    """How far back versions are kept, in microseconds."""
    forward: bool = False
    """Whether left rows find the first row from their time on, instead of the last version up to it."""

    parameters = ("keep_left", "history_us", "forward")
    reasons = (EXPIRED, BEFORE_HISTORY)
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        pointing = {**self.foreign_keys, AS_OF: pl.Int64()}
        return ask_schema(pointing, self.keys, self.left_value), self.versions.changes

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v0": self.left_value, "v1": self.right_value}),)

    @property
    def versions(self) -> Versions:
        """The right table."""
        return Versions(FOREIGN_HASH, self.foreign_keys, self.right_value, self.history_us, name="right")

    @property
    def _subscriptions(self) -> TraceSpec:
        """Each left row with the right row that it has, by right key and as-of time."""
        columns = {KEY_TIME: pl.Int64(), FOREIGN_HASH: pl.Int64(), **self.foreign_keys, AS_OF: pl.Int64()}
        columns |= {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), LIVE: pl.Boolean()}
        return TraceSpec(
            name="subscriptions",
            hash=KEY_TIME,
            key=(*self.foreign_keys, AS_OF),
            unique=tuple(self.keys),
            unique_hash=KEY_HASH,
            schema=pl.Schema({**columns, "v": self.left_value, "v1": self.right_value}),
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self.versions.trace, self._subscriptions)

    @property
    def foreign(self) -> list[str]:
        """The columns of a right key."""
        return [FOREIGN_HASH, *self.foreign_keys]

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Write the right changes, answer the left messages, and then the left rows that the right changes reach."""
        left, right = inputs
        bound = self.versions.bound(context.observed)
        in_time = self.versions.in_time((left.clear(), right), context)
        puts = right[in_time[POSITION]].with_columns(in_time[BOUND])
        work = _Work(self, left, puts, context)
        work.look_up(BEGIN if bound is None else bound)
        yield Emission(0, work.answers())
        work.remember()
        yield from numbered_on(work.fan_out(), first=1)


class _Work:
    """Joins the messages of a micro-batch, or of a slice of it.

    `join`: the operator. `left`, `puts`: the left messages, and the right changes that are not too late, both in their
    order. `context`: that of the operator.
    """

    def __init__(self, join: AsOfAnswer, left: pl.DataFrame, puts: pl.DataFrame, context: Context) -> None:
        self._join, self._left, self._puts, self._context = join, left, puts, context
        self._trace = context.trace("subscriptions")
        self._versions = join.versions.opened(context.trace(join.versions.name), puts, left)
        left_id, right_id = number_keys(FOREIGN_HASH, join.foreign_keys, [left, puts])
        self._merged = MergedOrder.of(left, puts, (left_id, right_id), atomic=True, minimal_right=False)
        self._kind = ints(left[KIND])
        self._spans: list[Span] = []
        #: Per left message, the place of the payload found: of versions, then of stored subscriptions; -1: none.
        self._found = np.full(left.height, -1, dtype=np.int64)

    def look_up(self, bound: int) -> None:
        """Write the right changes, and look up what the left messages find; `bound`: that of the history before."""
        timeline = AsOfVersions(self._versions, self._join.forward, bound)
        puts = self._puts.select(TS, BOUND, LIVE).rows()
        times = self._left[AS_OF].to_list()
        unknown = list[int]()
        for at in np.argsort(np.concatenate([self._merged.right_at, self._merged.left_at])).tolist():
            message = at - len(puts)
            if message < 0:
                time, reach, exists = puts[at]
                timeline.put(at, time, reach, exists=exists)
            elif self._kind[message] >= Ask.ANSWER_ALWAYS:
                found = timeline.look_up(message, times[message])
                self._found[message] = -1 if found is None else found
                if found is None:
                    unknown.append(message)
        steps, keys = self._puts[STEP].to_list(), self._merged.right_id.tolist()
        self._spans = list(settled(timeline.spans, steps, keys))
        self._column = {
            name: np.array([getattr(span, name) for span in self._spans], dtype=np.int64)
            for name in Span._fields
        }
        lost = np.array(unknown, dtype=np.int64)
        self._read(lost)
        self._keep_what_they_had(lost)

    def _read(self, unknown: Ints) -> None:
        """Read the subscriptions in the spans, and those about which messages find nothing known."""
        puts, left = pl.Series(self._column["put"]), pl.Series(unknown)
        hashes = ints(self._puts[FOREIGN_HASH][puts]), ints(self._left[FOREIGN_HASH][left])
        times = ints(self._left[AS_OF][left])
        low = key_times(np.concatenate(hashes), np.concatenate([self._column["low"], times]))
        high = key_times(np.concatenate(hashes), np.concatenate([self._column["high"] - 1, times]))
        self._stored: Found = self._trace.find_between(low, high)
        ids = np.concatenate([self._merged.right_id[self._column["put"]], self._merged.left_id[unknown]])
        every = pl.concat([self._puts[self._join.foreign][puts], self._left[self._join.foreign][left]])
        kid, first = np.unique(ids, return_index=True)
        self._keys = every[pl.Series(first)].hstack([pl.Series("_kid", kid)])
        rows = self._stored.rows
        rows = rows.with_columns(gather(self._stored.column(FOREIGN_HASH), ints(rows["_row"])))
        # Others have the same `KEY_TIME`, but another key.
        self._rows = rows.join(self._keys, on=self._join.foreign, how="semi", nulls_equal=True)

    @property
    def _right(self) -> pl.Series:
        """The right rows that places refer to: those of versions, then those that stored subscriptions have."""
        return pl.concat([self._versions.payload, self._stored.column("v1")], rechunk=False)

    def _keep_what_they_had(self, unknown: Ints) -> None:
        """Answer left rows of whose time nothing is known any more with what they had; count those that are new."""
        renews = ~bools(self._left[NEW])[unknown]
        lost = self._left[pl.Series(unknown[~renews])]
        self._context.reject(BEFORE_HISTORY, lost)
        if not renews.any():
            return
        identity = [*self._join.foreign, AS_OF, KEY_HASH, *self._join.keys]
        mine, theirs = number_keys(FOREIGN_HASH, identity[1:], [self._left[identity], self._rows[identity]])
        of_message, of_row = mine.tolist(), theirs.tolist()
        had = self._had(of_row)
        wanted = {of_message[message] for message in unknown[renews].tolist()}
        asking = set(unknown[renews].tolist())
        messages: dict[int, list[int]] = {}
        for message, one in enumerate(of_message):
            if one in wanted:
                messages.setdefault(one, []).append(message)
        for one, about in messages.items():
            self._follow(about, asking, had.get(one, -1))

    def _had(self, of_row: Sequence[int]) -> dict[int, int]:
        """The place of the right row that each stored subscription has."""
        places = ints(self._rows["_row"])
        has = bools(self._stored.column("v1").is_not_null())[places]
        first = len(self._versions.payload)
        return {
            one: first + at
            for one, at, there in zip(of_row, places.tolist(), has.tolist(), strict=True)
            if there
        }

    def _follow(self, messages: Sequence[int], asking: set[int], had: int) -> None:
        """Follow what a left row has from message to message, and answer those that ask for it."""
        as_of, key = self._left[AS_OF][messages[0]], self._merged.left_id[messages[0]]
        concerned = np.flatnonzero((self._column["low"] <= as_of) & (as_of < self._column["high"]))
        changes = [
            (int(self._merged.right_at[put]), int(row))
            for put, row in zip(self._column["put"][concerned], self._column["row"][concerned], strict=True)
            if self._merged.right_id[put] == key
        ]
        before = 0
        for message in messages:
            at = int(self._merged.left_at[message])
            had = next((row for place, row in reversed(changes) if before < place < at), had)
            if message in asking:
                self._found[message] = had
            had, before = int(self._found[message]), at

    def answers(self) -> pl.DataFrame:
        """The answers to left messages."""
        has = self._found >= 0
        chosen = np.flatnonzero((self._kind != Ask.UNSUBSCRIBE) & (has | (self._kind != Ask.ANSWER_IF_FOUND)))
        live = (self._kind[chosen] >= Ask.ANSWER_ALWAYS) & (has[chosen] | self._join.keep_left)
        return self._left[pl.Series(chosen)].select(
            pl.col(SEQ).alias(PARENT),
            pl.lit(AFTER_FAN_OUT, pl.Int64).alias(NUMBER),
            KEY_HASH,
            *self._join.keys,
            TS,
            pl.lit(pl.Series(live, dtype=pl.Boolean)).alias(LIVE),
            pl.when(pl.lit(pl.Series(live, dtype=pl.Boolean))).then("v").alias("v0"),
            pl.lit(gather(self._right, np.where(live, self._found[chosen], -1))).alias("v1"),
        )

    def remember(self) -> None:
        """Write the versions, and the subscriptions that left messages made, renewed or ended."""
        self._versions.remember(self._context.trace(self._join.versions.name), self._context.observed)
        rows = self._left.with_columns(
            pl.Series(LIVE, self._kind >= Ask.ANSWER_ALWAYS, dtype=pl.Boolean),
            gather(self._right, self._found).alias("v1"),
        )
        self._write(last_by(rows, self._merged.left_id, [AS_OF, *self._join.keys]))

    def _write(self, rows: pl.DataFrame) -> None:
        numbers = key_times(ints(rows[FOREIGN_HASH]), ints(rows[AS_OF]))
        self._trace.insert(rows.with_columns(pl.Series(KEY_TIME, numbers, dtype=pl.Int64)))

    def fan_out(self) -> Iterator[pl.DataFrame]:
        """The answers to right changes, in chunks; then the subscriptions have other right rows."""
        if not self._spans:
            return
        values = pl.concat([self._stored.column("v"), self._left["v"]], rechunk=False)
        times = pl.concat([self._stored.column(TS), self._left[TS]], rechunk=False)
        stored = len(values) - self._left.height
        keys = [AS_OF, *self._join.keys]
        parts = Subscriptions.parts(
            self._left, self._rows, self._keys, stored, keys, list(self._join.foreign_keys), self._merged
        )
        for part in parts:
            last = np.full(len(part.row), -1, dtype=np.int64)
            for span, position in expanded_in_parts(*self._bounds(part), FAN_OUT_ROWS):
                reached = self._reached(part, span, position)
                span, position = span[reached], position[reached]  # noqa: PLW2901 - only these
                last[position] = span  # spans rise
                yield self._rows_of(part, span, position, values, times)
            changed = np.flatnonzero((last >= 0) & (part.end == OPEN))
            for begin in range(0, len(changed), FAN_OUT_ROWS):
                self._rewrite(part, changed[begin : begin + FAN_OUT_ROWS], last, values, times)

    def _bounds(self, part: Subscriptions) -> tuple[Ints, Ints]:
        """The positions of the subscriptions whose as-of times lie in each span."""
        key, as_of = self._merged.right_id[self._column["put"]], ints(part.keys[AS_OF])
        low, high = self._column["low"], self._column["high"]
        times = np.unique(np.concatenate([as_of, low, high]))

        def place(keys: Ints, of: Ints) -> Ints:
            return np.asarray(keys * len(times) + np.searchsorted(times, of))

        places = place(part.foreign, as_of)
        return np.searchsorted(places, place(key, low)), np.searchsorted(places, place(key, high))

    def _reached(self, part: Subscriptions, span: Ints, position: Ints) -> Bools:
        """The subscriptions that exist at their span's place, and have no other answer in its step."""
        put = self._column["put"][span]
        at = self._merged.right_at[put]
        stands = (part.start[position] < at) & (at < part.end[position])
        same_step = part.end_step[position] == ints(self._puts[STEP])[put]
        answered = (self._column["row"][span] >= 0) | part.end_answers[position]
        return np.asarray(stands & ~(same_step & answered))

    def _rows_of(
        self, part: Subscriptions, span: Ints, position: Ints, values: pl.Series, times: pl.Series
    ) -> pl.DataFrame:
        """One chunk of a fan-out."""
        row = part.row[position]
        found = self._column["row"][span]
        live = (found >= 0) | self._join.keep_left
        return (
            part.keys[pl.Series(position)]
            .drop(AS_OF)
            .with_columns(
                pl.Series(PARENT, ints(self._puts[SEQ])[self._column["put"][span]], dtype=pl.Int64),
                gather(times, row).alias(TS),
                pl.Series(LIVE, live, dtype=pl.Boolean),
                gather(values, np.where(live, row, -1)).alias("v0"),
                gather(self._versions.payload, found).alias("v1"),
            )
        )

    def _rewrite(
        self, part: Subscriptions, changed: Ints, last: Ints, values: pl.Series, times: pl.Series
    ) -> None:
        """Remember what some subscriptions have now."""
        put = self._column["put"][last[changed]]
        row = part.row[changed]
        rows = self._puts[self._join.foreign][pl.Series(put)].hstack(part.keys[pl.Series(changed)])
        self._write(
            rows.with_columns(
                gather(times, row).alias(TS),
                pl.lit(value=True).alias(LIVE),
                gather(values, row).alias("v"),
                gather(self._versions.payload, self._column["row"][last[changed]]).alias("v1"),
            )
        )


class Span(NamedTuple):
    """As-of times from `low` up to, but not including, `high`, at which a right change finds something else.

    `put`: the position of the right change. `before`, `row`: the places of the payload found before and now; -1: none.
    """

    put: int
    low: int
    high: int
    before: int
    row: int


@dataclass
class AsOfVersions:
    """Writes versions, and looks them up, in the order of their places."""

    versions: OpenVersions
    """The versions: `puts` are the right changes, and those `asked` for the left messages."""
    forward: bool
    """Which of the rules above applies."""
    bound: int = BEGIN
    """How far back the history reaches at this place."""
    spans: list[Span] = field(default_factory=list)
    """What the right changes have changed."""

    def put(self, position: int, time: int, bound: int, *, exists: bool) -> None:
        """Write a right change."""
        self.bound = bound
        history = self.versions.written(position)
        known_since, before = self._known_since(history), self._found(history, time)
        if self.forward and not exists and not self._has_row(history, time):
            before = -1  # it takes no row away, so nothing changes
        self.versions.put(position, time, exists=exists)
        row = self._found(history, time)
        if self.forward:
            last = history.row_before(time)
            low, high = known_since if last is None else last + 1, time + 1
        else:
            end = history.end(time)
            low, high = time, END if end is None else end
        if low < high and (before >= 0 or exists):
            self.spans.append(Span(position, low, high, before, row))

    def look_up(self, position: int, as_of: int) -> int | None:
        """The place of the payload that a left message finds; -1: none. None: it is not known any more."""
        history = self.versions.asked(position)
        return None if as_of < self._known_since(history) else self._found(history, as_of)

    def _known_since(self, history: History) -> int:
        """Since when all versions of a row are known."""
        history.forget(self.bound)
        return min(self.bound, history.times[0]) if history.times else self.bound

    def _found(self, history: History, time: int) -> int:
        return history.following(time) if self.forward else history.as_of(time, None)

    @staticmethod
    def _has_row(history: History, time: int) -> bool:
        at = history.place(time)
        return at is not None and history.rows[at] >= 0


def settled(spans: Iterable[Span], steps: Sequence[int], keys: Sequence[int]) -> Iterator[Span]:
    """Settle the spans of each step and key: an as-of time changes once, by the last right change that concerns it.

    `steps`, `keys`: the step and the number of the key of each right change.

    Examples
    --------
    >>> list(settled([Span(0, 3, 9, -1, 7), Span(1, 5, 9, 7, -1)], [1, 1], [0, 0]))
    [Span(put=0, low=3, high=5, before=-1, row=7)]
    """
    for _, of_step in groupby(spans, key=lambda span: steps[span.put]):
        of_keys: dict[int, list[Span]] = {}
        for span in of_step:
            of_keys.setdefault(keys[span.put], []).append(span)
        for together in of_keys.values():
            yield from together if len(together) == 1 else _cut(together)


def _cut(spans: Sequence[Span]) -> Iterator[Span]:
    """Cut spans where one begins or ends, and leave out those that find what was found before."""
    times = sorted({time for span in spans for time in (span.low, span.high)})
    for low, high in pairwise(times):
        mine = [span for span in spans if span.low <= low and high <= span.high]
        if mine and mine[0].before != mine[-1].row:
            yield mine[-1]._replace(low=low, high=high, before=mine[0].before)
