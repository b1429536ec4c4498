"""Rows of JSON and CSV files: as Spark reads them, with exact values and the texts of malformed rows.

CSV is what Python's ``csv``, pandas and RFC 4180 write: a quote within quotes is doubled, a backslash is a character
like any other, and quotes may hold line ends. So a file is one piece: one task reads it from its begin to its end.

Spark finds out how a file's lines end from the first line end in it, even one within quotes. With a header that is the
end of the header. Without one, lines end with a line feed, and a carriage return before it is taken off the row's last
field here; it cannot belong to the text, because writers put quotes around it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.sink import quoted
from tablestream.connectors.source import CORRUPT_RECORD, Option
from tablestream.connectors.texts import Texts
from tablestream.errors import MalformedRecordError

#: No text of a file: Spark reads what it finds for null, and takes an empty text between quotes for it if it is empty.
_NO_TEXT = "\x00tablestream-null\x00"
_CSV: dict[str, Option] = {
    "multiLine": True,
    "nullValue": _NO_TEXT,
    "enforceSchema": False,
    # A row's number of fields is only compared with the schema's when all of them are parsed.
    "columnPruning": False,
}
#: Spark takes U+0000 for a sign before quotes, and leaves it out of texts, unless it is told another. No text has this.
_NO_SIGN = "\uffff"
#: With these options the user says how values of some types are written, and Spark's parser reads them.
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_REAL = (T.FloatType, T.DoubleType)
_FORMS: dict[str, tuple[type[T.DataType], ...]] = {
    "timestampformat": (T.TimestampType,),
    "timestampntzformat": (T.TimestampNTZType,),
    "dateformat": (T.DateType,),
    "timezone": (T.TimestampType,),
    "enabledatetimeparsingfallback": _TIMES,
    "locale": (*_TIMES, T.DecimalType),
    "nanvalue": _REAL,
    "positiveinf": _REAL,
    "negativeinf": _REAL,
}
#: Of these, the ones that a row written again as CSV needs.
_DIALECT = ("sep", "delimiter", "quote", "escape")


def csv_defaults(given: Mapping[str, Option]) -> dict[str, Option]:
    """Return Spark's options for the dialect; `given` are the user's, which win, by their names in lower case."""
    line_end: dict[str, Option] = {} if has_header(given) or not _is_whole(given) else {"lineSep": "\n"}
    return _CSV | _escape(given) | line_end


def _escape(given: Mapping[str, Option]) -> dict[str, Option]:
    """What stands before a quote inside quotes: a quote, unless the user says otherwise."""
    if "escape" in given:
        return {}
    return {"escape": given.get("quote") or '"', "charToEscapeQuoteEscaping": _NO_SIGN}


def has_header(given: Mapping[str, Option]) -> bool:
    """Whether files begin with the names of their columns."""
    return str(given.get("header", "false")).lower() == "true"


def kept_types(given: Mapping[str, Option]) -> tuple[type[T.DataType], ...]:
    """Return the types that Spark's parser reads, as the user's options say."""
    return tuple(kind for name, kinds in _FORMS.items() if name in given for kind in kinds)


def _is_whole(given: Mapping[str, Option]) -> bool:
    """Whether line ends are left to this module: records may have several lines, and the user names no line end."""
    is_multiline = str(given.get("multiline", "true")).lower() == "true"
    return is_multiline and "linesep" not in given


def typed_rows(
    frame: DataFrame, columns: T.StructType, texts: Texts, given: Mapping[str, Option]
) -> DataFrame:
    """Give rows as Spark read them their types, and the texts of malformed ones.

    The frame has the columns ``texts.raw`` and the corrupt record; `given` are the user's options, by their names in
    lower case.
    """
    raw = {name: F.col(quoted(name)) for name in texts.columns.names}
    corrupt = F.col(CORRUPT_RECORD)
    last = texts.columns.names[-1]
    ends_here = texts.of == "csv" and not has_header(given) and _is_whole(given)
    if ends_here:
        blank = corrupt.eqNullSafe("") if len(raw) > 1 else raw[last].eqNullSafe("\r")
        frame = frame.filter(~blank)
        if isinstance(texts.raw[last].dataType, T.StringType):
            raw[last] = F.regexp_replace(F.nullif(raw[last], F.lit("\r")), "\r\\z", "")
    values = texts.values(raw)
    if texts.of == "json":
        values = {one.name: _of_file(one, raw[one.name], values[one.name]) for one in texts.columns}
    values[CORRUPT_RECORD] = _malformed(corrupt, raw, texts, given)
    return _selected(frame, values, columns)


def own_rows(frame: DataFrame, note: Mapping[str, Any]) -> DataFrame:
    """Let no directory's name stand for a column that the rows of a Parquet file lack. `note`: of each column."""
    raw = {one.name: F.col(quoted(one.name)) for one in frame.schema}
    values = {one.name: _of_file(one, raw[one.name], raw[one.name]) for one in frame.schema}
    return frame.select(
        *(values[one.name].alias(one.name, metadata={**one.metadata, **note}) for one in frame.schema)
    )


def _selected(frame: DataFrame, values: Mapping[str, Column], columns: T.StructType) -> DataFrame:
    frame = frame.select(*(values[one.name].alias(one.name) for one in columns))
    for one in columns:
        if one.metadata:
            frame = frame.withMetadata(one.name, one.metadata)
    return frame


def _of_file(column: T.StructField, raw: Column, value: Column) -> Column:
    """The value in the file; an error if it has none, and a directory is called ``name=...``, as Hive does."""
    name = column.name
    path = F.col("_metadata.file_path")
    is_named = F.lower(path).contains(f"/{name.lower()}=")
    refused = F.concat(
        # In parts: a plan that Spark prints is not taken for the error.
        F.lit("["),
        F.lit(f"{MalformedRecordError.code}] A row of "),
        path,
        F.lit(
            f" has no value for the column {name}, and a directory is called {name}=...: the names of directories are"
            f" not read as columns. Leave {name} out of the schema, and take it from _metadata.file_path."
        ),
    )
    # Nested, and not with an AND: Spark would compute what the columns' conditions share, such as the path in lower
    # case, for every row, also where no value is null.
    null = F.when(is_named, F.raise_error(refused).cast(column.dataType))
    return F.when(raw.isNull(), null).otherwise(value)


def _malformed(
    corrupt: Column, raw: Mapping[str, Column], texts: Texts, given: Mapping[str, Option]
) -> Column:
    """Return the text of a malformed row, else null; written again if only its values are wrong.

    Spark parses only the columns that a query uses, finds no fault in the others, and refuses a query of the
    corrupt-record column alone. So this column refers to all of them, in a condition that is always true, that the
    optimizer cannot simplify, and that is evaluated for malformed rows only.
    """
    others = [one.isNull() for one in raw.values()]
    all_parsed = F.greatest(*others, F.lit(True)) if others else F.lit(True)
    found = F.when(corrupt.isNotNull() & all_parsed, corrupt)
    misfits = texts.misfits(raw)
    if not misfits:
        return found
    written = _as_json(raw, texts.raw) if texts.of == "json" else _as_csv(raw, given)
    is_misfit = reduce(or_, (F.coalesce(one, F.lit(False)) for one in misfits.values()))
    return found.when(is_misfit, written)


def _as_json(raw: Mapping[str, Column], kinds: T.StructType) -> Column:
    """Write a row as Python's ``json`` does; what it lacks and nulls are left out."""
    fields = (
        F.concat(F.lit(f"{json.dumps(name, ensure_ascii=False)}: "), _json_text(one, kinds[name].dataType))
        for name, one in raw.items()
    )
    return F.concat(F.lit("{"), F.concat_ws(", ", *fields), F.lit("}"))


def _json_text(value: Column, kind: T.DataType) -> Column:
    is_nested = isinstance(kind, T.StructType | T.ArrayType | T.MapType)
    return F.to_json(value if is_nested else value.cast(T.VariantType()))


def _as_csv(raw: Mapping[str, Column], given: Mapping[str, Option]) -> Column:
    spaces = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    own = {name: given[name] for name in _DIALECT if name in given}
    options = {name: str(one) for name, one in (_escape(given) | own).items()}
    return F.to_csv(F.struct(*(one.alias(name) for name, one in raw.items())), options | spaces)
