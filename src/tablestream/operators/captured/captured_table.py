"""The rows of a table that is captured from a database: each change becomes the whole row that it leaves.

Of each key, in the order of arrival:

====================================================  =============================================================
change                                                effect
====================================================  =============================================================
its position is below one that its topic partition    dropped and counted: the connector repeats what it sent
has shown before, or the same and has the number of
the event in its transaction
a tombstone behind a change that is repeated          the same
a preimage of a feed                                  `check_preimages` holds it to the table
a second row of its key in a feed                     `check_unique` ends the query
not the last of its key in a commit, of a feed        dropped
a delete, and there is no row                         nothing
the row as it is                                      nothing
columns that did not change are not known             they are those of the row before; counted by column
the same, and there is no row                         dropped and counted, unless the row was moved from another key
a row moved here from another key                     `MovedRows` fills its unknown columns
====================================================  =============================================================

Of all keys:

====================================================  =============================================================
a table was truncated                                 every row is deleted, unless what is known of it is from
                                                      after the truncate, which is then repeated
a snapshot ends                                       rows that it did not name are deleted, if what was known of
                                                      them is older than the snapshot
====================================================  =============================================================

A row that may have unknown columns for good, because it was moved, goes to one shard from then on: only there it is
known which row it was. That shard passes it on in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.errors import CaptureError
from tablestream.operators.captured.capture import (
    CAPTURE,
    CONTROL,
    DELETE,
    IN_ONE_SHARD,
    INCREMENTAL,
    ON_ALL,
    ON_ROWS,
    READ,
    SAID,
    TRUNCATE,
    is_known,
    is_numbered,
    snapshot_place,
)
from tablestream.operators.captured.captured_rows import AT, NAMED, UNKNOWN, CapturedRows, filled_reason
from tablestream.operators.captured.feed_checks import check_preimages, check_unique
from tablestream.operators.events import bools, run_start, stored_rows
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable, keyed_rows
from tablestream.operators.reasons import ADDED_COLUMN, REPEATED, UNKNOWN_VALUE
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, TS, number_keys
from tablestream.state.positions import Bools, gather, starts
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: What `MovedRows` reads of a message: whether a row was ever moved to its key; of a move, both keys and the
#: transaction, and whether it is the row that left.
MOVED, MOVE, LEFT = "_moved", "_move", "_left"
_ROWS, _POSITIONS, _MOVED_KEYS = "rows", "positions", "moved"
_PARTITION_HASH = "_ph"
#: What tells a move from others between the same keys: the transaction or, if it has no name, the place in the log.
_OCCASION = pl.coalesce("transaction", AT)
#: The shard that knows the moved rows is that of this hash.
_ONE_SHARD = 0


def changes_of_captured(keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The messages from `CapturedTable` to `MovedRows`."""
    moves = {MOVED: pl.Boolean(), MOVE: pl.String(), LEFT: pl.Boolean()}
    return keyed_rows(keys, {FOREIGN_HASH: pl.Int64(), UNKNOWN: pl.List(pl.Int16()), **moves, "v": value})


@dataclass(frozen=True)
class CapturedTable(OfTable):
    """Turn a connector's changes into whole rows.

    Input 0: ``_kh``, key, ``_ts``, ``_live``, ``_capture``, ``v``. Input 1, in every shard: ``_kh``, key, ``_ts``,
    ``_live``, ``_control``, ``v``. Output 0: the changes of rows and, if `follows_moves`, what `MovedRows` needs.
    """

    columns: tuple[str, ...]
    """The names of the value's columns."""
    follows_moves: bool
    """Whether `MovedRows` comes behind."""
    truncates: str = "auto"
    """How to treat a truncated table: ``apply`` it, ``fail`` or ``drop``. ``auto`` applies it if the table has one
    topic partition, and fails otherwise."""
    commits: bool = False
    """Whether only the last change of a key at each position counts: positions are those of commits."""
    snapshots: str = "complete"
    """``complete``: the end of a snapshot deletes rows that it did not name. ``partial``: they stay."""

    parameters = ("follows_moves", "truncates", "commits")
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (
            keyed_rows(self.keys, {LIVE: ON_ROWS, CAPTURE: SAID, "v": self.value}),
            keyed_rows(self.keys, {LIVE: ON_ALL, FOREIGN_HASH: IN_ONE_SHARD, CONTROL: SAID, "v": self.value}),
        )

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        if self.follows_moves:
            return (changes_of_captured(self.keys, self.value),)
        return (keyed_rows(self.keys, {"v": self.value}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        key = {KEY_HASH: pl.Int64(), **self.keys}
        known = {UNKNOWN: pl.List(pl.Int16()), AT: pl.String(), NAMED: pl.String()}
        rows = pl.Schema({**key, TS: pl.Int64(), **known, LIVE: pl.Boolean(), "v": self.value})
        place = {"position": pl.String(), "place": pl.String(), "last": pl.String()}
        position = {_PARTITION_HASH: pl.Int64(), "partition": pl.Int64(), **place}
        traces = [
            TraceSpec(_ROWS, rows, tuple(self.keys), hash=KEY_HASH),
            TraceSpec(
                _POSITIONS,
                pl.Schema({**position, LIVE: pl.Boolean()}),
                ("partition",),
                hash=_PARTITION_HASH,
            ),
        ]
        if self.follows_moves:
            moved = pl.Schema({**key, LIVE: pl.Boolean()})
            traces.append(TraceSpec(_MOVED_KEYS, moved, tuple(self.keys), hash=KEY_HASH))
        return tuple(traces)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (REPEATED, UNKNOWN_VALUE, ADDED_COLUMN, *map(filled_reason, self.columns))

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Process the changes up to each truncate, then the ends of snapshots."""
        changes, controls = inputs
        op = pl.col(CONTROL).struct.field("op")
        left = self._fresh(changes, controls, context)
        if self.commits:
            left = check_preimages(left, self.columns, context.trace(_ROWS))
            check_unique(left, context.trace(_ROWS))
            left = self._last_of_commits(left)
        for control in controls.filter(op == TRUNCATE).iter_slices(1):
            at = control[SEQ][0]
            yield from self._apply(left.filter(pl.col(SEQ) < at), context)
            left = left.filter(pl.col(SEQ) >= at)
            yield from self._truncate(control, context)
        yield from self._apply(left, context)
        for control in controls.filter(op != TRUNCATE).iter_slices(1):
            yield from self._end_snapshot(control, context)

    def _fresh(self, changes: pl.DataFrame, controls: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Drop what the connector repeats; remember how far each topic partition has come, with its truncates.

        A change without a known position is one of the first behind a snapshot: it is as new as that.
        """
        told = pl.concat(
            [
                _said(changes),
                _said(controls.rename({CONTROL: CAPTURE})).with_columns(control=pl.lit(value=True)),
            ]
        )
        context.dropped[ADDED_COLUMN] += int(
            changes.select(pl.col(CAPTURE).struct.field("added").fill_null(value=False).sum()).item()
        )
        if told.is_empty():
            return changes.with_columns(pl.lit(None, pl.String).alias(NAMED))
        trace = context.trace(_POSITIONS)
        no = pl.lit(value=False)
        zero = pl.lit(0, pl.Int64).alias(SEQ)
        stored = trace.scan()
        highest = stored.select(zero, "partition", "position", "place", control=no, tombstone=no)
        last = stored.select(
            zero, "partition", pl.col("last").alias("position"), "place", control=no, tombstone=no
        )
        both = pl.concat([highest, last, told.sort(SEQ)])
        own = pl.when(~pl.col("tombstone")).then("position")
        both = both.with_columns(own.forward_fill().over("partition").fill_null("").alias("position"))
        rank = pl.col("position").rank("dense").cast(pl.Int64)
        before = pl.col("rank").cum_max().shift(1).over("partition")
        both = both.with_columns(rank.alias("rank"), pl.col("place").alias("taken"))
        both = both.with_columns(before.alias("before"), pl.col("place").forward_fill().over("partition"))
        _check_snapshots(both)
        same = is_numbered(pl.col("position")) & ~pl.col("tombstone")
        below = pl.col("rank") < pl.col("before") + same.cast(pl.Int64)
        known = pl.col("position") != ""
        both = both.with_columns((known & below).fill_null(value=False).alias("repeated"))
        self._remember_positions(both, stored, trace)
        mine = both.filter(~pl.col("control")).select(
            SEQ, "repeated", pl.when(~known).then("place").alias(NAMED)
        )
        changes = changes.join(mine, on=SEQ, how="left", maintain_order="left")
        context.reject(REPEATED, changes.filter("repeated").drop("repeated", NAMED))
        return changes.filter(~pl.col("repeated")).drop("repeated")

    def _remember_positions(self, both: pl.DataFrame, stored: pl.DataFrame, trace: Trace) -> None:
        """Remember of each topic partition the highest position and the last snapshot, if they are new."""
        state = both.group_by("partition", maintain_order=True).agg(
            pl.col("position").max(), pl.col("place").last(), pl.col("position").last().alias("last")
        )
        new = state.join(stored, on=["partition", "position", "place", "last"], how="anti", nulls_equal=True)
        columns = pl.col("partition").alias(_PARTITION_HASH), pl.lit(value=True).alias(LIVE)
        trace.insert(new.with_columns(columns))

    def _last_of_commits(self, changes: pl.DataFrame) -> pl.DataFrame:
        """The last change of each key at each position."""
        position = pl.col(CAPTURE).struct.field("position").alias("_commit")
        one = [KEY_HASH, *self.keys, "_commit"]
        rows = changes.with_columns(position).sort(SEQ)
        return rows.unique(one, keep="last", maintain_order=True).drop("_commit")

    def _apply(self, changes: pl.DataFrame, context: Context) -> Iterator[Emission]:
        """Fill the changes of some rows, emit what changes, and remember the rows."""
        if changes.is_empty():
            return
        trace = context.trace(_ROWS)
        rows = CapturedRows.of(trace, changes).filled(self.columns, context, follows_moves=self.follows_moves)
        yield Emission(0, self._emitted(rows, self._moved(rows, context)))
        trace.insert(rows.newest())

    def _moved(self, rows: CapturedRows, context: Context) -> Bools:
        """Whether each row goes to the one shard that knows moved rows; from the row that was moved here on."""
        here = bools(rows.frame["moved_from"].is_not_null())
        if not self.follows_moves:
            return np.zeros(len(here), dtype=bool)
        keys = rows.frame.select(KEY_HASH, *self.keys)
        before = self._were_moved(keys, context)
        if not (before.any() or here.any()):
            return here
        since = np.maximum.accumulate(np.where(here, np.arange(len(here)), -1))
        new = keys.filter(pl.Series(here)).unique(maintain_order=True)
        context.trace(_MOVED_KEYS).insert(new.with_columns(pl.lit(value=True).alias(LIVE)))
        return before | (since >= run_start(starts(rows.kid)))

    def _were_moved(self, keys: pl.DataFrame, context: Context) -> Bools:
        """Whether a row was moved to each key before."""
        stored = stored_rows(context.trace(_MOVED_KEYS), keys)
        if stored.is_empty():
            return np.zeros(keys.height, dtype=bool)
        known, kid = number_keys(KEY_HASH, self.keys, [stored, keys])
        return np.isin(kid, known)

    def _emitted(self, rows: CapturedRows, moved: Bools) -> pl.DataFrame:
        """The changes of rows and, before a row's delete, the row that leaves for another key."""
        moves = rows.moves
        chosen = rows.changed | moves
        columns = [pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS, LIVE, "v"]
        if not self.follows_moves:
            return rows.frame.filter(pl.Series(chosen)).select(columns)
        one_shard = pl.Series(moved, dtype=pl.Boolean)
        move = pl.concat_str("moved_from", "key", _OCCASION, separator="\n", ignore_nulls=True)
        changes = rows.frame.select(
            *columns,
            _route(one_shard),
            UNKNOWN,
            one_shard.alias(MOVED),
            pl.when(pl.Series(moves)).then(move).alias(MOVE),
            pl.lit(value=False).alias(LEFT),
            pl.lit(1, pl.Int64).alias(NUMBER),
        ).filter(pl.Series(chosen))
        return pl.concat([changes, self._leaving(rows).select(changes.columns)])

    def _leaving(self, rows: CapturedRows) -> pl.DataFrame:
        """The rows that leave for another key, as they were; all columns are unknown where there was no row.

        A tombstone repeats the delete before it, and says neither transaction nor position.
        """
        leaves = rows.frame["moved_to"].is_not_null() & ~rows.frame[LIVE]
        named = rows.frame.select(_OCCASION.is_not_null()).to_series()
        leaves &= (rows.frame[SEQ] > 0) & (named | pl.Series(rows.before >= 0))
        at = np.flatnonzero(bools(leaves))
        before = rows.before[at]
        was = gather(rows.frame["v"], before)
        every = pl.Series([list(range(len(self.columns)))] * len(at), dtype=pl.List(pl.Int16()))
        known = pl.Series(before >= 0, dtype=pl.Boolean)
        unknown = pl.select(
            pl.when(known).then(gather(rows.frame[UNKNOWN], before)).otherwise(every)
        ).to_series()
        move = pl.concat_str("key", "moved_to", _OCCASION, separator="\n", ignore_nulls=True)
        return rows.frame[at].select(
            pl.col(SEQ).alias(PARENT),
            KEY_HASH,
            *self.keys,
            TS,
            pl.lit(value=True).alias(LIVE),
            pl.lit(_ONE_SHARD, pl.Int64).alias(FOREIGN_HASH),
            unknown.alias(UNKNOWN),
            pl.lit(value=True).alias(MOVED),
            move.alias(MOVE),
            pl.lit(value=True).alias(LEFT),
            was.alias("v"),
            pl.lit(0, pl.Int64).alias(NUMBER),
        )

    def _truncate(self, control: pl.DataFrame, context: Context) -> Iterator[Emission]:
        """Delete all rows."""
        if self.truncates == "drop":
            return
        partitions = context.trace(_POSITIONS).scan().height
        if self.truncates == "fail" or (self.truncates == "auto" and partitions > 1):
            raise CaptureError(
                "The table was truncated, and truncates='fail' is given."
                if self.truncates == "fail"
                else "The table was truncated, and the order of the truncate and the changes of rows is not known:"
                " they are in different partitions of the topic.",
                hint="Give truncates='apply' to delete all rows that have arrived, or truncates='drop' to ignore it.",
            )
        position = control.select(pl.col(CONTROL).struct.field("position")).item()
        rows = context.trace(_ROWS).scan()
        yield from self._delete(rows.filter(~_is_later(position)), control, context)

    def _end_snapshot(self, control: pl.DataFrame, context: Context) -> Iterator[Emission]:
        """Delete the rows that a complete snapshot did not name."""
        place = control.select(snapshot_place(pl.col(CONTROL).struct.field("position"))).item()
        if place is None or self.snapshots == "partial":
            return
        named, is_named = pl.col(NAMED), pl.col(NAMED).is_not_null()
        older = pl.when(is_named).then(named < place).otherwise(is_known(pl.col(AT)) & (pl.col(AT) < place))
        yield from self._delete(context.trace(_ROWS).scan().filter(older), control, context)

    def _delete(self, rows: pl.DataFrame, control: pl.DataFrame, context: Context) -> Iterator[Emission]:
        """Delete rows because of a control."""
        if rows.is_empty():
            return
        time = int(control[TS][0])
        gone = rows.with_columns(
            pl.lit(value=False).alias(LIVE),
            pl.lit(None, self.value).alias("v"),
            pl.lit(time, pl.Int64).alias(TS),
            pl.lit(None, pl.List(pl.Int16())).alias(UNKNOWN),
            pl.lit(None, pl.String()).alias(NAMED),
        )
        context.trace(_ROWS).insert(gone)
        numbers = pl.int_range(pl.len(), dtype=pl.Int64)
        if self.follows_moves:
            one_shard = pl.Series(self._were_moved(gone.select(KEY_HASH, *self.keys), context))
            gone = gone.with_columns(
                _route(one_shard),
                one_shard.alias(MOVED),
                pl.lit(None, pl.String()).alias(MOVE),
                pl.lit(value=False).alias(LEFT),
            )
        gone = gone.with_columns(
            pl.lit(int(control[SEQ][0]), pl.Int64).alias(PARENT), context.among_shards(numbers).alias(NUMBER)
        )
        yield Emission(0, gone.select(PARENT, NUMBER, *self.outputs[0]))


def _route(one_shard: pl.Series) -> pl.Expr:
    """Where rows go: those that were moved to the shard that knows them."""
    return pl.when(one_shard).then(_ONE_SHARD).otherwise(KEY_HASH).alias(FOREIGN_HASH)


def _said(messages: pl.DataFrame) -> pl.DataFrame:
    """Of each message its topic partition, its position in the log, empty if not known, and its snapshot's place."""
    said = pl.col(CAPTURE).struct
    position, is_read = said.field("position"), said.field("op") == READ
    of_snapshot = is_read & (said.field("snapshot").fill_null("") != INCREMENTAL)
    return messages.select(
        SEQ,
        said.field("partition"),
        pl.when(is_known(position) & ~is_read).then(position).otherwise(pl.lit("")).alias("position"),
        pl.when(of_snapshot).then(snapshot_place(position)).alias("place"),
        control=pl.lit(value=False),
        tombstone=(said.field("op") == DELETE) & position.is_null(),
    )


def _check_snapshots(both: pl.DataFrame) -> None:
    """Refuse a snapshot that was taken before changes which its topic partition has shown: the log was set back."""
    known = (
        both.filter(pl.col("position") != "").select("rank", pl.col("position").alias("shown")).unique("rank")
    )
    taken = both.filter((pl.col(SEQ) > 0) & pl.col("taken").is_not_null())
    both = taken.join(known, left_on="before", right_on="rank", how="inner")
    first = (pl.col(name).str.split(":").list.first() for name in ("taken", "shown"))
    older = both.filter(next(first) < next(first))
    if older.height:
        raise CaptureError(
            f"A snapshot was taken at {older['taken'][0]}, and the topic already had changes up to"
            f" {older['shown'][0]}: the database's log was set back, as when a backup is restored.",
            hint="Start the query with a new checkpoint, and topics that begin with the snapshot.",
        )


def _is_later(position: str | None) -> pl.Expr:
    """Whether what is known of a row is from after a truncate at a position: then the truncate is a repetition.

    A truncate locks the table. So the places in the log suffice where the position before them is not known.
    """
    at = pl.col(AT)
    if position is None:
        return pl.lit(value=False)
    own = pl.lit(position).str.splitn(":", 2).struct.field("field_1")
    known = pl.when(is_known(pl.lit(position))).then(at > position)
    return pl.when(is_known(at)).then(known).otherwise(snapshot_place(at) > own).fill_null(value=False)
