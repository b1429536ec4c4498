"""The columns of a table, and how they are filled from records of one schema.

A field of a record becomes the column of its name. These rules say what else may be:

====================================  =======================================================================
A field                               The column
====================================  =======================================================================
of another type than before           the row cannot be decoded, unless the column holds such values
whose value does not fit exactly      the row cannot be decoded
that is null                          null; if the column is not nullable, the row cannot be decoded
that the record lacks                 the same: the column did not exist yet, or does not exist any more
with the placeholder                  null, and the column's position is in ``unchanged``
null, of a column of partial rows     the same, unless `inserts` says that it is null
without a column                      its name is in ``added``; in a key the row cannot be decoded
====================================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.converters import arrow_type, nullable
from tablestream.connectors.debezium.scalars import MisfitError, Scalar, shown

_FAILURES = (MisfitError, pa.ArrowException, ValueError, TypeError, ArithmeticError, RecursionError)

Row = dict[str, Any]
Errors = dict[int, str]
"""Why rows cannot be decoded, by the row's number."""


@dataclass(frozen=True)
class Columns:
    """What a table's records are decoded into.

    Attributes
    ----------
    key
        The columns of the record's key, in the key's order.
    value
        The other columns.
    """

    key: T.StructType
    value: T.StructType


@dataclass(frozen=True)
class Filled:
    """A column: its values, which of them are unchanged and unknown, and which cannot be decoded."""

    values: pa.Array
    unchanged: Sequence[int] = ()
    errors: Errors | None = None


@dataclass(frozen=True)
class Filler:
    """Fills one column from records of one schema.

    Attributes
    ----------
    column
        The column.
    scalar
        Converts a value.
    why
        Why no row can be decoded, if so.
    placeholders
        The values that mean "unchanged and unknown".
    partial
        Null means "as before".
    """

    column: T.StructField
    scalar: Scalar | None
    why: str = ""
    placeholders: tuple[Any, ...] = ()
    partial: bool = False

    def fill(self, values: list[Any]) -> Filled:
        """Convert one value for each row; placeholders among them are replaced by null."""
        if self.scalar is None:
            return Filled(
                pa.nulls(len(values), self._arrow()), (), dict.fromkeys(range(len(values)), self.why)
            )
        unchanged = self._unchanged(values)
        errors: Errors = {}
        if not self.column.nullable and None in values:
            known = set(unchanged)
            missing = (i for i, one in enumerate(values) if one is None and i not in known)
            errors = dict.fromkeys(missing, is_missing(self.column))
        return Filled(self._converted(values, self.scalar, errors), unchanged, errors)

    def _arrow(self) -> pa.DataType:
        return arrow_type(self.column.dataType)

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
            return self._at_once([self._fitting(values, i, scalar, errors) for i in range(len(values))], None)

    def _at_once(self, values: list[Any], scalar: Scalar | None) -> pa.Array:
        arrow = self._arrow()
        if scalar is None:
            return pa.concat_arrays(values) if values else pa.nulls(0, arrow)
        kinds = set(map(type, values)) - {type(None)}
        if scalar.bulk is not None and kinds == {str}:
            return scalar.bulk(values).cast(arrow)
        if not kinds <= {scalar.plain}:
            convert = nullable(scalar)
            values = [convert(value) for value in values]
        return pa.array(values, scalar.storage).cast(arrow)

    def _fitting(self, values: list[Any], i: int, scalar: Scalar, errors: Errors) -> pa.Array:
        """Convert one value; null and an error if it does not fit."""
        try:
            return self._at_once([values[i]], Scalar(scalar.one, scalar.storage))
        except _FAILURES as error:
            kind = self.column.dataType.simpleString()
            why = str(error) if isinstance(error, MisfitError) else f"does not fit {kind}"
            errors[i] = f"the field '{self.column.name}' is {shown(values[i])}, which {why}"
            return pa.nulls(1, self._arrow())


def is_missing(column: T.StructField) -> str:
    """Say that a column which cannot be null has no value."""
    return f"the field '{column.name}' is null or missing"
