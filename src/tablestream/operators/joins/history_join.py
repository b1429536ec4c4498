"""Join of two versioned tables on their key, as of every time that both remember.

The result at a time is the join of the rows that are valid then. A change of one side is a version, valid until the
next version of that side. In between, the result changes where the version begins and wherever a version of the
other side begins. `result_history` says which of these changes are emitted.

======  =======================================
how     the result is a row where
======  =======================================
inner   both sides have one
left    the left side has one
right   the right side has one
outer   one of them has one
======  =======================================

``observed`` is the largest time of both sides in the shard. Versions that ended before ``observed - history`` are
forgotten: no row is valid there. A change is too late, and counted, if it is older than that and not the latest of its
row.

References
----------
KIP-914 ("Attempt 2"); ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import polars as pl

from tablestream.operators.events import gather
from tablestream.operators.joins.key_join import How, exists
from tablestream.operators.joins.result_history import END, ResultHistory
from tablestream.operators.operator import Context, Emission, Operator, keyed_changes
from tablestream.operators.versions import EXPIRED, OpenVersions, Versions, running_maximum
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.trace import TraceSpec


@dataclass(frozen=True)
class HistoryJoin(Operator):
    """Join two versioned tables on their key.

    Parameters
    ----------
    how
        Which rows the result has.
    keys
        The key columns and their dtypes.
    values
        The dtypes of both values.
    history_us
        How far back the result is maintained, in microseconds.

    Notes
    -----
    Inputs: ``_kh``, key, ``_ts``, ``_live``, ``v``, ``_latest``. The output is that of `ResultHistory`.
    """

    how: How
    keys: pl.Schema
    values: tuple[pl.DataType, pl.DataType]
    history_us: int

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("history_us",)

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        told = {LATEST: pl.Boolean()}
        return tuple(pl.Schema({**keyed_changes(self.keys, value), **told}) for value in self.values)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return self._result.outputs

    @property
    def _sides(self) -> tuple[Versions, Versions]:
        left, right = (
            Versions(KEY_HASH, self.keys, value, self.history_us, name=name, number=number)
            for number, (name, value) in enumerate(zip(("left", "right"), self.values, strict=True))
        )
        return left, right

    @property
    def _result(self) -> ResultHistory:
        return ResultHistory(self.keys, self.values, self.history_us)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (*(side.trace for side in self._sides), *self._result.traces)

    @property
    def marks(self) -> tuple[str, ...]:
        """The times that the operator keeps."""
        return self._result.marks

    @property
    def reasons(self) -> tuple[str, ...]:
        return (EXPIRED,)

    @property
    def rejects(self) -> bool:
        return True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Write the versions of both sides, and emit how the result changes."""
        left, right = inputs
        columns = [KEY_HASH, *self.keys]
        opened = [
            versions.opened(context.trace(versions.name), mine, other.select(columns))
            for versions, mine, other in zip(self._sides, (left, right), (right, left), strict=True)
        ]
        pieces = _Pieces(self, opened, context)
        pieces.work(inputs)
        yield Emission(0, self._result.shown(pieces.frame(inputs), context))
        for versions, one in zip(self._sides, opened, strict=True):
            one.remember(context.trace(versions.name), context.observed)


@dataclass
class _Pieces:
    """How the result changes, piece by piece: columns of the same length.

    Attributes
    ----------
    changes
        (side, position among its changes, step, place) of the change that causes each piece.
    begins, ends
        The times at which each piece begins and ends.
    rows
        For each side, the position of its row in the payload; -1: none.
    """

    join: HistoryJoin
    opened: Sequence[OpenVersions]
    context: Context
    changes: list[tuple[int, int, int, int]] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    rows: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def work(self, inputs: Sequence[pl.DataFrame]) -> None:
        """Process the changes of both sides, step by step."""
        position, side = pl.int_range(pl.len(), dtype=pl.Int64), pl.lit(0, pl.Int64)
        changes = pl.concat(
            frame.select(
                STEP, SEQ, TS, LIVE, LATEST, (side + number).alias("side"), position.alias("position")
            )
            for number, frame in enumerate(inputs)
        ).sort(SEQ)
        highest = running_maximum(changes[TS], self.context.observed)
        bounds = (highest - self.join.history_us).alias("bound")
        rows = changes.with_columns(bounds).iter_rows()
        expired: tuple[list[int], list[int]] = ([], [])
        for _, step in groupby(rows, key=lambda row: row[0]):
            written = []
            for number, seq, time, is_row, latest, which, at, bound in step:
                if not latest and time < bound:
                    expired[which].append(at)
                    continue
                self.opened[which].put(at, time, exists=is_row)
                written.append(((which, at, number, seq), time))
            for change, time in written:
                self._cut(change, time, bound)
        if len(highest):
            self.context.observed = int(highest[-1])
        for which, frame in enumerate(inputs):
            self.context.reject(EXPIRED, frame[expired[which]], which)

    def _cut(self, change: tuple[int, int, int, int], time: int, bound: int) -> None:
        """Cut the time in which a version is valid into pieces."""
        which, at, _, _ = change
        mine, other = self.opened[which].written(at), self.opened[1 - which].asked(at)
        mine.forget(bound)
        other.forget(bound)
        begins = [time, *other.between(time, mine.end(time))]
        for begin, end in zip(begins, [*begins[1:], mine.end(time)], strict=True):
            found = (mine.as_of(begin, None), other.as_of(begin, None))
            for rows, row in zip(self.rows, found if which == 0 else reversed(found), strict=True):
                rows.append(row)
            self.changes.append(change)
            self.begins.append(begin)
            self.ends.append(end)

    def frame(self, inputs: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The pieces as messages."""
        changes = np.array(self.changes, dtype=np.int64).reshape(-1, 4)
        left, right = (np.array(rows, dtype=np.int64) for rows in self.rows)
        live = exists(self.join.how, left >= 0, right >= 0)
        keys = pl.concat([frame.select(KEY_HASH, *self.join.keys) for frame in inputs])
        return keys[changes[:, 1] + changes[:, 0] * inputs[0].height].with_columns(
            pl.Series(SEQ, changes[:, 3], dtype=pl.Int64),
            pl.Series(STEP, changes[:, 2], dtype=pl.Int64),
            pl.Series(TS, self.begins, dtype=pl.Int64),
            pl.Series(END, self.ends, dtype=pl.Int64),
            pl.Series(LIVE, live, dtype=pl.Boolean),
            gather(self.opened[0].payload, np.where(live, left, -1)).alias("v0"),
            gather(self.opened[1].payload, np.where(live, right, -1)).alias("v1"),
        )
