"""The node of window functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Expression, Fields, Named, OneParent, texts


@dataclass(frozen=True)
class WindowMeasure:
    """A window function."""

    function: str
    """Its name in `tablestream.operators.reduce.frames`."""
    column: int | None = None
    default: int | None = None
    """The positions of its input and of its default among the inputs; None: none."""
    offset: int = 1
    """How many rows before or after; the number of the row in the frame; into how many parts."""
    ignores_nulls: bool = False
    """Whether rows in which the column is null are passed over."""

    def text(self, inputs: Sequence[str]) -> str:
        """The function of named inputs, for people, and part of a plan's meaning."""
        parts = [inputs[of] for of in (self.column, self.default) if of is not None]
        shift = [str(self.offset)] if self.function in {"lag", "lead", "nth_value", "ntile"} else []
        nulls = " ignore nulls" if self.ignores_nulls else ""
        return f"{self.function}({', '.join([*parts[:1], *shift, *parts[1:]])}){nulls}"


@dataclass(frozen=True, eq=False)
class Over(OneParent):
    """A table with window functions of its rows: further columns of its value."""

    on: tuple[Expression, ...]
    """The partition, an expression per column, over a row."""
    foreign: Fields
    """Its columns."""
    inputs: tuple[Named, ...]
    """What is remembered of a row: the columns of the parent's value, then what orders rows, and what functions get."""
    input_fields: Fields
    """The names and types of `inputs`."""
    order: tuple[tuple[int, bool], ...]
    """The positions of the inputs that rows are ordered by, each with whether the greatest comes first."""
    measures: tuple[WindowMeasure | Measure, ...]
    """The functions and the declared aggregates, of the last columns of the value."""
    by_rows: bool
    between: tuple[float | None, float | None] = (None, 0)
    """The frame; see `tablestream.operators.reduce.frames.Frame`."""

    @property
    def meaning(self) -> str:
        inputs = [one.expression.text for one in self.inputs]
        order = ", ".join(f"{inputs[of]} {'descending' if down else 'ascending'}" for of, down in self.order)
        made = zip(self.value[-len(self.measures) :], self.measures, strict=True)
        shown = "; ".join(f"{one.name} {one.type} = {measure.text(inputs)}" for one, measure in made)
        own = "; ".join(one.text for one in self.inputs[: len(self.value) - len(self.measures)])
        frame = " by rows" if self.by_rows else ""
        if self.between != (None, 0):
            frame = f"{frame or ' by range'} between {self.between[0]} and {self.between[1]}"
        return f"over {self.parent.name} by {texts(self.on)} in the order {order or 'of keys'}{frame}: {shown}; {own}"
