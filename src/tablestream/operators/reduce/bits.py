"""What the bits of whole numbers have in common, and whether all or any booleans are true.

Remembered of a group: how many values are not null, and how many of them have each bit, or are true.

============  =================================
function      the bit, or the result, is set if
============  =================================
``bit_and``   all values have it
``bit_or``    one value has it
``bit_xor``   an odd number of values have it
``AllOrAny``  all booleans are true, or one is
============  =================================

Null without values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.totals import Function, Totals, moves, present
from tablestream.state.positions import Bools, Ints


@dataclass(frozen=True)
class Bits(Function):
    """The common bits of a column of whole numbers."""

    name: str
    """Which function."""
    column: str
    of: pl.DataType
    """The column, and its dtype."""

    @property
    def result(self) -> pl.DataType:
        return self.of

    @property
    def _kind(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = pl.Series(dtype=self.of).to_numpy().dtype
        return kind

    @property
    def _places(self) -> npt.NDArray[np.uint64]:
        return np.arange(8 * self._kind.itemsize, dtype=np.uint64)

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), "set": pl.List(pl.Int64())}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        counts = events.running(present(events, self.column), ints(base[0].fill_null(0)))
        moves = self._bits(events.new(self.column)) - self._bits(events.old(self.column))
        known = self._known(base[1])
        running = [events.running(*pair) for pair in zip(moves.T, known.T, strict=True)]
        having, last = np.column_stack(running), events.last
        state = [
            pl.Series(counts[last], dtype=pl.Int64),
            pl.Series(having[last].tolist(), dtype=pl.List(pl.Int64)),
        ]
        return Totals(self._results(counts[shown], having[shown]), state)

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return self._results(ints(base[0]), self._known(base[1]))

    def _results(self, counts: Ints, having: Ints) -> pl.Series:
        are_set = self._are_set(having, counts[:, np.newaxis])
        words = np.bitwise_or.reduce(are_set.astype(np.uint64) << self._places, axis=1, initial=np.uint64(0))
        return pl.Series(words.astype(self._kind)).set(pl.Series(counts <= 0), None)

    def _are_set(self, having: Ints, counts: Ints) -> Bools:
        if self.name == "bit_and":
            return np.asarray(having == counts)
        return np.asarray(having > 0 if self.name == "bit_or" else having % 2 == 1)

    def _bits(self, values: pl.Series) -> Ints:
        """Whether each value has each bit, a column per bit; those of null are 0."""
        words = ints(values.cast(pl.Int64).fill_null(0)).view(np.uint64)
        return np.asarray((words[:, np.newaxis] >> self._places & np.uint64(1)).astype(np.int64))

    def _known(self, base: pl.Series) -> Ints:
        """How many values of each group are remembered to have each bit."""
        width = len(self._places)
        known = [[0] * width if one is None else one for one in base.to_list()]
        return np.array(known, dtype=np.int64).reshape(-1, width)


@dataclass(frozen=True)
class AllOrAny(Function):
    """Whether all values of a column of booleans are true, or any."""

    column: str
    every: bool

    @property
    def result(self) -> pl.DataType:
        return pl.Boolean()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), "true": pl.Int64()}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        changes = present(events, self.column), moves(events, self.column, lambda values: values)
        counts = [
            events.running(change, ints(known.fill_null(0)))
            for change, known in zip(changes, base, strict=True)
        ]
        state = [pl.Series(one[events.last], dtype=pl.Int64) for one in counts]
        return Totals(self._results(*(one[shown] for one in counts)), state)

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return self._results(*map(ints, base))

    def _results(self, counts: Ints, true: Ints) -> pl.Series:
        found = true == counts if self.every else true > 0
        return pl.select(pl.when(pl.lit(pl.Series(counts > 0))).then(pl.lit(pl.Series(found)))).to_series()
