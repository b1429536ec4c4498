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
KIP-914 ("Attempt 2"); ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.events import gather
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_rows
from tablestream.operators.versions import EXPIRED, History, OpenVersions, Versions, running_maximum
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.trace import TraceSpec

#: Where a piece ends; null: it is open.
END = "_end"
#: The largest time at which a piece began.
SHOWN = "shown"


def piece_schema(keys: pl.Schema, values: tuple[pl.DataType, pl.DataType]) -> pl.Schema:
    """The columns of pieces."""
    return pl.Schema({**keyed_rows(keys, {"v0": values[0], "v1": values[1]}), END: pl.Int64()})


@dataclass(frozen=True)
class ResultHistory(Operator):
    """Emit the changes of a result from its pieces.

    Parameters
    ----------
    keys
        The key columns and their dtypes.
    values
        The dtypes of the values of both sides.
    history_us
        How far back versions are emitted, in microseconds.

    Notes
    -----
    Input 0: ``_kh``, key, ``_ts`` (where the piece begins), ``_end``, ``_live``, ``v0``, ``v1``. Output 0: ``_kh``,
    key, ``_ts``, ``_live``, ``_latest``, ``v0``, ``v1``.
    """

    keys: pl.Schema
    values: tuple[pl.DataType, pl.DataType]
    history_us: int

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("history_us",)

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

    @property
    def marks(self) -> tuple[str, ...]:
        """The times that the operator keeps."""
        return (SHOWN,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EXPIRED,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit what the pieces change, and remember what was emitted."""
        (pieces,) = inputs
        yield Emission(0, self.shown(pieces, context))

    def shown(self, pieces: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the changes that pieces make; the pieces come in the order of their places."""
        trace = context.trace(self._versions.name)
        columns = [SEQ, STEP, KEY_HASH, *self.keys, TS, END, LIVE]
        puts = pieces.select(*columns, pl.struct("v0", "v1").alias("v"))
        versions = self._versions.opened(trace, puts)
        showing = _Showing(versions, self.history_us, context)
        showing.work(puts)
        versions.remember(trace, context.marks.get(SHOWN))
        return showing.emitted(puts.select(KEY_HASH, *self.keys))


@dataclass
class _Showing:
    """The pieces of a micro-batch, and what they emit: columns of the same length."""

    versions: OpenVersions
    history_us: int
    context: Context
    positions: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    latest: list[bool] = field(default_factory=list)

    def work(self, pieces: pl.DataFrame) -> None:
        """Process the pieces; those of one key and step are processed together."""
        highest = running_maximum(pieces[TS], self.context.marks.get(SHOWN))
        bounds = (highest - self.history_us).to_list()
        columns = pieces.select(SEQ, STEP, TS, END, LIVE)
        together: dict[tuple[int, int], list[tuple[int, int, int, int | None, int]]] = {}
        for at, (seq, step, begin, end, exists) in enumerate(columns.iter_rows()):
            piece = (at, seq, begin, end, self.versions.row(at, exists=exists))
            together.setdefault((self.versions.key(at), step), []).append(piece)
        for mine in together.values():
            self._show(mine, bounds[mine[-1][0]])
        if len(highest):
            self.context.marks[SHOWN] = int(highest[-1])

    def _show(self, pieces: Sequence[tuple[int, int, int, int | None, int]], bound: int) -> None:
        """Emit what some pieces change in the result."""
        position, parent, *_ = pieces[-1]
        shown = self.versions.written(position)
        shown.forget(bound)
        wanted = History(list(shown.times), list(shown.rows), list(shown.closed), list(shown.deleted))
        touched: set[int] = set()
        for _, _, begin, end, row in pieces:
            if end is not None and end <= bound:
                self.context.dropped[EXPIRED] += 1
            else:
                touched.update(wanted.cover(max(begin, bound), end, row))
        first = len(self.times)
        for number, time in enumerate(sorted(touched)):
            row = wanted.as_of(time, None)
            if row < 0 and shown.as_of(time, None) < 0:
                continue
            shown.put(time, row)
            self.positions.append(position)
            self.parents.append(parent)
            self.numbers.append(number)
            self.times.append(time)
            self.rows.append(row)
        self.latest += [time == shown.times[-1] for time in self.times[first:]]

    def emitted(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The emitted rows, in the columns of the operator's output."""
        rows = np.array(self.rows, dtype=np.int64)
        both = gather(self.versions.payload, rows)
        return keys[self.positions].with_columns(
            pl.Series(PARENT, self.parents, dtype=pl.Int64),
            pl.Series(NUMBER, self.numbers, dtype=pl.Int64),
            pl.Series(TS, self.times, dtype=pl.Int64),
            pl.Series(LIVE, rows >= 0, dtype=pl.Boolean),
            pl.Series(LATEST, self.latest, dtype=pl.Boolean),
            both.struct.field("v0").alias("v0"),
            both.struct.field("v1").alias("v1"),
        )
