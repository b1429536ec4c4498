"""Whole transactions: the changes that a transaction made to several tables wait until all of them have arrived.

`TransactionGate` runs in one shard. It hears of every event of the tables, without its row, and of every transaction's
end, which says how many events each table has of it:

===================================================  ==============================================================
what arrives                                         effect
===================================================  ==============================================================
an event of a transaction                            is counted, once
the end of a transaction                             the transaction stands in line behind those that ended before
the first in line has all its events                 it is released, in the order of the ends, which is that of commits
the first in line has waited ``timeout``             the same; counted
an event of a transaction that was released before   the transaction is released again
an end that counts no event at all                   nothing is waited for: what has arrived of it is released
the end of a transaction that has ended before       nothing: the connector repeats what it sent
===================================================  ==============================================================

`HeldChanges` runs by key. It keeps the changes of a table until their transaction is released, and emits them in the
order in which the transaction made them. A change without a transaction, such as a row of a snapshot, passes at once,
or behind the last change of its key that waits.

Each release is a step of its own, in all tables: what later operators make of a transaction is one step. The gate waits
for a count of events and `HeldChanges` for the name of a transaction; neither is a `buffer.waiting.ReleaseRule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.errors import CaptureError
from tablestream.operators.buffer.waiting import ARRIVAL, ARRIVALS, EXISTS, WAITING, changed
from tablestream.operators.captured.capture import CAPTURE, CONTROL, IN_ONE_SHARD, IS_EVENT, TYPE
from tablestream.operators.captured.captured_table import CapturedTable
from tablestream.operators.events import stored_rows
from tablestream.operators.operator import (
    NUMBER,
    PARENT,
    Context,
    Emission,
    Filled,
    Messages,
    OfTable,
    Operator,
)
from tablestream.operators.reasons import INCOMPLETE
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    NOTHING,
    SEQ,
    TS,
    last_by,
    number_keys,
    stable_hash,
)
from tablestream.state.trace_spec import TraceSpec

TRANSACTION, EVENT = "_tx", "_event"
_OF_EVENT = {
    FOREIGN_HASH: IN_ONE_SHARD,
    LIVE: IS_EVENT,
    TRANSACTION: Filled(pl.String(), "CASE WHEN __capture.number IS NOT NULL THEN __capture.transaction END"),
    EVENT: Filled(pl.Int64(), "__capture.number"),
}
#: The value of a transaction's end: its id, and the numbers of events by table.
END_TYPE = pl.Struct({"c0": pl.String(), "c1": pl.List(pl.String()), "c2": pl.List(pl.Int64())})
_HASH, _EXPECTED, _SINCE, _UNTIL = "_h", "_expected", "_since", "_until"
_LINE, _SEEN, _ENDED, _ENDS = "line", "seen", "ended", "ends"
#: How long the id of an ended transaction is known.
_KNOWN_US = 7 * 24 * 3600 * 1_000_000
#: More than a transaction has events: changes without a number come behind the others.
_UNNUMBERED = 1 << 40
#: What is expected of a transaction whose end counts no event: a connector that is restarted may write such an end.
_UNCOUNTED = -1


@dataclass(frozen=True)
class TransactionGate(Operator):
    """Release transactions when all their events have arrived.

    Input 0: the ends; ``v`` is `END_TYPE`. Other inputs: events, with ``_tx``. Output 0: ``_tx``, in every shard.
    """

    timeout_us: int | None
    """How long the first transaction in line may lack events, in microseconds of wall clock. None: for ever."""
    tables: tuple[str, ...] = ()
    """The tables whose events arrive, one for each input but the first."""

    parameters = ("timeout_us",)
    marks = (_ENDS,)
    reasons = (INCOMPLETE,)
    splits_steps = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        head = {FOREIGN_HASH: pl.Int64(), TS: pl.Int64(), LIVE: pl.Boolean()}
        nothing = pl.Struct({NOTHING: pl.Boolean()})
        event = Messages({**head, **_OF_EVENT, "v": nothing})
        return (pl.Schema({**head, "v": END_TYPE}), *(event for _ in self.tables))

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        columns = {FOREIGN_HASH: pl.Int64(), TS: pl.Int64(), LIVE: pl.Boolean(), TRANSACTION: pl.String()}
        return (pl.Schema(columns),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        line = {_HASH: pl.Int64(), ARRIVAL: pl.Int64(), TRANSACTION: pl.String(), TS: pl.Int64()}
        line |= {_EXPECTED: pl.Int64(), _SINCE: pl.Int64(), LIVE: pl.Boolean()}
        of = {_HASH: pl.Int64(), TRANSACTION: pl.String()}
        seen = pl.Schema({**of, EVENT: pl.Int64(), LIVE: pl.Boolean()})
        ended = pl.Schema({**of, _UNTIL: pl.Int64(), LIVE: pl.Boolean()})
        return (
            TraceSpec(_LINE, pl.Schema(line), (ARRIVAL,), hash=_HASH),
            TraceSpec(_SEEN, seen, (TRANSACTION,), (EVENT,), hash=_HASH),
            TraceSpec(_ENDED, ended, (TRANSACTION,), hash=_HASH, expires=_UNTIL),
        )

    @property
    def needs_clock(self) -> bool:
        return self.timeout_us is not None

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Count events, let transactions that ended stand in line, and release the complete ones."""
        ends, *events = inputs
        nothing = pl.DataFrame(schema={TRANSACTION: pl.String(), EVENT: pl.Int64()})
        arrived = pl.concat([nothing, *(one.select(TRANSACTION, EVENT) for one in events)])
        arrived = _with_hashes(arrived.filter(pl.col(TRANSACTION).is_not_null()))
        stood = context.trace(_LINE).scan().sort(ARRIVAL)
        line = pl.concat([stood, self._ended(ends, context)])
        names = arrived.select(_HASH, TRANSACTION).unique()
        stored = stored_rows(context.trace(_SEEN), names, line.select(_hashed(), TRANSACTION))
        stored = stored.select(_HASH, TRANSACTION, EVENT)
        seen = pl.concat([stored, arrived.select(stored.columns)]).unique(keep="first", maintain_order=True)
        # released before, and an event arrives
        again = sorted(set(context.trace(_ENDED).lookup(names)[TRANSACTION]) - set(line[TRANSACTION]))
        released = self._released(line, dict(seen.group_by(TRANSACTION).len().iter_rows()), context)
        context.trace(_LINE).insert(changed(line, stood.height, pl.int_range(pl.len()) >= released.height))
        over = pl.col(TRANSACTION).is_in([*again, *released[TRANSACTION]])
        context.trace(_SEEN).insert(changed(seen, stored.height, ~over))
        found = [*again, *released.filter(pl.col(_EXPECTED) != 0)[TRANSACTION]]
        yield Emission(0, self._releases(found, _cause(inputs, context), context))

    def _ended(self, ends: pl.DataFrame, context: Context) -> pl.DataFrame:
        """The transactions that end now and not again, behind each other as they will stand in line."""
        found = ends.select(pl.col("v").struct.unnest(), TS).unique("c0", keep="first", maintain_order=True)
        names = found.select(pl.col("c0").alias(TRANSACTION)).with_columns(_hashed())
        known = set(context.trace(_ENDED).lookup(names)[TRANSACTION])
        numbers = context.number(found.height, _ENDS)
        new = [
            (0, number, name, time, self._expected(tables or [], counts or []), context.now_us, True)
            for number, (name, tables, counts, time) in zip(numbers, found.iter_rows(), strict=True)
            if name not in known
        ]
        context.trace(_ENDED).insert(
            names.with_columns(found[TS] + _KNOWN_US, pl.lit(value=True).alias(LIVE)).rename({TS: _UNTIL}),
            expired_before=None if found.is_empty() else int(found[TS].max()),  # type: ignore[arg-type]
        )
        return pl.DataFrame(new, self.traces[0].schema, orient="row")

    def _expected(self, tables: Sequence[str], counts: Sequence[int]) -> int:
        """How many events the tables of the plan have of a transaction."""
        if not sum(counts):
            return _UNCOUNTED
        return sum(count for name, count in zip(tables, counts, strict=True) if name in self.tables)

    def _released(self, line: pl.DataFrame, seen: dict[str, int], context: Context) -> pl.DataFrame:
        """The first transactions in line that are complete, or have waited too long."""
        clock, count = context.clock, 0
        for name, expected, since in line.select(TRANSACTION, _EXPECTED, _SINCE).iter_rows():
            if not expected and seen.get(name):
                raise CaptureError(
                    f"Transaction {name} has events of the tables {', '.join(self.tables)}, and its end names none of"
                    " them.",
                    hint="Name tables as the transaction topic does in data_collections, and give topic=.",
                )
            if seen.get(name, 0) < expected:
                if clock is None or clock.tick is None or self.timeout_us is None:
                    break  # before the tick, a later slice of the micro-batch may have the events
                if clock.now_us < since + self.timeout_us:
                    clock.wake(since + self.timeout_us)
                    break
                context.dropped[INCOMPLETE] += 1
            count += 1
        return line.head(count)

    def _releases(self, names: Sequence[str], parent: int, context: Context) -> pl.DataFrame:
        """What tells every shard which transactions are released."""
        numbers = pl.int_range(len(names), dtype=pl.Int64, eager=True)
        zero = pl.lit(0, pl.Int64)
        return pl.DataFrame({TRANSACTION: names}, {TRANSACTION: pl.String()}).with_columns(
            pl.lit(parent, pl.Int64).alias(PARENT),
            context.among_shards(pl.lit(numbers)).alias(NUMBER),
            zero.alias(FOREIGN_HASH),
            zero.alias(TS),
            pl.lit(value=True).alias(LIVE),
        )


def _cause(inputs: Sequence[pl.DataFrame], context: Context) -> int:
    """The place of what causes the releases: of the clock's tick or, if it does not run now, the last message."""
    if context.clock is not None and context.clock.tick is not None:
        return context.clock.tick
    return max((int(one[SEQ].max()) for one in inputs if one.height), default=0)  # type: ignore[arg-type]


def _hashed() -> pl.Expr:
    """The hash of a transaction."""
    return pl.col(TRANSACTION).map_elements(lambda name: stable_hash(name.encode()), pl.Int64).alias(_HASH)


def _with_hashes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the hashes of transactions, of which few have many rows."""
    hashed = rows.select(TRANSACTION).unique().with_columns(_hashed())
    return rows.join(hashed, on=TRANSACTION, how="left", nulls_equal=True, maintain_order="left")


_BLOCKED = "blocked"
#: Of a change that waits, whether it concerns all rows.
IS_CONTROL = "_is_control"


@dataclass(frozen=True)
class HeldChanges(OfTable):
    """Keep the changes of a captured table until their transaction is released.

    Notes
    -----
    Input 0: the changes of rows. Input 1, in every shard: what concerns all rows. Input 2, in every shard: releases.
    Outputs: what `CapturedTable` reads.
    """

    marks = (ARRIVALS,)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (*self.outputs, TransactionGate(None).outputs[0])

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return CapturedTable(self.keys, self.value, (), follows_moves=False).inputs

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        key = {KEY_HASH: pl.Int64(), **self.keys}
        waiting = {_HASH: pl.Int64(), TRANSACTION: pl.String(), ARRIVAL: pl.Int64(), NUMBER: pl.Int64()}
        waiting |= {**key, TS: pl.Int64(), EXISTS: pl.Boolean(), IS_CONTROL: pl.Boolean(), CAPTURE: TYPE}
        blocked = pl.Schema({**key, TRANSACTION: pl.String(), NUMBER: pl.Int64(), LIVE: pl.Boolean()})
        schema = pl.Schema({**waiting, LIVE: pl.Boolean(), "v": self.value})
        return (
            TraceSpec(WAITING, schema, (TRANSACTION,), (ARRIVAL,), hash=_HASH),
            TraceSpec(_BLOCKED, blocked, tuple(self.keys), hash=KEY_HASH),
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        changes, controls, releases = inputs
        arrived = self._with_transactions(self._arrived(changes, controls, context), context)
        at_once = arrived.filter(pl.col(TRANSACTION).is_null())
        waits = arrived.filter(pl.col(TRANSACTION).is_not_null()).drop(SEQ)
        last = releases.group_by(TRANSACTION).agg(pl.col(SEQ).last().alias(PARENT))
        trace = context.trace(WAITING)
        stored = trace.lookup(last.with_columns(_hashed()))
        over = pl.col(TRANSACTION).is_in(last[TRANSACTION].implode())
        rows = pl.concat([stored, waits.select(stored.columns)])
        released = rows.filter(over).sort(NUMBER, ARRIVAL)
        released = released.join(last, on=TRANSACTION, how="left", maintain_order="left")
        place = context.among_shards(pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER)
        now = at_once.with_columns(pl.col(SEQ).alias(PARENT)).select(released.columns)
        both = pl.concat([now, released]).with_columns(place)
        for number, is_control in enumerate((False, True)):
            yield Emission(number, self._emitted(both, is_control, context))
        trace.insert(changed(rows, stored.height, ~over))
        self._block(waits.filter(~over), released, context)

    def _arrived(self, changes: pl.DataFrame, controls: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Changes and controls as one frame, numbered by their arrival."""
        both = pl.concat([self._waiting(changes, CAPTURE), self._waiting(controls, CONTROL)]).sort(SEQ)
        return both.with_columns(context.number(both.height, ARRIVALS).alias(ARRIVAL))

    def _waiting(self, messages: pl.DataFrame, name: str) -> pl.DataFrame:
        """Messages as they wait; `name` is the column with what the connector says of them."""
        said = pl.col(name).struct
        number = said.field("number")
        return messages.select(
            SEQ,
            pl.when(number.is_not_null()).then(said.field("transaction")).alias(TRANSACTION),
            number.fill_null(_UNNUMBERED).alias(NUMBER),
            KEY_HASH,
            *self.keys,
            TS,
            pl.col(LIVE).alias(EXISTS),
            pl.lit(name == CONTROL).alias(IS_CONTROL),
            pl.col(name).alias(CAPTURE),
            pl.lit(value=True).alias(LIVE),
            "v",
        )

    def _with_transactions(self, arrived: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Put changes without a transaction behind the change of their key before that waits, if there is one."""
        key = [KEY_HASH, *self.keys]
        rows = arrived.filter(~pl.col(IS_CONTROL))
        if rows[TRANSACTION].has_nulls():
            zero = pl.lit(0, pl.Int64).alias(SEQ)
            blocked = stored_rows(context.trace(_BLOCKED), rows)
            both = pl.concat(
                [one.select(*key, TRANSACTION, NUMBER, SEQ) for one in (blocked.with_columns(zero), rows)]
            )
            (numbers,) = number_keys(KEY_HASH, self.keys, [both])
            kid = pl.Series(numbers)
            waits = pl.col(TRANSACTION).is_not_null()
            both = both.with_columns(
                pl.col(TRANSACTION).forward_fill().over(kid),
                pl.when(waits).then(NUMBER).forward_fill().over(kid),
            )
            taken = both.filter((pl.col(SEQ) > 0) & waits).select(SEQ, TRANSACTION, NUMBER)
            taking = arrived.drop(TRANSACTION, NUMBER).join(taken, on=SEQ).select(arrived.columns)
            arrived = pl.concat([arrived.join(taken, on=SEQ, how="anti"), taking]).sort(SEQ)
        return _with_hashes(arrived)

    def _emitted(self, rows: pl.DataFrame, is_control: bool, context: Context) -> pl.DataFrame:
        """Messages, under the names of an output."""
        shard = pl.lit(context.shard, pl.Int64).alias(FOREIGN_HASH)
        mine = rows.filter(pl.col(IS_CONTROL) == is_control).drop(LIVE).with_columns(shard)
        mine = mine.rename({EXISTS: LIVE, CAPTURE: CONTROL if is_control else CAPTURE})
        return mine.select(PARENT, NUMBER, *self.outputs[int(is_control)])

    def _block(self, waits: pl.DataFrame, released: pl.DataFrame, context: Context) -> None:
        """Remember of each key the last transaction that it waits for."""
        key = [KEY_HASH, *self.keys]
        trace = context.trace(_BLOCKED)
        rows = waits.filter(~pl.col(IS_CONTROL)).select(*key, TRANSACTION, NUMBER)
        if rows.height:
            (kid,) = number_keys(KEY_HASH, self.keys, [rows])
            trace.insert(last_by(rows, kid).with_columns(pl.lit(value=True).alias(LIVE)))
        free = released.filter(~pl.col(IS_CONTROL)).select(*key, TRANSACTION)
        if free.height:
            stored = stored_rows(trace, free)
            over = stored.filter(pl.col(TRANSACTION).is_in(free[TRANSACTION].unique().implode()))
            trace.insert(over.with_columns(pl.lit(value=False).alias(LIVE)))
