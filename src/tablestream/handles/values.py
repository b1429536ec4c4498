"""The columns of a value: analysed by Spark and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NoReturn

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.connectors.spark_types import arrow_type
from tablestream.errors import ArgumentError, ColumnCollisionError, PlanError, ReservedNameError
from tablestream.spark.analysis import Analysed, analysed, folding, with_used
from tablestream.spark.row import Plain
from tablestream.spark.sources import SUBSTITUTED, is_reserved
from tablestream.topology.nodes import Field, Fields, Named


def empty(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """A data frame without rows. Making one takes longer than most analyses, and a plan asks for few schemas."""
    return _empty(spark, schema.json())


@lru_cache(maxsize=64)
def _empty(spark: SparkSession, schema: str) -> DataFrame:
    return spark.createDataFrame([], T.StructType.fromJson(json.loads(schema)))


def analysed_columns(
    frame: DataFrame, columns: Sequence[Column | Plain], at: Place, hint: str = ""
) -> list[Analysed]:
    """Let Spark analyse columns, and refuse unsupported types."""
    seen = analysed(frame, columns, at=at, hint=hint)
    for one in seen:
        arrow_type(one.type, one.name, at=at)
    return with_used(frame, seen)


def taken_apart(columns: Sequence[Analysed]) -> tuple[list[Column] | None, Column | None]:
    """The fields of a single struct without a name, and when it is null; (None, None) for anything else."""
    row = columns[0] if len(columns) == 1 else None
    if row is None or row.named or not isinstance(row.type, T.StructType):
        return None, None
    parts = [row.column[one].alias(one) for one in row.type.names]
    return parts, row.column.isNull() if row.nullable else None


def checked_value(
    spark: SparkSession,
    columns: Sequence[Analysed],
    keys: Mapping[str, Sequence[Column]],
    at: Place,
) -> tuple[Fields, tuple[Named, ...]]:
    """The columns of a value, without the key columns. Names must be unique and not reserved.

    `keys`: the columns that belong to the key, by name.
    """

    def refuse(kind: type[ArgumentError | PlanError], message: str) -> NoReturn:
        raise at.error(kind, message, "Rename it with alias.")

    fold = folding(spark)
    by_name = {fold(name): same for name, same in keys.items()}
    named: dict[str, tuple[Field, Named]] = {}
    for one in columns:
        name = fold(one.name)
        if name in by_name:
            texts = {str(text) for same in by_name[name] for text in (same, same.alias(one.name))}
            if fold(str(one.column)) not in {fold(text) for text in texts}:
                refuse(ColumnCollisionError, f"'{one.name}' is a key column, and this is a different column.")
        elif name in named:
            refuse(ColumnCollisionError, f"Two columns are called '{one.name}'.")
        elif said := _reserved(one.field):
            refuse(ReservedNameError, said)
        else:
            named[name] = one.field, Named(one.name, one.expression)
    return tuple(one for one, _ in named.values()), tuple(one for _, one in named.values())


def _reserved(one: Field) -> str | None:
    """Why a column cannot have its name, or the names of its fields."""
    if SUBSTITUTED in one.name + one.type:
        return f"The column '{one.name}' has {SUBSTITUTED} in a name, which Spark replaces in SQL."
    return f"A column cannot be called '{one.name}': the name is reserved." if is_reserved(one.name) else None


def check_names(spark: SparkSession, key: Sequence[str], fields: Fields, at: Place) -> None:
    """Refuse value columns whose name is taken by another one or by the key, or is reserved."""

    def refuse(kind: type[ArgumentError | PlanError], message: str) -> NoReturn:
        raise at.error(kind, message, "Give it another name.")

    fold = folding(spark)
    taken = {fold(name) for name in key}
    for one in fields:
        if said := _reserved(one):
            refuse(ReservedNameError, said)
        if fold(one.name) in taken:
            refuse(ColumnCollisionError, f"There is a column '{one.name}' already.")
        taken.add(fold(one.name))
