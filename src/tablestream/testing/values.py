"""Values of a test's rows: from text and Python to Spark's types, and back to text, by Spark's own casts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.data_text import data_text
from tablestream.base.type_parts import within
from tablestream.connectors.json_text import json_read_options, json_sql
from tablestream.connectors.spark_types import nullable
from tablestream.errors import ArgumentError
from tablestream.spark.analysis import folding
from tablestream.spark.columns import sql_type
from tablestream.testing.notation import parsed
from tablestream.testing.plain import plain_columns

_MISFIT = "_misfit"
GivenRows = str | Iterable[Any]
"""Rows of a test: a text table, or mappings, tuples or Spark's rows."""


def text_of(column: str, kind: T.DataType) -> str:
    """Write a value as text, in SQL: Spark's cast, JSON for what is nested, hexadecimal digits for bytes."""
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
        return json_sql(column)
    return f"hex({column})" if isinstance(kind, T.BinaryType) else f"CAST({column} AS STRING)"


def value_of(text: str, kind: T.DataType) -> Column:
    """Read the text that `text_of` writes; null if it is no such value."""
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
        # As a part of an object, whose text is kept if any part of it does not fit: that is null in what is read.
        whole = T.StructType().add("value", kind).add(_MISFIT, T.StringType())
        options = json_read_options() | {"columnNameOfCorruptRecord": _MISFIT}
        read = F.from_json(F.expr(f"""concat('{{"value":', {text}, '}}')"""), whole, options)
        return F.when(read[_MISFIT].isNull(), read["value"])
    if isinstance(kind, T.BinaryType):
        return F.expr(f"CASE WHEN {text} RLIKE '^([0-9A-Fa-f]{{2}})*$' THEN unhex({text}) END")
    return F.expr(f"try_cast({text} AS {sql_type(kind)})")


def named(given: GivenRows, columns: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return rows as tuples, and the columns that they have; tuples have all of `columns`."""
    if isinstance(given, str):
        names, cells = parsed(given)
        return names, list(cells)
    rows = [one.asDict() if isinstance(one, Row) and hasattr(one, "__fields__") else one for one in given]
    mappings = [one for one in rows if isinstance(one, Mapping)]
    if rows and len(mappings) == len(rows):
        names = tuple(dict.fromkeys(name for one in mappings for name in one))
        return names, [tuple(one.get(name) for name in names) for one in mappings]
    for one in rows:
        if not isinstance(one, tuple | list) or len(one) != len(columns):
            raise ArgumentError(
                f"{data_text(one)} is not a row of the columns {', '.join(columns)}.",
                hint="Give a text table, or only mappings, or only tuples with a value for each column.",
            )
    return tuple(columns), [tuple(one) for one in rows]


def typed(
    spark: SparkSession, schema: T.StructType, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> pa.Table:
    """Return rows with the columns and types of a schema; columns that are not given are null.

    Texts in a column of another type are cast by Spark.
    """
    kinds = _kinds(spark, schema, names)
    texts = [_are_texts([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    _check_texts(names, kinds, texts)
    arrays = plain_columns(spark, kinds, rows) or _evaluated(spark, names, kinds, texts, rows)
    fold = folding(spark)
    place = {fold(name): at for at, name in enumerate(names)}
    placed = [arrays[place[fold(one.name)]] if fold(one.name) in place else None for one in schema]
    return _filled(spark, schema, placed, len(rows))


def _evaluated(
    spark: SparkSession,
    names: Sequence[str],
    kinds: Sequence[T.DataType],
    texts: Sequence[bool],
    rows: Sequence[tuple[Any, ...]],
) -> list[pa.ChunkedArray]:
    """Columns that Spark makes of rows; it casts those that are `texts`."""
    given = T.StructType(
        [
            T.StructField(f"c{at}", T.StringType() if is_text else nullable(kind))
            for at, (kind, is_text) in enumerate(zip(kinds, texts, strict=True))
        ]
    )
    try:
        frame = _frame(spark, rows, given)
    except (PySparkException, TypeError, ValueError, AssertionError) as error:
        # Under Spark Connect PySpark says nothing.
        columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in zip(names, kinds, strict=True))
        raise ArgumentError(
            f"A value does not fit its column: {(str(error) or columns).splitlines()[0]}",
            hint="Give values of Python's types for the column, or texts in all rows, which are cast.",
        ) from error
    found = [
        value_of(f"c{at}", kind) if is_text else F.expr(f"c{at}")
        for at, (kind, is_text) in enumerate(zip(kinds, texts, strict=True))
    ]
    read = frame.withColumns({f"v{at}": value for at, value in enumerate(found)}).toArrow()
    _check_casts(read, names, kinds)
    return [read[f"v{at}"] for at in range(len(kinds))]


def _frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: T.StructType) -> DataFrame:
    """Return rows as a batch frame. Texts go by Arrow: Spark then evaluates them without a job."""
    are_texts = all(one is None or type(one) is str for row in rows for one in row)
    if rows and are_texts and all(isinstance(one.dataType, T.StringType) for one in schema):
        columns = [pa.array(cells, pa.string()) for cells in zip(*rows, strict=True)]
        return spark.createDataFrame(pa.table(columns, names=schema.names), schema)
    return spark.createDataFrame(list(rows), schema)


def _kinds(spark: SparkSession, schema: T.StructType, names: Sequence[str]) -> list[T.DataType]:
    fold = folding(spark)
    known = {fold(one.name): one.dataType for one in schema}
    unknown = [name for name in names if fold(name) not in known]
    twice = len({fold(name) for name in names}) < len(names)
    if unknown or twice:
        what = f"no column {', '.join(map(repr, unknown))}" if unknown else "no two columns of one name"
        raise ArgumentError(
            f"The rows have {what}.", hint=f"Columns are: {', '.join(one.name for one in schema)}."
        )
    return [known[fold(name)] for name in names]


def _are_texts(cells: Sequence[Any], kind: T.DataType) -> bool:
    """Whether the cells of a column are to be read from texts."""
    given = [one for one in cells if one is not None]
    return not isinstance(kind, T.StringType) and bool(given) and all(isinstance(one, str) for one in given)


def _check_texts(names: Sequence[str], kinds: Sequence[T.DataType], texts: Sequence[bool]) -> None:
    """Refuse texts in a column whose type has none."""
    for name, kind, is_text in zip(names, kinds, texts, strict=True):
        if is_text and _has_other_keys(kind):
            raise ArgumentError(
                f"The column {name} is a {kind.simpleString()}, which has no text: keys in JSON are strings.",
                hint="Give its values as Python's dictionaries.",
            )


def _has_other_keys(kind: T.DataType) -> bool:
    """Whether a map in a type has keys that are no strings."""
    maps = (one for one in within(kind) if isinstance(one, T.MapType))
    return any(not isinstance(one.keyType, T.StringType) for one in maps)


def _check_casts(read: pa.Table, names: Sequence[str], kinds: Sequence[T.DataType]) -> None:
    for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        texts, values = read[f"c{at}"], read[f"v{at}"]
        if values.null_count > texts.null_count:
            broken = next(n for n in range(len(texts)) if texts[n].is_valid and not values[n].is_valid)
            raise ArgumentError(
                f"{data_text(texts[broken].as_py())} is not a {kind.simpleString()}, the type of the column {name}.",
                hint="Write it as Spark's cast from a text reads it.",
            )


def _filled(
    spark: SparkSession, schema: T.StructType, arrays: Sequence[pa.Array | pa.ChunkedArray | None], rows: int
) -> pa.Table:
    """A table of all columns of a schema, in the types in which Spark hands them over."""
    empty = _arrow_schema(spark, schema.json()) if None in arrays else None
    columns = [
        pa.nulls(rows, empty.field(at).type) if array is None and empty is not None else array
        for at, array in enumerate(arrays)
    ]
    return pa.table(columns, names=[one.name for one in schema])


@lru_cache(maxsize=64)
def _arrow_schema(spark: SparkSession, schema: str) -> pa.Schema:
    """The types in which Spark hands over columns."""
    return spark.createDataFrame([], T.StructType.fromJson(json.loads(schema))).toArrow().schema
