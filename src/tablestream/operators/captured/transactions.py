"""Whole transactions: the changes that a transaction made to several tables wait until all of them have arrived.

`TransactionGate` runs in one shard. It hears of every event of the tables, without its row, and of every transaction's
end, which says how many events each table has of it:

===================================================  ==============================================================
what arrives                                         effect
===================================================  ==============================================================
an event of a transaction                            is counted
the end of a transaction                             the transaction stands in line behind those that ended before
the first in line has all its events                 it is released, in the order of the ends, which is that of commits
the first in line has waited ``timeout``             the same; counted
an event of a transaction that was released before   the transaction is released again
the end of a transaction that has ended before       nothing: the connector repeats what it sent
===================================================  ==============================================================

`HeldChanges` runs by key. It keeps the changes of a table until their transaction is released, and emits them in the
order in which the transaction made them. A change without a transaction, such as a row of a snapshot, passes at once,
or behind the last change of its key that waits.

Each release is a step of its own, in all tables: what later operators make of a transaction is one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.captured.capture import CAPTURE, CONTROL, TYPE
from tablestream.operators.events import touched_keys
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_rows
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
from tablestream.state.trace import TraceSpec

TRANSACTION = "_tx"
#: The value of a transaction's end: its id, and the numbers of events by table.
END_TYPE = pl.Struct({"c0": pl.String(), "c1": pl.List(pl.String()), "c2": pl.List(pl.Int64())})
_HASH, _ORDER, _EXPECTED, _SINCE, _COUNT, _UNTIL = "_h", "_n", "_expected", "_since", "_count", "_until"
_LINE, _SEEN, _ENDED, _ENDS = "line", "seen", "ended", "ends"
#: How long the id of an ended transaction is known.
_KNOWN_US = 7 * 24 * 3600 * 1_000_000
#: More than a transaction has events: changes without a number come behind the others.
_UNNUMBERED = 1 << 40


@dataclass(frozen=True)
class TransactionGate(Operator):
    """Release transactions when all their events have arrived.

    Parameters
    ----------
    timeout_us
        How long the first transaction in line may lack events, in microseconds of wall clock. None: for ever.
    tables
        The tables whose events arrive, one for each input but the first.

    Notes
    -----
    Input 0: the ends; ``v`` is `END_TYPE`. Other inputs: events, with ``_tx``. Output 0: ``_tx``, in every shard.
    """

    timeout_us: int | None
    tables: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("timeout_us",)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        head = {FOREIGN_HASH: pl.Int64(), TS: pl.Int64(), LIVE: pl.Boolean()}
        nothing = pl.Struct({NOTHING: pl.Boolean()})
        event = pl.Schema({**head, TRANSACTION: pl.String(), "v": nothing})
        return (pl.Schema({**head, "v": END_TYPE}), *(event for _ in self.tables))

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        columns = {FOREIGN_HASH: pl.Int64(), TS: pl.Int64(), LIVE: pl.Boolean(), TRANSACTION: pl.String()}
        return (pl.Schema(columns),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        line = {_HASH: pl.Int64(), _ORDER: pl.Int64(), TRANSACTION: pl.String(), TS: pl.Int64()}
        line |= {_EXPECTED: pl.Int64(), _SINCE: pl.Int64(), LIVE: pl.Boolean()}
        of = {_HASH: pl.Int64(), TRANSACTION: pl.String()}
        seen = pl.Schema({**of, _COUNT: pl.Int64(), LIVE: pl.Boolean()})
        ended = pl.Schema({**of, _UNTIL: pl.Int64(), LIVE: pl.Boolean()})
        return (
            TraceSpec(_LINE, 0, pl.Schema(line), (_ORDER,), hash=_HASH),
            TraceSpec(_SEEN, 1, seen, (TRANSACTION,), hash=_HASH),
            TraceSpec(_ENDED, 2, ended, (TRANSACTION,), hash=_HASH, expires=_UNTIL),
        )

    @property
    def marks(self) -> tuple[str, ...]:
        return (_ENDS,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (INCOMPLETE,)

    @property
    def needs_clock(self) -> bool:
        return self.timeout_us is not None

    @property
    def splits_steps(self) -> bool:
        return True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Count events, let transactions that ended stand in line, and release the complete ones."""
        ends, *events = inputs
        arrived = pl.concat(
            [one.select(TRANSACTION) for one in events] or [pl.DataFrame(schema={TRANSACTION: pl.String()})]
        )
        arrived = arrived.filter(pl.col(TRANSACTION).is_not_null())
        line = self._line(ends, context)
        counts = (
            arrived.group_by(TRANSACTION).agg(pl.len().cast(pl.Int64).alias(_COUNT)).with_columns(_hashed())
        )
        asked = touched_keys([counts.select(_HASH, TRANSACTION), line.select(_hashed(), TRANSACTION)])
        stored = context.trace(_SEEN).lookup(asked)
        both = pl.concat([counts.select(TRANSACTION, _COUNT), stored.select(TRANSACTION, _COUNT)])
        seen = dict(both.group_by(TRANSACTION).agg(pl.col(_COUNT).sum()).iter_rows())
        released = self._released(line, seen, context)
        again = self._again(counts, line, context)
        self._remember(released, line, counts, seen, context)
        names = [*again, *released.filter(pl.col(_EXPECTED) > 0)[TRANSACTION]]
        last = max((int(one[SEQ].max()) for one in inputs if one.height), default=0)  # type: ignore[arg-type]
        if context.clock is not None and context.clock.tick is not None:
            last = context.clock.tick
        yield Emission(0, self._releases(names, last, context))

    def _line(self, ends: pl.DataFrame, context: Context) -> pl.DataFrame:
        """The transactions that stand in line, with those that end now; in their order."""
        stored = context.trace(_LINE).scan().sort(_ORDER).drop(LIVE)
        found = ends.select(pl.col("v").struct.unnest(), TS).unique("c0", keep="first", maintain_order=True)
        names = found.select(pl.col("c0").alias(TRANSACTION)).with_columns(_hashed())
        known = set(context.trace(_ENDED).lookup(names.select(_HASH, TRANSACTION))[TRANSACTION])
        first, now = context.marks.get(_ENDS, 0), 0 if context.clock is None else context.clock.now_us
        new = [
            (0, first + n, name, time, self._expected(tables or [], counts or []), now)
            for n, (name, tables, counts, time) in enumerate(found.iter_rows())
            if name not in known
        ]
        context.marks[_ENDS] = first + found.height
        context.trace(_ENDED).insert(
            names.with_columns(found[TS] + _KNOWN_US, pl.lit(value=True).alias(LIVE)).rename({TS: _UNTIL}),
            expired_before=None if found.is_empty() else int(found[TS].max()),  # type: ignore[arg-type]
        )
        return pl.concat([stored, pl.DataFrame(new, stored.schema, orient="row")])

    def _expected(self, tables: Sequence[str], counts: Sequence[int]) -> int:
        """How many events the tables of the plan have of a transaction."""
        return sum(count for name, count in zip(tables, counts, strict=True) if name in self.tables)

    def _released(self, line: pl.DataFrame, seen: dict[str, int], context: Context) -> pl.DataFrame:
        """The first transactions in line that are complete, or have waited too long."""
        clock, count = context.clock, 0
        for name, expected, since in line.select(TRANSACTION, _EXPECTED, _SINCE).iter_rows():
            if seen.get(name, 0) < expected:
                if clock is None or self.timeout_us is None:
                    break
                if clock.now_us < since + self.timeout_us:
                    clock.wake(since + self.timeout_us)
                    break
                context.dropped[INCOMPLETE] += 1
            count += 1
        return line.head(count)

    def _again(self, counts: pl.DataFrame, line: pl.DataFrame, context: Context) -> list[str]:
        """The transactions that have been released, and of which an event arrives."""
        known = context.trace(_ENDED).lookup(counts.select(_HASH, TRANSACTION))[TRANSACTION]
        in_line = set(line[TRANSACTION])
        return sorted(name for name in known if name not in in_line)

    def _remember(
        self,
        released: pl.DataFrame,
        line: pl.DataFrame,
        counts: pl.DataFrame,
        seen: dict[str, int],
        context: Context,
    ) -> None:
        """Store who stands in line, and how many events have arrived of those that are not released."""
        there = pl.lit(value=True).alias(LIVE), pl.lit(value=False).alias(LIVE)
        waiting = line.tail(line.height - released.height)
        trace = context.trace(_LINE)
        trace.insert(pl.concat([released.with_columns(there[1]), waiting.with_columns(there[0])]))
        gone = set(released[TRANSACTION])
        left = counts.filter(~pl.col(TRANSACTION).is_in(list(gone)))
        left = left.with_columns(
            pl.col(TRANSACTION).replace_strict(seen, default=0, return_dtype=pl.Int64).alias(_COUNT), there[0]
        )
        over = released.select(TRANSACTION).with_columns(
            _hashed(), pl.lit(0, pl.Int64).alias(_COUNT), there[1]
        )
        trace = context.trace(_SEEN)
        columns = list(trace.spec.schema)
        trace.insert(pl.concat([left.select(columns), over.select(columns)]))

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


def _hashed() -> pl.Expr:
    """The hash of a transaction."""
    return pl.col(TRANSACTION).map_elements(lambda name: stable_hash(name.encode()), pl.Int64).alias(_HASH)


_WAITING, _BLOCKED, _ARRIVALS, _EXISTS = "waiting", "blocked", "arrivals", "_exists"
_IS_CONTROL = "_is_control"


@dataclass(frozen=True)
class HeldChanges(Operator):
    """Keep the changes of a captured table until their transaction is released.

    Parameters
    ----------
    keys, value
        As for `CapturedTable`.

    Notes
    -----
    Input 0: the changes of rows. Input 1, in every shard: what concerns all rows. Input 2, in every shard: releases.
    Outputs: what `CapturedTable` reads.
    """

    keys: pl.Schema
    value: pl.DataType

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (*self.outputs, TransactionGate(None).outputs[0])

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (
            keyed_rows(self.keys, {CAPTURE: TYPE, "v": self.value}),
            keyed_rows(self.keys, {FOREIGN_HASH: pl.Int64(), CONTROL: TYPE, "v": self.value}),
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        key = {KEY_HASH: pl.Int64(), **self.keys}
        waiting = {_HASH: pl.Int64(), TRANSACTION: pl.String(), _ORDER: pl.Int64(), NUMBER: pl.Int64()}
        waiting |= {**key, TS: pl.Int64(), _EXISTS: pl.Boolean(), _IS_CONTROL: pl.Boolean(), CAPTURE: TYPE}
        blocked = pl.Schema({**key, TRANSACTION: pl.String(), LIVE: pl.Boolean()})
        schema = pl.Schema({**waiting, LIVE: pl.Boolean(), "v": self.value})
        return (
            TraceSpec(_WAITING, 0, schema, (TRANSACTION,), (_ORDER,), hash=_HASH),
            TraceSpec(_BLOCKED, 1, blocked, tuple(self.keys), hash=KEY_HASH),
        )

    @property
    def marks(self) -> tuple[str, ...]:
        return (_ARRIVALS,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Let changes wait for their transactions, and emit those that are released."""
        changes, controls, releases = inputs
        arrived = self._with_transactions(self._arrived(changes, controls, context), context)
        at_once = arrived.filter(pl.col(TRANSACTION).is_null())
        waits = arrived.filter(pl.col(TRANSACTION).is_not_null()).drop(SEQ)
        names = releases.select(TRANSACTION).unique().with_columns(_hashed()).select(_HASH, TRANSACTION)
        trace = context.trace(_WAITING)
        stored = trace.lookup(names)
        over = pl.col(TRANSACTION).is_in(names[TRANSACTION].implode())
        released = pl.concat([stored, waits.filter(over).select(stored.columns)]).sort(NUMBER, _ORDER)
        last = releases.group_by(TRANSACTION).agg(pl.col(SEQ).last().alias(PARENT))
        released = released.join(last, on=TRANSACTION, how="left", maintain_order="left")
        now = at_once.with_columns(pl.col(SEQ).alias(PARENT), pl.lit(0, pl.Int64).alias(NUMBER)).select(
            released.columns
        )
        both = pl.concat([now, released])
        for number, kind in enumerate((CAPTURE, CONTROL)):
            yield Emission(number, self._emitted(both, number == 1, kind, context))
        gone = stored.with_columns(pl.lit(value=False).alias(LIVE), pl.lit(None, self.value).alias("v"))
        trace.insert(pl.concat([gone, waits.filter(~over).select(stored.columns)]))
        self._block(waits.filter(~over), released, context)

    def _arrived(self, changes: pl.DataFrame, controls: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Changes and controls as one frame, numbered by their arrival."""
        parts = []
        for frame, name in ((changes, CAPTURE), (controls, CONTROL)):
            said = pl.col(name).struct
            parts.append(
                frame.select(
                    SEQ,
                    pl.when(said.field("number").is_not_null())
                    .then(said.field("transaction"))
                    .alias(TRANSACTION),
                    said.field("number").fill_null(_UNNUMBERED).alias(NUMBER),
                    KEY_HASH,
                    *self.keys,
                    TS,
                    pl.col(LIVE).alias(_EXISTS),
                    pl.lit(name == CONTROL).alias(_IS_CONTROL),
                    pl.col(name).alias(CAPTURE),
                    pl.lit(value=True).alias(LIVE),
                    "v",
                )
            )
        both = pl.concat(parts).sort(SEQ)
        first = context.marks.get(_ARRIVALS, 0)
        context.marks[_ARRIVALS] = first + both.height
        return both.with_columns(pl.int_range(first, first + both.height, dtype=pl.Int64).alias(_ORDER))

    def _with_transactions(self, arrived: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Give changes without a transaction that of the change of their key before which waits, if there is one."""
        key = [KEY_HASH, *self.keys]
        has_none = pl.col(TRANSACTION).is_null() & ~pl.col(_IS_CONTROL)
        if arrived.select(has_none.any()).item():
            touched = touched_keys([arrived.filter(~pl.col(_IS_CONTROL)).select(key)])
            blocked = context.trace(_BLOCKED).lookup(touched)
            before = blocked.select(*key, TRANSACTION, pl.lit(0, pl.Int64).alias(SEQ))
            both = pl.concat([before, arrived.filter(~pl.col(_IS_CONTROL)).select(*key, TRANSACTION, SEQ)])
            (kid,) = number_keys(KEY_HASH, list(self.keys), [both])
            filled = both.with_columns(pl.col(TRANSACTION).forward_fill().over(kid)).filter(pl.col(SEQ) > 0)
            taken = filled.select(SEQ, pl.col(TRANSACTION).alias("_taken"))
            arrived = arrived.join(taken, on=SEQ, how="left", maintain_order="left")
            arrived = arrived.with_columns(pl.coalesce(TRANSACTION, "_taken").alias(TRANSACTION)).drop(
                "_taken"
            )
        hashed = (
            arrived.select(TRANSACTION).unique().with_columns(_hashed())
        )  # few transactions have many changes
        return arrived.join(hashed, on=TRANSACTION, how="left", nulls_equal=True, maintain_order="left")

    def _emitted(self, rows: pl.DataFrame, is_control: bool, name: str, context: Context) -> pl.DataFrame:
        """Messages, under the names of an output."""
        mine = rows.filter(pl.col(_IS_CONTROL) == is_control).drop(LIVE).rename({_EXISTS: LIVE})
        unnumbered = _UNNUMBERED + context.among_shards(pl.int_range(pl.len(), dtype=pl.Int64))
        number = pl.when(pl.col(NUMBER) == _UNNUMBERED).then(unnumbered).otherwise(NUMBER).alias(NUMBER)
        shard = pl.lit(context.shard, pl.Int64).alias(FOREIGN_HASH)
        mine = mine.with_columns(number, shard)
        mine = mine.rename({CAPTURE: name}) if name != CAPTURE else mine
        return mine.select(PARENT, NUMBER, *self.outputs[int(is_control)])

    def _block(self, waits: pl.DataFrame, released: pl.DataFrame, context: Context) -> None:
        """Remember of each key the last transaction that it waits for."""
        key = [KEY_HASH, *self.keys]
        trace = context.trace(_BLOCKED)
        rows = waits.filter(~pl.col(_IS_CONTROL)).select(*key, TRANSACTION)
        if rows.height:
            (kid,) = number_keys(KEY_HASH, list(self.keys), [rows])
            trace.insert(last_by(rows, kid).with_columns(pl.lit(value=True).alias(LIVE)))
        free = released.filter(~pl.col(_IS_CONTROL)).select(*key, TRANSACTION)
        if free.height:
            stored = trace.lookup(touched_keys([free.select(key)]))
            over = stored.filter(pl.col(TRANSACTION).is_in(free[TRANSACTION].unique().implode()))
            trace.insert(over.with_columns(pl.lit(value=False).alias(LIVE)))
