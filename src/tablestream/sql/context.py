"""What the parts of a query share: its text, the tables it can name, the reasons against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T
from sqlglot import exp

from tablestream.errors import ArgumentError
from tablestream.sql.handles import Handle, hidden_columns, with_hidden
from tablestream.sql.parse import beginning
from tablestream.sql.refusals import PartRefusedError, Reasons
from tablestream.sql.rows import Rows
from tablestream.tables import Table


@dataclass(frozen=True)
class Result:
    """A query as a table.

    Attributes
    ----------
    table
        The table; a key that the query does not name is in it, too.
    columns
        The columns of the query, by their names, each with its name in the table.
    untyped
        The types that Spark gives to columns of nothing but null, by their names: the table has texts for void.
    hidden
        Columns of the table that another query can name, and that are none of this one's, each by its name there.
    """

    table: Handle
    columns: Mapping[str, str]
    untyped: Mapping[str, T.DataType] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Handle) -> Result:
        """A table whose columns are the query's; of the result of an earlier query, those that it names."""
        hidden = {one: one for one in hidden_columns(table)}
        return cls(table, {one: one for one in table.columns if one not in hidden}, hidden=hidden)

    @property
    def handle(self) -> Handle:
        """The table, of which a later query knows the columns of this one."""
        return with_hidden(
            self.table, [one for one in self.table.columns if one not in self.columns.values()]
        )

    def rows(self, alias: str, names: list[str]) -> Rows:
        """The rows under an alias; `names` are those of ``AS t(a, b)``, if there are some."""
        if len(names) > len(self.columns):
            raise ArgumentError(
                f"{alias or 'It'} has {len(self.columns)} columns, and {len(names)} names.",
                hint="Give it as many names.",
            )
        shown = [*names, *list(self.columns)[len(names) :]]
        rows = Rows.of(self.table, alias, list(self.columns.values()), shown)
        free = [one for one in self.hidden if rows.find([one]) is None]
        hidden = Rows.of(self.table, alias, [self.hidden[one] for one in free], free).visible
        return replace(rows, visible=(*rows.visible, *(replace(one, hidden=True) for one in hidden)))


@dataclass(frozen=True)
class Context:
    """What a part of a query is made in.

    Attributes
    ----------
    text
        The query.
    tables
        The tables that it can name, each as a function that makes it, by folded names.
    compiled
        Makes a table of a query within it.
    lateral
        Joins a LATERAL subquery with the rows before it.
    subqueries
        Joins the subqueries of expressions with rows; a `Scope` then finds their values.
    reasons
        Those found so far.
    bounds
        How many rows of each partition the query around it wants of a ranking, by the ranking's name.
    names
        The names of the query's columns, if another query says them, as the first one of a union does.
    begun
        Makes the row for which constants are there: see `handles.begun`. None: the query names no table.
    is_around
        Whether a column is one of the query around a subquery that cannot name it.
    parts
        The words for what such a subquery has; empty: it stands in FROM.
    """

    text: str
    tables: Mapping[str, Callable[[], Result]]
    compiled: Callable[[exp.Expr, Context], Result]
    lateral: Callable[[exp.Join, Rows, Context], Rows]
    subqueries: Callable[[Sequence[exp.Expr], Rows, Any, Context], Rows]
    reasons: Reasons
    bounds: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    begun: Callable[[], Table] | None = None
    is_around: Callable[[exp.Column], bool] = lambda _: False
    parts: str = ""

    def refuse(self, node: exp.Expr, clause: str, message: str, instead: str = "") -> PartRefusedError:
        """Return what to raise for a part of the query."""
        return self.reasons.at(beginning(node), clause, message, instead)

    def result(
        self, query: exp.Expr, bounds: Mapping[str, int] | None = None, names: tuple[str, ...] = ()
    ) -> Result:
        """Make a table of a query within this one."""
        return self.compiled(query, replace(self, bounds=bounds or {}, names=names))
