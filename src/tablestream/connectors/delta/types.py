"""Which columns of a Delta table hold all values of an output's column.

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
from collections.abc import Iterator

from pyspark.sql import types as T

from tablestream.base import type_lattice
from tablestream.base.type_lattice import Misfit
from tablestream.connectors.sink import quoted

_TEXTS = (T.StringType, T.IntegralType, T.DecimalType, T.BooleanType, T.DateType)
#: Where Spark keeps the declared type of a text, whose type is otherwise string.
DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"(?<!var)char\(\d+\)")


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
