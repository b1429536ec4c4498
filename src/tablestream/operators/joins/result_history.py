"""The history of a join's result: which changes of it are emitted.

A *piece* says what the result is between two times: a row, or nothing. What was emitted so far is a step function of
time, too: the emitted versions. After all pieces of a step, each of these times emits at most once, in rising order:
where a piece begins, where a piece ends, and where an emitted version begins inside a piece.

=======================  =====================  ==========================
the result there now     emitted there so far   emits
=======================  =====================  ==========================
a row                    --                     the row, at that time
nothing                  a row                  a tombstone, at that time
nothing                  nothing                nothing
=======================  =====================  ==========================

So a boundary that is no longer one is emitted again, with what is valid there now. A piece that ended before
``observed - history`` is too late, and counted. A piece that began before then is emitted from then on, because older
emitted versions are forgotten. ``observed`` is the largest time at which a piece began.

References
----------
KIP-914 ("Attempt 2"); ``docs/semantics/joining-histories.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_rows
from tablestream.operators.reasons import EXPIRED
from tablestream.operators.versions import History, OpenVersions, Versions, columns_of
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: Where a piece ends; null: it is open.
END = "_end"
#: The largest time at which a piece began.
SHOWN = "shown"
#: A change of the result: the position and the place of the piece that causes it, its number there, its time, its row.
_CHANGE: Mapping[str, type[pl.DataType]] = {
    **dict.fromkeys(("position", PARENT, NUMBER, TS, "row"), pl.Int64),
    LATEST: pl.Boolean,
}


def piece_schema(keys: pl.Schema, values: tuple[pl.DataType, pl.DataType]) -> pl.Schema:
    """The columns of pieces."""
    return pl.Schema({**keyed_rows(keys, {"v0": values[0], "v1": values[1]}), END: pl.Int64()})


@dataclass(frozen=True)
class ResultHistory(Operator):
    """Emit the changes of a result from its pieces.

    Input 0: ``_kh``, key, ``_ts`` (where the piece begins), ``_end``, ``_live``, ``v0``, ``v1``. Output 0: ``_kh``,
    key, ``_ts``, ``_live``, ``_latest``, ``v0``, ``v1``.
    """

    keys: pl.Schema
    """The key columns and their dtypes."""
    values: tuple[pl.DataType, pl.DataType]
    """The dtypes of the values of both sides."""
    history_us: int
    """How far back versions are emitted, in microseconds."""

    parameters = ("history_us",)
    marks = (SHOWN,)
    reasons = (EXPIRED,)
    keeps_shard = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (piece_schema(self.keys, self.values),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        values = {"v0": self.values[0], "v1": self.values[1]}
        return (pl.Schema({**keyed_rows(self.keys, values), LATEST: pl.Boolean()}),)

    @property
    def _versions(self) -> Versions:
        both = pl.Struct({"v0": self.values[0], "v1": self.values[1]})
        return Versions(KEY_HASH, self.keys, both, self.history_us, name="result")

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._versions.trace,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (pieces,) = inputs
        yield Emission(0, self.shown(pieces, context))

    def shown(self, pieces: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the changes that pieces make; the pieces come in the order of their places."""
        trace = context.trace(self._versions.name)
        columns = [SEQ, STEP, KEY_HASH, *self.keys, TS, END, LIVE]
        puts = pieces.select(*columns, pl.struct("v0", "v1").alias("v"))
        versions = self._versions.opened(trace, puts)
        bounds, newest = self._versions.bounds(puts[TS], context.marks.get(SHOWN))
        changes = columns_of(_changes(puts, bounds.to_list(), versions, context), _CHANGE)
        if newest is not None:
            context.marks[SHOWN] = newest
        versions.remember(trace, newest)
        rows = ints(changes["row"])
        both = gather(versions.payload, rows).struct
        found = puts.select(KEY_HASH, *self.keys)[changes["position"]].hstack(changes.drop("position", "row"))
        return found.with_columns(
            pl.Series(LIVE, rows >= 0, dtype=pl.Boolean),
            *(both.field(name).alias(name) for name in ("v0", "v1")),
        )


class _Piece(NamedTuple):
    """A piece: its position, the message that caused it, its time span, and the place of its row; -1: none."""

    position: int
    cause: int
    begin: int
    end: int | None
    row: int


def _changes(
    pieces: pl.DataFrame, bounds: Sequence[int], versions: OpenVersions, context: Context
) -> Iterator[tuple[int, int, int, int, int, bool]]:
    """What pieces change in the result; those of one key and step are processed together."""
    columns = pieces.select(SEQ, STEP, TS, END, LIVE)
    together: dict[tuple[int, int], list[_Piece]] = {}
    for at, (seq, step, begin, end, exists) in enumerate(columns.iter_rows()):
        piece = _Piece(at, seq, begin, end, versions.row(at, exists=exists))
        together.setdefault((versions.key(at), step), []).append(piece)
    for mine in together.values():
        last, bound = mine[-1], bounds[mine[-1].position]
        emitted = versions.written(last.position)
        emitted.forget(bound)
        times = list(_emit(mine, emitted, bound, context))
        for number, (time, row) in enumerate(times):
            yield last.position, last.cause, number, time, row, time == emitted.times[-1]


def _emit(
    pieces: Sequence[_Piece], emitted: History, bound: int, context: Context
) -> Iterator[tuple[int, int]]:
    """Write what some pieces change into the emitted versions; the times and the rows that are valid there now."""
    wanted = History(list(emitted.times), list(emitted.rows), list(emitted.closed), list(emitted.deleted))
    touched: set[int] = set()
    for piece in pieces:
        if piece.end is not None and piece.end <= bound:
            context.dropped[EXPIRED] += 1
        else:
            touched.update(wanted.cover(max(piece.begin, bound), piece.end, piece.row))
    for time in sorted(touched):
        row = wanted.as_of(time, None)
        if row >= 0 or emitted.as_of(time, None) >= 0:
            emitted.put(time, row)
            yield time, row
