"""The rows that a clause works on: a table or a stream, and the names under which SQL sees its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import types as T
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.spark.analysis import folding
from tablestream.sql.handles import session_of
from tablestream.streams import Stream
from tablestream.tables import Table

_NESTED = (T.StructType, T.ArrayType, T.MapType, T.VariantType)


@dataclass(frozen=True)
class Visible:
    """A column that a query can name.

    Attributes
    ----------
    source
        The name or alias of the table that it belongs to.
    name
        Its name in SQL.
    column
        Its name in the table that the rows are in.
    merged
        Whether ``USING`` made it one with a column of another table: then only its full name finds it.
    nested
        Whether a name can go on with fields of it.
    hidden
        Whether stars, and NATURAL JOIN, pass over it: a key column that the query behind it does not name.
    """

    source: str
    name: str
    column: str
    merged: bool = False
    nested: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class AsOf:
    """What a query says of the versions that an input is read in.

    Attributes
    ----------
    clause
        What says it, for errors.
    time
        The time of the other side; None: the query says only how long records wait.
    forward, strict
        As in `tablestream.as_of`.
    waits
        The arguments of `Stream.join` that the hint ``GRACE`` gives, by their names.
    """

    clause: str
    time: exp.Expr | None = None
    forward: bool = False
    strict: bool = False
    waits: dict[str, Any] = field(default_factory=dict)


class AmbiguousError(Exception):
    """A name that several tables have."""


@dataclass(frozen=True)
class Rows:
    """A table or stream, with the columns that a query can name.

    Attributes
    ----------
    table, visible
        The table, and these columns.
    place
        Where the input begins in the text.
    as_of
        The versions in which an input of FROM is read; None: as it is now.
    star
        The `joins.Star` that made the table, if one did.
    """

    table: Table | Stream
    visible: tuple[Visible, ...]
    place: int = 0
    as_of: AsOf | None = None
    star: Any = None

    @classmethod
    def of(cls, table: Table | Stream, source: str, names: Sequence[str], shown: Sequence[str]) -> Rows:
        """The rows of a table under an alias; `shown` are the names of its columns `names`."""
        kinds = {one.name: isinstance(one.dataType, _NESTED) for one in table.schema}
        pairs = zip(names, shown, strict=True)
        return cls(table, tuple(Visible(source, to, name, nested=kinds[name]) for name, to in pairs))

    @cached_property  # asking the session calls the JVM
    def fold(self) -> Callable[[str], str]:
        """Maps names that are equal to the same text."""
        return folding(session_of(self.table))

    @cached_property
    def sources(self) -> set[str]:
        """The tables' names, folded."""
        return {self.fold(one.source) for one in self.visible}

    @cached_property
    def _named(self) -> dict[str, list[Visible]]:
        """The columns by their names, folded."""
        found: dict[str, list[Visible]] = {}
        for one in self.visible:
            found.setdefault(self.fold(one.name), []).append(one)
        return found

    @property
    def shown(self) -> list[Visible]:
        """The columns that a star stands for, also those that ``USING`` merged."""
        return [one for one in self.visible if not one.hidden]

    def find(self, parts: Sequence[str]) -> tuple[Visible, int] | None:
        """Find the column that a name begins with, and how many of its parts are the column's; the rest are fields.

        Raises
        ------
        AmbiguousError
            Several tables have such a column.
        """
        fold = self.fold
        folded = [fold(one) for one in parts]
        if len(parts) > 1:
            found = [one for one in self._named.get(folded[1], ()) if fold(one.source) == folded[0]]
            if found:
                return found[0], 2
        found = [one for one in self._named.get(folded[0], ()) if not one.merged]
        if len(parts) > 1:
            found = [one for one in found if one.nested]
        if len(found) > 1:
            raise AmbiguousError(", ".join(f"{one.source}.{one.name}" for one in found))
        return (found[0], 1) if found else None

    def of_column(self, node: exp.Expr) -> Visible | None:
        """The column that an expression is, if it is nothing else."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or node.is_star:
            return None
        names = [one.name for one in node.parts]
        found = self.find(names)
        return found[0] if found is not None and found[1] == len(names) else None

    def renamed(self, columns: dict[str, str]) -> tuple[Visible, ...]:
        """The same columns where they have other names in another table."""
        return tuple(replace(one, column=columns.get(one.column, one.column)) for one in self.visible)


def text_of(found: tuple[Visible, int], parts: Sequence[str]) -> str:
    """A column, and the fields of it, as Spark's SQL."""
    column, count = found
    return quoted(column.column) + fields_of(count, parts)


def fields_of(count: int, parts: Sequence[str]) -> str:
    """The fields that a name has behind its first parts, which are a column."""
    return "".join(f".{quoted(one)}" for one in parts[count:])


def unique(name: str, taken: Iterable[str], fold: Callable[[str], str] = str.lower) -> str:
    """Return a name that is not taken yet: the given one, or with a number."""
    known = {fold(one) for one in taken}
    number, made = 2, name
    while fold(made) in known:
        made, number = f"{name}_{number}", number + 1
    return made


def unique_names(
    names: Iterable[str], taken: Iterable[str], fold: Callable[[str], str] = str.lower
) -> list[str]:
    """Return names that are not taken yet, and that differ."""
    found, known = list[str](), list(taken)
    for one in names:
        found.append(unique(one, [*known, *found], fold))
    return found
