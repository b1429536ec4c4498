"""What the columns of a Delta table can be called, and which of them hold all values of an output's column.

=============================================  ====================================================================
names                                          what follows
=============================================  ====================================================================
with one of the characters `` ,;{}()=``,       the table is created with column mapping, in which Delta takes them
a tab or a line break, also inside structs
that differ only in upper and lower case       refused when the query starts: they are one name to Delta
that Delta's MERGE gives to its own columns    refused when the query starts, for a maintained table
that an existing table lacks                   refused when the query starts; added when it evolves, unless the name or
                                               the type asks for a feature that the table may not have
=============================================  ====================================================================

Delta's MERGE casts to the type of the table's column, and rounds or cuts what does not fit.

=====================  =====================================================================================
output                 fits, besides what holds it in `tablestream.base.type_lattice`
=====================  =====================================================================================
date                   timestamp_ntz
integer, decimal,      string
boolean, date
string                 varchar(n): a longer text is refused when it is written. Not char(n), which adds blanks
=====================  =====================================================================================

The fields of structs are found by their names, in which upper and lower case are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pyspark.sql import types as T

from tablestream.base import type_lattice
from tablestream.base.type_lattice import Misfit
from tablestream.base.type_parts import within
from tablestream.connectors.sink import quoted

#: What a table that needs it is created with.
MAPPING = {"delta.columnMapping.mode": "name"}

_MAPPED = frozenset(" ,;{}()\n\t=")
_OF_MERGE = frozenset(
    {"_row_id_", "_file_name_", "_target_row_index_", "_condition_", "_row_dropped_", "_setter_"}
    | {"_source_row_present_", "_target_row_present_"}
)
_TEXTS = (T.StringType, T.IntegralType, T.DecimalType, T.BooleanType, T.DateType)
#: Where Spark keeps the declared type of a text, whose type is otherwise string.
DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"(?<!var)char\(\d+\)")


def needs_mapping(columns: T.StructType) -> bool:
    """Whether Delta takes a name only with column mapping.

    Examples
    --------
    >>> [needs_mapping(T.StructType().add(name, T.DoubleType())) for name in ("price", "unit price")]
    [False, True]
    """
    return any(_MAPPED & {*name} for struct in _structs(columns) for name in struct.names)


def can_be_added(columns: T.StructType, taken: Iterable[str]) -> bool:
    """Whether a table with the names `taken` gets columns without another feature of Delta.

    Examples
    --------
    >>> [can_be_added(T.StructType().add(name, T.DoubleType()), ["price"]) for name in ("tax", "unit price", "Price")]
    [True, False, False]
    """
    others = {name.lower() for name in taken}.isdisjoint(name.lower() for name in columns.names)
    timed = any(isinstance(one, T.TimestampNTZType) for one in within(columns))
    return others and not timed and not needs_mapping(columns)


def why_refused(columns: T.StructType, *, merged: bool) -> str | None:
    """Say why a table cannot have these columns; None if it can. `merged`: it is maintained by MERGE."""
    taken = [name for name in columns.names if merged and name.lower() in _OF_MERGE]
    if taken:
        return f"Delta's MERGE has a column {taken[0]!r} of its own"
    for struct in _structs(columns):
        names: dict[str, str] = {}
        for name in struct.names:
            if name.lower() in names:
                return f"{names[name.lower()]!r} and {name!r} are one name to Delta"
            names[name.lower()] = name
    return None


def _structs(kind: T.DataType) -> Iterator[T.StructType]:
    return (one for one in within(kind) if isinstance(one, T.StructType))


def lacked(output: T.StructType, table: T.StructType) -> T.StructType:
    """The columns of an output that a table lacks."""
    return T.StructType([one for one in output.fields if one.name not in table.names])


def misfits(output: T.StructType, table: T.StructType) -> Iterator[Misfit]:
    """Find the columns of a table that do not hold all values of an output's; those that it lacks are passed over."""
    stored = {one.name: one for one in table.fields}
    for one in output.fields:
        found = stored.get(one.name)
        if found is None:
            continue
        padded = _CHAR.search((found.metadata or {}).get(DECLARED, ""))
        if padded:
            yield Misfit(one.name, one.dataType.simpleString(), padded[0])
        else:
            yield from type_lattice.misfits(
                one.dataType, found.dataType, one.name, holds=_holds, fold=str.lower
            )


def _holds(table: T.DataType, output: T.DataType) -> bool:
    """Whether a type without parts holds all values of another one."""
    if isinstance(table, T.StringType):
        return isinstance(output, _TEXTS)
    date_as_time = isinstance(table, T.TimestampNTZType) and isinstance(output, T.DateType)
    return date_as_time or type_lattice.holds(table, output)


def as_texts(table: T.StructType, key: T.StructType) -> dict[str, str]:
    """Write what only the table has as text as texts, in SQL over ``c``, to store and to compare them.

    Spark would compare a decimal with a text as doubles. Its cast writes some decimals with an exponent or without, as
    the session says.
    """
    texts = {one.name for one in table if isinstance(one.dataType, T.StringType)}
    return {
        one.name: _as_text(f"c.{quoted(one.name)}", one.dataType)
        for one in key
        if one.name in texts and not isinstance(one.dataType, T.StringType)
    }


def _as_text(value: str, kind: T.DataType) -> str:
    if not isinstance(kind, T.DecimalType):
        return f"CAST({value} AS STRING)"
    digits = f"0.{'0' * kind.scale}" if kind.scale else "0"
    return f"format_number({value}, '{digits}')"
