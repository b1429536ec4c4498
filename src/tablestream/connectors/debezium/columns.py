"""The columns of a table: how they follow from records with schemas, and how records of each schema fill them.

A field of a record becomes the column of its name. These rules say what else may be:

====================================  =======================================================================
A field                               The column
====================================  =======================================================================
of another type than before           the row cannot be decoded, unless the column holds such values
whose value does not fit exactly      the row cannot be decoded
that is null                          null; if the column is not nullable, the row cannot be decoded
that the record lacks                 the same: the column did not exist yet, or does not exist any more
with the placeholder                  null, and the column's position is in ``unchanged``
null, of a column of partial rows     the same, unless it is an insert, which says that it is null
without a column                      its name is in ``added``; in a key the row cannot be decoded
====================================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.converters import guessed, nullable, scalar
from tablestream.connectors.debezium.foreign import NOT_OF_A_RECORD
from tablestream.connectors.debezium.placeholder import Placeholder
from tablestream.connectors.debezium.records import DELETED, Reader, UnreadableError
from tablestream.connectors.debezium.scalars import MisfitError, Modes, Scalar, shown
from tablestream.connectors.debezium.types import column_type
from tablestream.connectors.debezium.wire import Wire
from tablestream.connectors.spark_types import arrow_type
from tablestream.errors import ArgumentError

_MAX_SCHEMAS = 1000
_FAILURES = (MisfitError, pa.ArrowException, ValueError, TypeError, ArithmeticError, RecursionError)

Row = dict[str, Any]
Errors = dict[int, str]
"""Why rows cannot be decoded, by the row's number."""


@dataclass(frozen=True)
class Columns:
    """What a table's records are decoded into."""

    key: T.StructType
    """The columns of the record's key, in the key's order."""
    value: T.StructType
    """The other columns."""


@dataclass(frozen=True)
class Filler:
    """Fills one column from records of one schema."""

    column: T.StructField
    scalar: Scalar | None
    why: str = ""
    """Why no row can be decoded, if so."""
    placeholders: tuple[Any, ...] = ()
    """The values that mean "unchanged and unknown"."""
    partial: bool = False
    """Null means "as before"."""

    def fill(self, values: list[Any]) -> tuple[pa.Array, Sequence[int], Errors]:
        """Convert one value for each row; return which are unchanged and unknown, and why some cannot be decoded.

        Placeholders among the values are replaced by null.
        """
        if self.scalar is None:
            return pa.nulls(len(values), self._arrow()), (), dict.fromkeys(range(len(values)), self.why)
        unchanged = self._unchanged(values)
        errors: Errors = {}
        if not self.column.nullable and None in values:
            known = set(unchanged)
            missing = (i for i, one in enumerate(values) if one is None and i not in known)
            errors = dict.fromkeys(missing, is_missing(self.column))
        return self._converted(values, self.scalar, errors), unchanged, errors

    def _arrow(self) -> pa.DataType:
        return arrow_type(self.column.dataType, self.column.name)

    def _unchanged(self, values: list[Any]) -> list[int]:
        found: list[int] = []
        for placeholder in self.placeholders:
            if placeholder in values:
                found += [i for i, one in enumerate(values) if one == placeholder]
        for i in found:
            values[i] = None
        return [i for i, one in enumerate(values) if one is None] if self.partial else found

    def _converted(self, values: list[Any], scalar: Scalar, errors: Errors) -> pa.Array:
        """Convert all values at once; if that fails, find out which of them do not fit."""
        try:
            return self._at_once(values, scalar)
        except _FAILURES:
            return pa.concat_arrays([self._fitting(one, i, scalar, errors) for i, one in enumerate(values)])

    def _at_once(self, values: list[Any], scalar: Scalar) -> pa.Array:
        arrow = self._arrow()
        kinds = set(map(type, values)) - {type(None)}
        if scalar.bulk is not None and kinds == {str}:
            return scalar.bulk(values).cast(arrow)
        if not kinds <= {scalar.plain}:
            convert = nullable(scalar)
            values = [convert(value) for value in values]
        return pa.array(values, scalar.storage).cast(arrow)

    def _fitting(self, value: Any, i: int, scalar: Scalar, errors: Errors) -> pa.Array:
        """Convert one value; null and an error if it does not fit."""
        try:
            return self._at_once([value], Scalar(scalar.one, scalar.storage))
        except _FAILURES as error:
            kind = self.column.dataType.simpleString()
            why = str(error) if isinstance(error, MisfitError) else f"does not fit {kind}"
            errors[i] = f"the field '{self.column.name}' is {shown(value)}, which {why}"
            return pa.nulls(1, self._arrow())


def is_missing(column: T.StructField) -> str:
    """Say that a column which cannot be null has no value."""
    return f"the field '{column.name}' is null or missing"


@dataclass
class FilledColumns:
    """What `Filling.fill` returns: for each row its columns, and what else was found."""

    columns: list[pa.Array]
    """One array a column; null where there is no row."""
    errors: Errors = field(default_factory=dict)
    """Why rows cannot be decoded."""
    unchanged: dict[int, list[int]] = field(default_factory=dict)
    """For rows with columns that are unchanged and unknown: their positions, ascending."""


@dataclass
class Filling:
    """Fills the columns of a key or a value from records of any schema; remembers what it chose for each schema."""

    columns: T.StructType
    modes: Modes
    """What a record's schema does not say."""
    placeholder: Placeholder | None = None
    """The connector's; None in a key."""
    partial: frozenset[str] = frozenset()
    """The columns whose null means "as before"."""
    _chosen: dict[int, tuple[Wire | None, list[Filler]]] = field(default_factory=dict, init=False)

    def fill(self, rows: Sequence[Row | None], wires: Sequence[Wire | None]) -> FilledColumns:
        """Convert rows, some of which may be None, with the schema of each row's record, if it has one."""
        groups = _grouped(rows, wires)
        part = FilledColumns([])
        pieces: list[list[pa.Array]] = []
        for wire, where in groups:
            pieces.append(self._piece(part, [rows[i] for i in where], wire, where))  # type: ignore[misc]  # no None
        if len(groups) == 1 and len(groups[0][1]) == len(rows):
            part.columns = pieces[0]
        else:
            part.columns = self._scattered(pieces, [where for _, where in groups], len(rows))
        return part

    def _piece(
        self, part: FilledColumns, rows: list[Row], wire: Wire | None, where: list[int]
    ) -> list[pa.Array]:
        columns = []
        for number, filler in enumerate(self._fillers(wire)):
            name = filler.column.name
            values, unchanged, errors = filler.fill([row.get(name) for row in rows])
            for i, why in errors.items():
                part.errors.setdefault(where[i], why)
            for i in unchanged:
                part.unchanged.setdefault(where[i], []).append(number)
            columns.append(values)
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
            return [pa.nulls(size, arrow_type(column.dataType, column.name)) for column in self.columns]
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


def infer(
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    prefix: str = "__",
    avro: AvroReader | None = None,
) -> Columns:
    """Find a table's columns from keys and values with schemas, in the order of their topic: the last row tells them.

    A column has the default type of its field (`types.py`), and is nullable where the schema says optional. For
    `prefix` and `avro` see `Reader`. It is an error if no record has a row, a key and the schemas of both.

    Examples
    --------
    >>> schema = '{"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": false}]}'
    >>> wrapped = f'{{"schema": {schema}, "payload": {{"id": 7}}}}'.encode()
    >>> infer([(wrapped, wrapped)]).key.simpleString()
    'struct<id:int>'
    """
    reader = Reader(prefix, avro)
    found: tuple[Wire, Wire] | None = None
    for key, value in records:
        found = _schemas(reader, key, value) or found
    if found is None:
        raise ArgumentError(
            "No record has a key and a row with their schemas, so the columns are not known.",
            hint="Give the columns, or let the converter write schemas (schemas.enable=true, or Avro).",
        )
    key_columns = _struct(found[0], "")
    value_columns = _struct(found[1], prefix)
    others = [one for one in value_columns if one.name not in key_columns.names]
    return Columns(key_columns, T.StructType(others))


def _schemas(reader: Reader, key: bytes | None, value: bytes | None) -> tuple[Wire, Wire] | None:
    if key is None or value is None:
        return None
    try:
        of_key, of_value = reader.datum(key), reader.datum(value)
        event = reader.event(of_value, of_key.value)
    except UnreadableError:
        return None
    except NOT_OF_A_RECORD:
        raise
    except Exception:  # noqa: BLE001 (whatever it is, the record caused it)
        return None
    if of_key.wire is None or not of_key.wire.fields or event.wire is None or event.row is None:
        return None
    return of_key.wire, event.wire


def _struct(wire: Wire, prefix: str) -> T.StructType:
    return T.StructType(
        [
            T.StructField(name, column_type(one), one.optional)
            for name, one in wire.fields
            if not prefix or not (name.startswith(prefix) or name == DELETED)
        ]
    )
