"""A row as join functions get it: its columns by name, as Spark Columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.calling import user_line
from tablestream.connectors.sink import quoted
from tablestream.errors import ArgumentError

#: The sides of a join. The left column ``x`` is called ``__left.x``: one name that contains a dot.
LEFT, RIGHT = "__left", "__right"


def side_column(side: str, name: str) -> str:
    """Return the name of a side's column. An empty name gives the existence flag."""
    return f"{side}.{name}"


def renamed(name: str, shown: str) -> Column:
    """Return a column under another name; as SQL it takes a tenth of the time of a column and its alias."""
    return F.expr(f"{quoted(name)} AS {quoted(shown)}")


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

    def __init__(self, names: Sequence[str], side: str | None = None) -> None:
        self._names, self._side = tuple(names), side

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the row's columns."""
        return self._names

    @property
    def exists(self) -> Column:
        """Whether the row exists."""
        return F.lit(True) if self._side is None else F.col(quoted(side_column(self._side, "")))

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Column:
        if name not in self._names:
            raise ArgumentError(
                f"There is no column '{name}'.",
                hint=f"Columns are: {', '.join(self._names)}.",
                where=user_line(),
            )
        column = name if self._side is None else side_column(self._side, name)
        return renamed(column, name)
