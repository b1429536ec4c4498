"""Rows that a driver returns: changes, rejected records, or the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.memory.collected import collected
from tablestream.connectors.memory.sink import sortable
from tablestream.connectors.sink import ORDER, quoted
from tablestream.pictures.html import html_table
from tablestream.testing.notation import Cells, shown
from tablestream.testing.values import text_of

_TEXTS = "__texts"


@dataclass(frozen=True)
class Rows(Sequence[Row]):
    """Rows with their columns. Printed, they are a text table without ``_order``, which a test can paste.

    Attributes
    ----------
    schema
        All columns, with their types.
    columns
        The names of the columns that are shown and compared: all but ``_order``.
    """

    spark: SparkSession = field(repr=False, compare=False)
    schema: T.StructType
    rows: tuple[Row, ...]
    cells: tuple[Cells, ...] = field(repr=False)

    @classmethod
    def of(cls, frame: DataFrame) -> Rows:
        """Evaluate a batch frame; its rows are sorted by ``_order`` if it has this column."""
        found = collected(
            frame.select(F.struct("*").alias("row"), F.expr(_texts(frame.schema)).alias(_TEXTS))
        )
        return _rows(frame.sparkSession, frame.schema, found)

    @classmethod
    def none(cls, spark: SparkSession, schema: T.StructType) -> Rows:
        """No rows, of some columns."""
        return cls(spark, schema, (), ())

    @property
    def columns(self) -> list[str]:
        return [one.name for one in _shown(self.schema)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Rows: ...
    def __getitem__(self, at: int | slice) -> Row | Rows:
        if isinstance(at, slice):
            return Rows(self.spark, self.schema, self.rows[at], self.cells[at])
        return self.rows[at]

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.spark, self.schema, self.rows + other.rows, self.cells + other.cells)

    def __str__(self) -> str:
        return shown(self.columns, self.cells)

    def _repr_html_(self) -> str:
        """What notebooks show: the same table."""
        return html_table(self.columns, self.cells)

    def ordered(self, key: Callable[[Row], Any]) -> Rows:
        """The same rows in another order."""
        places = sorted(range(len(self)), key=lambda at: key(self.rows[at]))
        return self.taken(places)

    def taken(self, places: Sequence[int]) -> Rows:
        """Some of the rows."""
        rows = tuple(self.rows[at] for at in places)
        return Rows(self.spark, self.schema, rows, tuple(self.cells[at] for at in places))

    def without(self, *names: str) -> Rows:
        """The same rows without some columns."""
        kept = [at for at, name in enumerate(self.schema.names) if name not in names]
        shown_at = [at for at, name in enumerate(self.columns) if name not in names]
        maker = Row(*(self.schema.names[at] for at in kept))
        return Rows(
            self.spark,
            T.StructType([self.schema[at] for at in kept]),
            tuple(maker(*(row[at] for at in kept)) for row in self.rows),
            tuple(tuple(row[at] for at in shown_at) for row in self.cells),
        )


def rows_of_each(frame: DataFrame, names: Sequence[str]) -> list[Rows]:
    """Evaluate a batch frame with several columns of structs once; each of its rows has one of them.

    Returns the rows that each column has, as `Rows.of` does.
    """
    kinds = {name: columns_of(frame, name) for name in names}
    texts = (f"{_texts(kind, name)} AS {_TEXTS}{at}" for at, (name, kind) in enumerate(kinds.items()))
    found = collected(frame.selectExpr(*names, *texts))
    pairs = ([row[at :: len(names)] for row in found if row[at] is not None] for at in range(len(names)))
    return [_rows(frame.sparkSession, *one) for one in zip(kinds.values(), pairs, strict=True)]


def _rows(spark: SparkSession, schema: T.StructType, found: Sequence[Sequence[Any]]) -> Rows:
    """Make rows of pairs: a row, and the texts of its cells."""
    if ORDER in schema.names:
        found = sorted(found, key=lambda pair: sortable(pair[0][ORDER]))
    maker = Row(*schema.names)
    rows = tuple(maker(*row) for row, _ in found)
    return Rows(spark, schema, rows, tuple(tuple(texts) for _, texts in found))


def columns_of(frame: DataFrame, struct: str) -> T.StructType:
    """The columns of the rows that a column has as structs."""
    kind = frame.schema[struct].dataType
    assert isinstance(kind, T.StructType)  # noqa: S101 - the caller says so
    return T.StructType([T.StructField(one.name, one.dataType, metadata=one.metadata) for one in kind])


def _texts(schema: T.StructType, struct: str | None = None) -> str:
    """A struct with the texts of the columns that are shown, in SQL; `struct`: the column that has them."""
    of = "" if struct is None else f"{struct}."
    texts = (text_of(of + quoted(one.name), one.dataType) for one in _shown(schema))
    return f"struct({', '.join(f'{text} AS t{at}' for at, text in enumerate(texts))})"


def _shown(schema: T.StructType) -> list[T.StructField]:
    return [one for one in schema if one.name != ORDER]
