"""Declared aggregates in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A declared aggregate."""

    function: str
    """Its name in `tablestream.operators.reduce.declared`."""
    column: int | None
    """The position of its input among the aggregated columns; None: rows."""
    parameter: float | str | None = None
    """A share, a precision or a delimiter."""
    by: int | None = None
    descending: bool = False
    """The position of the column that orders the rows, and whether the greatest comes first."""
    own: Any = None
    state: str = ""
    """The user's aggregate, and the type of its state in JSON."""

    def text(self, inputs: Sequence[str]) -> str:
        """The aggregate of named inputs, as plans describe it."""
        of = "" if self.column is None else inputs[self.column]
        of += "" if self.parameter is None else f", {self.parameter!r}"
        if self.by is not None:
            of += f" by {inputs[self.by]}{' descending' if self.descending else ''}"
        return f"{self.function if self.own is None else self.own.text}({of})"
