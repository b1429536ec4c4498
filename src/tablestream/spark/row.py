"""A row as join functions get it: its columns by name, as Spark Columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tablestream.base.calling import user_line
from tablestream.connectors.sink import quoted
from tablestream.errors import ArgumentError
from tablestream.topology.needed import SIDES

#: A name that Spark's text of the column has as it is.
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LEFT, RIGHT = SIDES


def side_column(side: str | None, name: str) -> str:
    """Return the name of a side's column, or of the only row's. An empty name gives the existence flag."""
    return name if side is None else f"{side}.{name}"


def renamed(name: str, shown: str) -> Column:
    """Return a column under another name; as SQL it takes a tenth of the time of a column and its alias."""
    return F.expr(f"{quoted(name)} AS {quoted(shown)}")


@dataclass(frozen=True)
class Plain:
    """A column of a frame as it is. Spark is not asked about it: each question takes several calls of the JVM."""

    name: str
    """The column's name in the frame."""
    shown: str
    """Its name in the result."""

    @property
    def column(self) -> Column:
        """The Column."""
        return F.col(quoted(self.name)) if self.name == self.shown else renamed(self.name, self.shown)


def plain(name: str, shown: str | None = None, side: str | None = None) -> Plain | None:
    """Return a column as it is, of a side of a join or of the only row; None if Spark's text of it is not known."""
    return Plain(side_column(side, name), shown or name) if _SIMPLE.fullmatch(name) else None


@lru_cache(maxsize=10_000)
def _handed_out(spark: SparkSession, name: str, shown: str) -> Column:  # noqa: ARG001 - a Column is of its session
    """A column of a row. A session makes it once: joins of wide tables ask for the same ones again and again."""
    return renamed(name, shown)


@dataclass(frozen=True)
class Given:
    """What rows of a session have handed out: each Column by its identity, and what is known of it.

    Columns cannot be compared.
    """

    spark: SparkSession
    known: dict[int, tuple[Column, Column | Plain]] = field(default_factory=dict)

    def column(self, name: str, side: str | None) -> Column:
        """Hand out a column."""
        column = _handed_out(self.spark, side_column(side, name), name)
        self.known[id(column)] = column, plain(name, side=side) or column
        return column

    def of(self, one: Any) -> Any:
        """What is known of what a user returns; if nothing is, itself."""
        return self.known[id(one)][1] if id(one) in self.known else one


class Row:
    """One side's row in ``select=`` and ``on=`` functions.

    A column is an attribute or an item: ``row.amount``, ``row["amount"]``. Key columns are included. In a join that
    keeps unmatched rows, `exists` says whether there is a row; if not, its columns are null.

    Examples
    --------
    >>> row = Row(["client", "amount"])
    >>> row.names
    ('client', 'amount')
    >>> row.amonut  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tablestream.errors.ArgumentError: [TABLESTREAM_ARGUMENT] There is no ... Columns are: client, amount.
    """

    def __init__(self, names: Sequence[str], side: str | None = None, given: Given | None = None) -> None:
        # Two underscores: a column may be called `_names`.
        self.__names, self.__side, self.__given = tuple(names), side, given

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the row's columns."""
        return self.__names

    @property
    def exists(self) -> Column:
        """Whether the row exists."""
        return F.lit(True) if self.__side is None else F.col(quoted(side_column(self.__side, "")))

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Column:
        if name not in self.__names:
            raise ArgumentError(
                f"There is no column '{name}'.",
                hint=f"Columns are: {', '.join(self.__names)}.",
                where=user_line(),
            )
        if self.__given is not None:
            return self.__given.column(name, self.__side)
        return renamed(side_column(self.__side, name), name)
