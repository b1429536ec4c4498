"""Declared aggregates in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A declared aggregate.

    Attributes
    ----------
    function
        Its name in `tablestream.operators.reduce.declared`.
    column
        The position of its input among the aggregated columns; None: rows.
    parameter
        A share, a precision or a delimiter.
    by, descending
        The position of the column that orders the rows, and whether the greatest comes first.
    own, state
        The user's aggregate, and the type of its state in JSON.
    """

    function: str
    column: int | None
    parameter: float | str | None = None
    by: int | None = None
    descending: bool = False
    own: Any = None
    state: str = ""

    def text(self, inputs: Sequence[str]) -> str:
        """The aggregate of named inputs, as plans describe it."""
        of = "" if self.column is None else inputs[self.column]
        of += "" if self.parameter is None else f", {self.parameter!r}"
        if self.by is not None:
            of += f" by {inputs[self.by]}{' descending' if self.descending else ''}"
        return f"{self.function if self.own is None else self.own.text}({of})"
