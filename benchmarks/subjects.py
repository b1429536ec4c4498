"""What `benchmarks.operators` measures: rounds without Spark, and the messages that come to one shard of them.

The messages are those of the contestants' workload, at the size of a shard: a key changes six times, ten rows point at
a key of the other table, a group has fifty rows. Every message has a time of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from tablestream.operators.buffer.reorder import Reorder
from tablestream.operators.buffer.suppress import Suppress
from tablestream.operators.joins.as_of_join import AsOfJoin
from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import ForeignKeySubscribe, Rules
from tablestream.operators.joins.many_to_many import ManyToMany, PairSubscribe
from tablestream.operators.operator import keyed_changes
from tablestream.operators.reduce.aggregate import Aggregate
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.fold import Fold, UserFunctions
from tablestream.operators.reduce.ranking import Order
from tablestream.operators.reduce.regroup import Regroup
from tablestream.operators.reduce.top import Top
from tablestream.operators.reduce.totals import Count, Sum
from tablestream.operators.versioned_table import VersionedTable
from tablestream.runtime.alignment import Alignment, Held, progress_of
from tablestream.runtime.ports import EVERY_SHARD, Port
from tablestream.runtime.rounds import Placed, Round
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LATEST,
    LIVE,
    PARTITION,
    POSITION,
    ROW_TS,
    TIME,
    TS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.operators.operator import Operator
    from tablestream.operators.reduce.totals import Function

    Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

SEED = 20_240_801
CHANGES_PER_KEY, ROWS_PER_TARGET, ROWS_PER_GROUP, VERSIONS_PER_KEY = 6, 10, 50, 10

#: Between two versions of a key in `versions_at`.
STEP_US = 1_000_000
_TOP = "top 3"

KEYS, FOREIGN_KEYS = pl.Schema({"_k0": pl.Int64()}), pl.Schema({"_f0": pl.Int64()})
ITEM = pl.Struct({"c0": pl.String(), "c1": pl.Float64()})
INTEGER, FLOAT = pl.Struct({"c0": pl.Int64()}), pl.Struct({"c0": pl.Float64()})

Log: TypeAlias = dict[int, pl.DataFrame]
"""Messages by the number of their port."""


@dataclass(frozen=True)
class Subject:
    """Rounds of operators, and what comes to them.

    Attributes
    ----------
    name
        For people.
    rounds
        Ports 1 and 2 are read from `log`, and 3 between the rounds.
    log
        Makes so many messages.
    """

    name: str
    rounds: tuple[Round, ...]
    log: Callable[[int], Log]


RESULT = Port(9, 9, 3, KEY_HASH, "result")


def one_round(operator: Operator, *inputs: int) -> tuple[Round, ...]:
    """Place an operator that reads the ports `inputs`."""
    return (Round(1, (Placed("operator", operator, inputs, ((RESULT,),)),), ()),)


def two_rounds(
    first: Operator, second: Operator, inputs: tuple[int, ...], *, answers: bool, spread: int = 1
) -> tuple[Round, ...]:
    """Place two halves; the second reads the messages of the first, and `inputs`; with `answers` both give results."""
    messages = Port(3, 3, 2, FOREIGN_HASH, "messages", spread)
    targets = ((messages,), (RESULT,)) if answers else ((messages,),)
    return (
        Round(1, (Placed("first", first, (1,), targets),), ()),
        Round(2, (Placed("second", second, (3, *inputs), ((RESULT,),)),), ()),
    )


def subjects() -> list[Subject]:
    """Return what is measured; the first is what the others are compared with."""
    integers: tuple[Function, ...] = (Count(), Sum("c0", pl.Int64(), pl.Int64()))
    floats: tuple[Function, ...] = (Sum("c0", pl.Float64(), pl.Float64()),)
    history_us = 10**9  # the log sets its times by it
    as_of = AsOfJoin(KEYS, FOREIGN_KEYS, ITEM, ITEM, history_us, keep_left=True)
    return [
        Subject("foreign-key join", foreign_key_join(), two_logs),
        Subject("many-to-many join", _many_to_many(), _two_keyed_logs),
        Subject("groups: count, sum of integers", _groups(INTEGER, integers), _numbers),
        Subject("groups: sum of floats", _groups(FLOAT, floats), _amounts),
        Subject("groups: Python functions", _folded(), _numbers),
        Subject("as-of join, two records a version", one_round(as_of, 1, 2), _records_and_versions),
        Subject("versioned table", one_round(VersionedTable(KEYS, ITEM, history_us), 1), _versions),
    ]


@dataclass(frozen=True)
class Buffered:
    """A round that holds rows back, and what comes to it.

    Attributes
    ----------
    name
        For people.
    work
        Holds the last `waiting` rows.
    log
        Makes so many messages, with times from another one on.
    """

    name: str
    work: Round
    log: Callable[[int, int], Log]


def buffers(waiting: int) -> list[Buffered]:
    """Return buffers of which each lets a row go for each that comes, once so many wait."""
    forever = 1 << 60
    grace = AsOfJoin(KEYS, FOREIGN_KEYS, ITEM, ITEM, waiting, keep_left=True, grace_us=waiting)
    operators: dict[str, tuple[Operator, tuple[int, ...]]] = {
        "suppress": (Suppress(KEYS, ITEM, waiting), (1,)),
        "suppress, max_records": (Suppress(KEYS, ITEM, forever, max_records=waiting), (1,)),
        "reorder": (Reorder(KEYS, ITEM, waiting), (1,)),
        "grace of an as-of join": (grace, (1, 2)),
    }
    found = [
        Buffered(name, one_round(operator, *inputs)[0], _changes)
        for name, (operator, inputs) in operators.items()
    ]
    held = Held(1, RESULT, keyed_changes(KEYS, ITEM), ordered=False)
    told = Port(2, 0, 1, EVERY_SHARD, "how far the sources are")
    aligned = Round(1, (), (), Alignment(told, (held,), 2, pl.Int64(), None))
    return [*found, Buffered("align", aligned, lambda first, rows: _with_lanes(first, rows, waiting))]


@dataclass(frozen=True)
class Grouped:
    """Rounds that keep groups, and what comes to them.

    Attributes
    ----------
    name
        For people.
    rounds
        Keep the groups.
    rows
        How many rows the groups have.
    log
        Makes the messages of micro-batch `number`, of so many changes. Number 0 fills the groups.
    """

    name: str
    rounds: tuple[Round, ...]
    rows: int
    log: Callable[[int, int], Log]


def large_group(rows: int) -> list[Grouped]:
    """Return a group of so many rows with each function, and queues of which the first row goes each time."""
    drawn, queued = _Group(rows, 1, queue=False), _Group(rows, 1, queue=True)
    reducers = _reducers()
    queues = {f"queue: {name}": reducers[name] for name in ("count", "min", "first", "count_distinct", _TOP)}
    return [
        *(Grouped(name, _grouped(one), rows, drawn) for name, one in reducers.items()),
        *(Grouped(name, _grouped(one), rows, queued) for name, one in queues.items()),
    ]


def small_groups(groups: int, rows: int) -> list[Grouped]:
    """Return so many groups of so many rows with each function."""
    log = _Group(groups * rows, groups, queue=False)
    return [
        Grouped(f"small groups: {name}", _grouped(one), groups * rows, log)
        for name, one in _reducers().items()
    ]


# Operators


def _reducers() -> dict[str, Aggregate | Top]:
    """What a group is reduced to: the result of one function, or its three largest rows."""
    kinds = Kind.MIN, Kind.MAX, Kind.FIRST, Kind.LAST, Kind.COUNT_DISTINCT
    functions: dict[str, Function | Collected] = {"count": Count(), "sum": Sum("c0", pl.Int64(), pl.Int64())}
    functions |= {kind.value: Collected(kind, "c0", pl.Int64()) for kind in kinds}
    reducers: dict[str, Aggregate | Top] = {
        name: Aggregate(KEYS, FOREIGN_KEYS, INTEGER, (one,)) for name, one in functions.items()
    }
    largest = Order(("c0",), (True,), newest_first=False, keeps_nulls=True)
    return reducers | {_TOP: Top(KEYS, FOREIGN_KEYS, INTEGER, INTEGER, largest, 3)}


def foreign_key_join(spread: int | None = None) -> tuple[Round, ...]:
    """Place a left foreign-key join."""
    subscribe = ForeignKeySubscribe(Rules.LEFT, KEYS, FOREIGN_KEYS, ITEM, ITEM)
    answer = ForeignKeyAnswer(True, KEYS, FOREIGN_KEYS, ITEM, ITEM, spread=spread)
    return two_rounds(subscribe, answer, (2,), answers=True, spread=spread or 1)


def _many_to_many() -> tuple[Round, ...]:
    """Place a join of pairs."""
    subscribe = PairSubscribe(Rules.PAIR, KEYS, FOREIGN_KEYS, ITEM, ITEM)
    pairs = ManyToMany((KEYS, KEYS), FOREIGN_KEYS, ("_k1",), (ITEM, ITEM))
    left, right = (Port(number, number, 2, FOREIGN_HASH, "messages") for number in (3, 4))
    sides = (Placed("left", subscribe, (1,), ((left,),)), Placed("right", subscribe, (2,), ((right,),)))
    return Round(1, sides, ()), Round(2, (Placed("pairs", pairs, (3, 4), ((RESULT,),)),), ())


def _groups(value: pl.Struct, functions: tuple[Function | Collected, ...]) -> tuple[Round, ...]:
    return _grouped(Aggregate(KEYS, FOREIGN_KEYS, value, functions), value)


def _grouped(reducer: Aggregate | Fold | Top, value: pl.Struct = INTEGER) -> tuple[Round, ...]:
    regroup = Regroup(KEYS, FOREIGN_KEYS, value, sends_keys=reducer.needs_row_keys)
    return two_rounds(regroup, reducer, (), answers=False)


def _folded() -> tuple[Round, ...]:
    def adder(_: Any, row: Any, total: Any) -> Any:
        return total.n + 1, total.amount + row.amount

    def subtractor(_: Any, row: Any, total: Any) -> Any:
        return total.n - 1, total.amount - row.amount

    functions = UserFunctions(lambda: (0, 0), adder, subtractor, ("key",), ("amount",), ("n", "amount"))
    result = pl.Struct({"c0": pl.Int64(), "c1": pl.Int64()})
    fold = Fold(KEYS, FOREIGN_KEYS, INTEGER, result, functions)
    return _grouped(fold)


# Messages


def two_logs(rows: int, hot_share: float = 0) -> Log:
    """Ten changes of rows that point to one of a row that is pointed at; a share of the ten point at one row."""
    right = rows // (ROWS_PER_TARGET + 1)
    left = rows - right
    targets = max(1, right // CHANGES_PER_KEY)
    keys = _keyed("_k0", KEY_HASH, _drawn(0, max(1, left // CHANGES_PER_KEY), left))
    is_hot = np.random.default_rng((SEED, 8)).random(left) < hot_share
    foreign = _keyed("_f0", FOREIGN_HASH, np.where(is_hot, 0, _drawn(1, targets, left)))
    pointed_at = _keyed("_f0", FOREIGN_HASH, _drawn(2, targets, right))
    right_times = np.arange(right) * 2 * (ROWS_PER_TARGET) + 1
    return {
        1: _messages(1, np.arange(left) * 2, keys | foreign, _items(left)),
        2: _messages(2, right_times, pointed_at, _items(right)),
    }


def _two_keyed_logs(rows: int) -> Log:
    """The same changes, where both tables have keys, and the value that rows are matched by is the key of one."""
    log = two_logs(rows)
    keyed = log[2].with_columns(pl.col("_f0").alias("_k0"), pl.col(FOREIGN_HASH).alias(KEY_HASH))
    return {**log, 2: keyed}


def _moving(rows: int, values: pl.Series) -> Log:
    """Changes of rows, each to a group drawn anew."""
    keys = max(1, rows // CHANGES_PER_KEY)
    columns = _keyed("_k0", KEY_HASH, _drawn(0, keys, rows))
    columns |= _keyed("_f0", FOREIGN_HASH, _drawn(1, max(1, keys // ROWS_PER_GROUP), rows))
    return {1: _messages(1, np.arange(rows), columns, values.to_frame("c0").to_struct("v"))}


def _numbers(rows: int) -> Log:
    return _moving(rows, pl.Series(_drawn(3, 10_000, rows)))


def _amounts(rows: int) -> Log:
    return _moving(rows, pl.Series(np.random.default_rng((SEED, 4)).random(rows) * 100))


def _records_and_versions(rows: int) -> Log:
    """Two records to a version; a tenth of all versions lies in the history."""
    versions = rows // 3
    records, step = rows - versions, 10 * 10**9 // max(1, versions)
    targets = max(1, versions // VERSIONS_PER_KEY)
    keys = _keyed("_k0", KEY_HASH, np.arange(records))
    foreign = _keyed("_f0", FOREIGN_HASH, _drawn(1, targets, records))
    pointed_at = _keyed("_f0", FOREIGN_HASH, _drawn(2, targets, versions))
    pointed_at[LATEST] = pl.repeat(value=True, n=versions, eager=True)
    return {
        1: _messages(1, np.arange(records) * (step // 2), keys | foreign, _items(records)),
        2: _messages(2, np.arange(versions) * step + 1, pointed_at, _items(versions)),
    }


def _versions(rows: int) -> Log:
    keys = _drawn(2, max(1, rows // VERSIONS_PER_KEY), rows)
    times = np.arange(rows) * (10 * 10**9 // max(1, rows))
    return {1: _messages(1, times, _keyed("_k0", KEY_HASH, keys), _items(rows))}


def versions_at(number: int, keys: int) -> Log:
    """The `number`-th versions of some keys, all at one time."""
    times = np.full(keys, number * STEP_US)
    values = _items(keys, number)
    return {1: _messages(1, times, _keyed("_k0", KEY_HASH, np.arange(keys)), values)}


@dataclass(frozen=True)
class _Group:
    """Messages to so many rows in so many groups: rows drawn at random change, or half come and the oldest half go."""

    rows: int
    groups: int
    queue: bool

    def __call__(self, number: int, changes: int) -> Log:
        """Make the messages of a micro-batch; number 0 fills the groups."""
        keys = self._keys(number, changes)
        drawn = np.random.default_rng((SEED, 7, number)).integers(0, 10_000, len(keys))
        values = pl.Series("c0", keys if self.queue else drawn)
        columns = _keyed("_k0", KEY_HASH, keys) | _keyed("_f0", FOREIGN_HASH, keys % self.groups)
        times = np.arange(len(keys)) + (number and self.rows + number * changes)
        rows = _messages(1, times, columns, values.to_frame().to_struct("v"))
        comes = ~((pl.int_range(pl.len()) % 2 == 1) & pl.lit(value=self.queue and number > 0))
        return {1: rows.with_columns(comes.alias(LIVE))}

    def _keys(self, number: int, changes: int) -> Numbers:
        """The rows that change; in a queue one comes and one goes in turn."""
        if not number:
            return np.arange(self.rows)
        if not self.queue:
            return np.random.default_rng((SEED, 6, number)).integers(0, self.rows, changes)
        gone = ((number - 1) * changes + np.arange(changes)) // 2
        return np.where(np.arange(changes) % 2, gone, self.rows + gone)


def _changes(first: int, rows: int) -> Log:
    """Changes of keys that never come again."""
    times = np.arange(first, first + rows)
    columns = _keyed("_k0", KEY_HASH, times) | _keyed("_f0", FOREIGN_HASH, times)
    return {1: _messages(1, times, columns, _items(rows, first // rows))}


def _with_lanes(first: int, rows: int, waiting: int) -> Log:
    """The same from a source, while another one is so far behind."""
    log, last = _changes(first, rows), first + rows - 1
    furthest = {TIME: [last, last - waiting + 1], PARTITION: ["ahead", "behind"], POSITION: [last, last]}
    return {**log, 2: progress_of(pl.DataFrame(furthest), pl.col(PARTITION), 0)}


def _messages(port: int, times: Numbers, columns: dict[str, pl.Series], values: pl.Series) -> pl.DataFrame:
    """Put messages of a source to a port: with their place in the order, their key and their value."""
    return pl.DataFrame({TIME: times, TS: times, POSITION: np.arange(len(times))} | columns).with_columns(
        values.alias("v"),
        pl.lit(f"source {port}").alias(PARTITION),
        pl.lit(port, pl.Int64).alias("_h0"),
        pl.lit(value=True).alias(LIVE),
        pl.lit(None, pl.Int64).alias(ROW_TS),
    )


def _keyed(name: str, hashed: str, keys: Numbers) -> dict[str, pl.Series]:
    column = pl.Series(name, keys)
    return {name: column, hashed: column.hash(SEED).reinterpret(signed=True)}


@cache
def _items(rows: int, part: int = 0) -> pl.Series:
    """Values as wide as the workload's; another `part` has others."""
    amounts = np.random.default_rng((SEED, 5, part)).random(rows) * 100
    names = pl.select(pl.format("item-{}", pl.int_range(part * rows, (part + 1) * rows))).to_series()
    return pl.DataFrame({"c0": names, "c1": amounts}).to_struct("v")


def _drawn(column: int, below: int, rows: int) -> Numbers:
    return np.random.default_rng((SEED, column)).integers(0, below, rows)
