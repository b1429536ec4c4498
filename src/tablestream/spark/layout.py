"""The columns of a port's messages, in a DataFrame and for the workers that unpack them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pyspark.sql import types as T

from tablestream.connectors.spark_types import arrow_schema
from tablestream.spark.columns import schema_of, spark_type
from tablestream.spark.unpacking import Opened
from tablestream.state.changes import foreign_columns, key_columns
from tablestream.state.positions import frame_of
from tablestream.topology.nodes import Fields


def polars_types(fields: Fields) -> pl.Schema:
    """The Polars dtypes of columns."""
    return frame_of(arrow_schema(schema_of(fields)).empty_table()).schema


@dataclass(frozen=True)
class Layout:
    """The columns of a port's messages: plain ones, and values, which arrive as structs.

    `numbered`: the messages of each key are numbered. `nested`: in a DataFrame the columns are one struct.
    """

    plain: list[T.StructField]
    values: dict[str, Fields]
    numbered: bool = False
    nested: bool = False

    def _columns(self) -> list[tuple[str, str | None, T.DataType]]:
        columns: list[tuple[str, str | None, T.DataType]] = [
            (one.name, None, one.dataType) for one in self.plain
        ]
        for name, fields in self.values.items():
            columns.append((name, "", T.BooleanType()))
            columns += [(name, f"c{number}", spark_type(one)) for number, one in enumerate(fields)]
        return columns

    def in_frame(self, port: int) -> list[T.StructField]:
        """The columns in a DataFrame, under the builder's names."""
        prefix = "" if self.nested else f"__p{port}_"
        fields = [
            T.StructField(prefix + "_".join(filter(None, (name, part))), kind)
            for name, part, kind in self._columns()
        ]
        return [T.StructField(f"__p{port}", T.StructType(fields))] if self.nested else fields

    def opened(self, port: int) -> Opened:
        """The same columns for the workers."""
        columns = tuple((name, part) for name, part, _ in self._columns())
        plain = [one.name for one in self.plain]
        key = [name for name in (*key_columns(len(plain)), *foreign_columns(len(plain))) if name in plain]
        numbered_by = tuple(key) if self.numbered else ()
        return Opened(port, columns, arrow_schema(self.in_frame(port)), numbered_by, self.nested)
