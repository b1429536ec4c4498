"""Rows of Python objects to a struct of Arrow columns, schema by schema and column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tablestream.connectors.debezium.columns import Errors, Filler, Row, Table
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


class Filling:
    """Fills the columns of a table; remembers what it chose for each schema."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._chosen: dict[int, tuple[Wire | None, list[Filler]]] = {}

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
            found = self._chosen[id(wire)] = (
                wire,
                self._table.fillers(wire),
            )  # keeps the schema, and so its id
        return found[1]

    def _scattered(self, pieces: list[list[pa.Array]], groups: list[list[int]], size: int) -> list[pa.Array]:
        """Put the rows of all groups back in their order, with null between them."""
        if not pieces:
            return [pa.nulls(size, kind) for kind in self._table.arrow_types()]
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
