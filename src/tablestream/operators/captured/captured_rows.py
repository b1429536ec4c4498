"""The rows of some keys of a captured table with their changes: unknown values filled, repetitions found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement, TableRows
from tablestream.operators.captured.capture import (
    CAPTURE,
    INCREMENTAL,
    READ,
    UPSERT,
    is_known,
    snapshot_place,
)
from tablestream.operators.events import bools, existing, ints, latest, previous, run_start, same_rows
from tablestream.operators.operator import Context
from tablestream.operators.reasons import UNKNOWN_VALUE
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS, last_by
from tablestream.state.positions import Bools, Ints, gather, starts
from tablestream.state.trace import Trace

#: The columns of a row that are not known; when the log said so; the snapshot that named the row last.
UNKNOWN, AT, NAMED = "_unknown", "_at", "_named"


def filled_reason(column: str) -> str:
    """Name the counter of the values of a column that were taken from the row before."""
    return f"filled {column}"


@dataclass(frozen=True)
class CapturedRows:
    """The rows of some keys, stored and arrived, sorted by key and place."""

    frame: pl.DataFrame
    """``_seq`` is 0 for a row of the state. With the fields of the capture as columns."""
    kid: Ints
    """The number of each row's key."""
    keys: tuple[str, ...]
    """The key columns."""

    @classmethod
    def of(cls, trace: Trace, changes: pl.DataFrame) -> CapturedRows:
        """Put the changes behind the rows of the state."""
        keys = trace.spec.key
        said = pl.col(CAPTURE).struct
        is_read = (said.field("op") == READ) & (said.field("snapshot").fill_null("") != INCREMENTAL)
        position = said.field("position")
        is_first = (said.field("op") == UPSERT) & position.is_not_null() & ~is_known(position)
        arrived = changes.select(
            SEQ,
            KEY_HASH,
            *keys,
            TS,
            LIVE,
            "v",
            said.field("unchanged").alias(UNKNOWN),
            pl.when(~is_read).then(position).alias(AT),
            pl.when(is_read).then(snapshot_place(position)).when(is_first).then(NAMED).alias(NAMED),
            said.field("key"),
            said.field("moved_from"),
            said.field("moved_to"),
            said.field("transaction"),
        )
        table = TableRows.of(trace, arrived)
        arranged = Arrangement.of(table.key, ints(table.rows[SEQ]))
        return cls(table.rows[arranged.row], arranged.key, keys)

    @property
    def live(self) -> Bools:
        """Whether there is a row afterwards."""
        return bools(self.frame[LIVE])

    @property
    def before(self) -> Ints:
        """The position of the row before each change; -1: there is none."""
        return existing(Arrangement(self.kid, np.arange(len(self.kid))).before, self.live)

    @property
    def moves(self) -> Bools:
        """Whether each is a row that was moved here, and not once more: the row before has another place in the log."""
        arrives = (self.frame["moved_from"].is_not_null() & (self.frame[SEQ] > 0)).to_numpy() & self.live
        return arrives & ~bools(gather(self.frame[AT], self.before).eq(self.frame[AT]).fill_null(value=False))

    @property
    def changed(self) -> Bools:
        """Whether each is a change, and not a repetition of what is known."""
        before = self.before
        seq = ints(self.frame[SEQ])
        same = np.zeros(len(seq), dtype=bool)
        both = np.flatnonzero((seq > 0) & self.live & (before >= 0))
        if len(both):
            same[both] = same_rows(self.frame.select("v", UNKNOWN).unnest("v"), both, before[both])
        return (seq > 0) & ~same & (self.live | (before >= 0))

    def filled(self, columns: Sequence[str], context: Context, *, follows_moves: bool) -> CapturedRows:
        """Take unknown values from the row before; drop changes for which there is none."""
        rows = self
        while True:
            unknown = rows._unknown(len(columns))
            if not unknown:
                return rows
            source = {number: rows._source(is_unknown) for number, is_unknown in unknown.items()}
            lost = rows._lost(unknown, source, follows_moves=follows_moves)
            if not lost.any():
                return rows._with(columns, unknown, source, context)
            rejected = rows.frame.filter(pl.Series(lost))
            context.reject(
                UNKNOWN_VALUE,
                rejected.select(SEQ, pl.lit(0, pl.Int64).alias(STEP), KEY_HASH, *self.keys, TS, LIVE, "v"),
            )
            rows = CapturedRows(rows.frame.filter(pl.Series(~lost)), rows.kid[~lost], rows.keys)

    def _unknown(self, width: int) -> dict[int, Bools]:
        """By column, whether its value is unknown; only columns of which a value is."""
        lists = self.frame[UNKNOWN]
        if lists.is_null().all():
            return {}
        found = {}
        for number in range(width):
            is_unknown = bools(lists.list.contains(number).fill_null(value=False))
            if is_unknown.any():
                found[number] = is_unknown
        return found

    @property
    def _begins(self) -> Bools:
        """Whether a row may begin at each place: the first of a key, or the one behind a delete."""
        return starts(self.kid) | previous(~self.live, starts(self.kid), True)

    def _source(self, is_unknown: Bools) -> Ints:
        """The position from which each row has the value of a column; -1: none."""
        return latest(~is_unknown & self.live, self._begins)

    def _lost(self, unknown: dict[int, Bools], source: dict[int, Ints], *, follows_moves: bool) -> Bools:
        """Whether a change has a value that nobody will know."""
        missing = np.zeros(len(self.kid), dtype=bool)
        for number, is_unknown in unknown.items():
            missing |= is_unknown & (source[number] < 0) & self.live
        seq = ints(self.frame[SEQ])
        if follows_moves:
            moved = bools(self.frame["moved_from"].is_not_null()) | (seq == 0)
            missing &= ~moved[run_start(self._begins)]
        return missing & (seq > 0)

    def _with(
        self, columns: Sequence[str], unknown: dict[int, Bools], source: dict[int, Ints], context: Context
    ) -> CapturedRows:
        """The rows with what is known."""
        value = self.frame["v"].struct.unnest()
        still = {}
        for number, is_unknown in unknown.items():
            name = value.columns[number]
            takes = is_unknown & (source[number] >= 0)
            column = gather(value[name], np.where(takes, source[number], np.arange(len(takes))))
            value = value.with_columns(column.alias(name))
            still[number] = is_unknown & (source[number] < 0) & self.live
            count = int((takes & (ints(self.frame[SEQ]) > 0)).sum())
            context.dropped[filled_reason(columns[number])] += count
        unknown_now = _numbers(still)
        frame = self.frame.with_columns(
            pl.when(LIVE).then(value.to_struct("v")).alias("v"),
            pl.when(unknown_now.list.len() > 0).then(unknown_now).alias(UNKNOWN),
        )
        return CapturedRows(frame, self.kid, self.keys)

    def newest(self) -> pl.DataFrame:
        """The last row of each key, if it says something new."""
        wanted = self.changed | bools((self.frame[SEQ] > 0) & self.frame[NAMED].is_not_null())
        return last_by(self.frame.filter(pl.Series(wanted)), self.kid[wanted])


def _numbers(masks: dict[int, Bools]) -> pl.Series:
    """For each row, the numbers of the columns whose mask is set."""
    columns = [pl.Series(str(n), np.where(mask, n, -1), dtype=pl.Int16) for n, mask in masks.items()]
    numbers = pl.concat_list(pl.all()).list.eval(pl.element().filter(pl.element() >= 0))
    return pl.DataFrame(columns).select(numbers).to_series()
