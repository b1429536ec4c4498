"""The column in which a captured table's frame says what each record is: the fields of `operators.captured.capture`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.operators.captured.capture import FIELDS

_KINDS = {
    "String": "string",
    "Int64": "bigint",
    "Boolean": "boolean",
    "List(Int16)": "array<smallint>",
}


def capture_column(**known: Column) -> Column:
    """Put all fields into one struct, in their order and types; those that are not given are null."""
    fields = {name: known.get(name, F.lit(None)).cast(_KINDS[str(kind)]) for name, kind in FIELDS.items()}
    return F.struct(*(field.alias(name) for name, field in fields.items()))
