"""Which names the columns of a Delta table can have.

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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import types as T

from tablestream.base.type_parts import within

#: What a table that needs it is created with.
MAPPING = {"delta.columnMapping.mode": "name"}

_MAPPED = frozenset(" ,;{}()\n\t=")
_OF_MERGE = frozenset(
    {"_row_id_", "_file_name_", "_target_row_index_", "_condition_", "_row_dropped_", "_setter_"}
    | {"_source_row_present_", "_target_row_present_"}
)


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
