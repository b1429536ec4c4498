"""Rows of Python objects to a struct of Arrow columns, schema by schema and column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Errors, Filler, Row
from tablestream.connectors.debezium.converters import arrow_type, guessed, scalar
from tablestream.connectors.debezium.placeholder import Placeholder
from tablestream.connectors.debezium.scalars import Modes
from tablestream.connectors.debezium.wire import Wire

_MAX_SCHEMAS = 1000


@dataclass
class Part:
    """What `Filling.fill` returns: for each row its columns, and what else was found.

    Attributes
    ----------
    columns
        One array a column; null where there is no row.
    errors
        Why rows cannot be decoded.
    unchanged
        For rows with columns that are unchanged and unknown: their positions, ascending.
    """

    columns: list[pa.Array]
    errors: Errors = field(default_factory=dict)
    unchanged: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Filling:
    """Fills the columns of a key or a value from records of any schema; remembers what it chose for each schema.

    Attributes
    ----------
    columns
        The columns.
    modes
        What a record's schema does not say.
    placeholder
        The connector's; None in a key.
    partial
        The columns whose null means "as before".
    """

    columns: T.StructType
    modes: Modes
    placeholder: Placeholder | None = None
    partial: frozenset[str] = frozenset()
    _chosen: dict[int, tuple[Wire | None, list[Filler]]] = field(default_factory=dict, init=False)

    def fill(self, rows: Sequence[Row | None], wires: Sequence[Wire | None]) -> Part:
        """Convert rows.

        Parameters
        ----------
        rows
            The rows; None for none.
        wires
            The schema of each row's record, or None.
        """
        groups = _grouped(rows, wires)
        part = Part([])
        pieces: list[list[pa.Array]] = []
        for wire, where in groups:
            pieces.append(self._piece(part, [rows[i] for i in where], wire, where))  # type: ignore[misc]  # no None
        if len(groups) == 1 and len(groups[0][1]) == len(rows):
            part.columns = pieces[0]
        else:
            part.columns = self._scattered(pieces, [where for _, where in groups], len(rows))
        return part

    def _piece(self, part: Part, rows: list[Row], wire: Wire | None, where: list[int]) -> list[pa.Array]:
        columns = []
        for number, filler in enumerate(self._fillers(wire)):
            name = filler.column.name
            filled = filler.fill([row.get(name) for row in rows])
            for i, why in (filled.errors or {}).items():
                part.errors.setdefault(where[i], why)
            for i in filled.unchanged:
                part.unchanged.setdefault(where[i], []).append(number)
            columns.append(filled.values)
        return columns

    def _fillers(self, wire: Wire | None) -> list[Filler]:
        found = self._chosen.get(id(wire))
        if found is None:
            if len(self._chosen) >= _MAX_SCHEMAS:
                self._chosen.clear()
            fillers = [self._filler(column, wire) for column in self.columns]
            found = self._chosen[id(wire)] = wire, fillers  # keeps the schema, and so its id
        return found[1]

    def _filler(self, column: T.StructField, wire: Wire | None) -> Filler:
        found = None if wire is None else wire.field(column.name)
        if found is None:  # the record has no schema or no such field: all of its values are null
            found = guessed(column.dataType, self.modes, column.name)
        conversion = scalar(found, column.dataType, self.modes)
        kind = column.dataType.simpleString()
        why = f"the field '{column.name}' is {found.shown()}, which does not fit the column's type, {kind}"
        placeholders = (
            () if self.placeholder is None else tuple(self.placeholder.values(found, column.dataType))
        )
        return Filler(column, conversion, why, placeholders, column.name in self.partial)

    def _scattered(self, pieces: list[list[pa.Array]], groups: list[list[int]], size: int) -> list[pa.Array]:
        """Put the rows of all groups back in their order, with null between them."""
        if not pieces:
            return [pa.nulls(size, arrow_type(column.dataType)) for column in self.columns]
        at: list[int | None] = [None] * size
        for here, i in enumerate(i for where in groups for i in where):
            at[i] = here
        order = pa.array(at, pa.int64())
        return [pa.concat_arrays(column).take(order) for column in zip(*pieces, strict=True)]


def _grouped(rows: Sequence[Row | None], wires: Sequence[Wire | None]) -> list[tuple[Wire | None, list[int]]]:
    """Group the numbers of rows by the schema of their records."""
    if None not in rows and len(set(map(id, wires))) == 1:
        return [(wires[0], list(range(len(rows))))]
    groups: dict[int, tuple[Wire | None, list[int]]] = {}
    for i, (row, wire) in enumerate(zip(rows, wires, strict=True)):
        if row is not None:
            groups.setdefault(id(wire), (wire, []))[1].append(i)
    return list(groups.values())
