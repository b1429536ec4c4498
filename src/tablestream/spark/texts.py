"""Texts that are no texts: Spark's strings can hold any bytes, Polars and most targets take only UTF-8.

Every row passes here on its way into the workers' operators, so no key, value or group compares such bytes. Arrow
looks at the bytes of a whole batch at once, which takes milliseconds for a hundred thousand rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.errors import MalformedRecordError

_SHOWN_BYTES = 40
#: The column that says why a row could not be read.
MALFORMED = "__malformed"


def checked_texts(table: pa.Table, operator: str = "") -> pa.Table:
    """Return a table whose texts are UTF-8, also inside structs, arrays and maps; the error shows the bytes of others.

    A row that could not be read (`MALFORMED`) is dropped anyway: what its columns have is left out.

    Examples
    --------
    >>> checked_texts(pa.table({"name": ["Zoe"]})).num_rows
    1
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        table = _of_readable_rows(table)
        texts = (text for column in table.columns for chunk in column.chunks for text in _not_utf8(chunk))
        bad = next(texts, None)
        if bad is None:
            table.validate(full=True)
            return table
        more = f" and {len(bad) - _SHOWN_BYTES} more" if len(bad) > _SHOWN_BYTES else ""
        raise MalformedRecordError(
            f"A text is not UTF-8: it has the bytes {bad[:_SHOWN_BYTES]!r}{more}.",
            hint="Correct it before the table is created, as in df.withColumn('name', F.make_valid_utf8('name')), or"
            " keep the column as binary.",
            operator=operator,
        ) from None
    return table


def _of_readable_rows(table: pa.Table) -> pa.Table:
    """A table in which rows that could not be read have U+FFFD in texts, and no other values that have such bytes."""
    if MALFORMED not in table.column_names:
        return table
    readable = table[MALFORMED].is_null()
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if next((text for chunk in column.chunks for text in _not_utf8(chunk)), None) is not None:
            shown = pa.scalar(None, field.type)
            if pa.types.is_string(field.type):
                raw = column.cast(pa.binary()).to_pylist()
                shown = pa.array([None if one is None else one.decode(errors="replace") for one in raw])
            table = table.set_column(number, field, pc.if_else(readable, column, shown))
    return table


def _not_utf8(array: pa.Array) -> Iterator[bytes]:
    """The texts of an array that are not UTF-8."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        for text in array.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).to_pylist():
            if text is not None and text.decode(errors="replace").encode() != text:
                yield text
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _not_utf8(part)
    elif pa.types.is_map(kind):
        for part in (array.keys, array.items):
            yield from _not_utf8(part)
    elif pa.types.is_list(kind):
        yield from _not_utf8(array.flatten())
