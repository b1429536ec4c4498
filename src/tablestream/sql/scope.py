"""Expressions of a clause as Spark's SQL over the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from pyspark.errors import PySparkException
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.spark.analysis import unlogged
from tablestream.sql.context import Context
from tablestream.sql.handles import empty_rows
from tablestream.sql.parse import UnknownPlaceError, beginning, cast, is_subquery, span, spliced, with_type
from tablestream.sql.rows import AmbiguousError, Rows, Visible, fields_of, text_of

#: The value of what was refused, so that what uses it gives no further reasons.
REFUSED = "CAST(NULL AS VOID)"
#: Functions that are no functions of a row.
_TIME_WINDOWS = {"window", "session_window", "window_time", "tumble", "hop", "session", "cumulate"}
_TIME_WINDOWS |= {f"{kind}_{end}" for kind in ("tumble", "hop", "session") for end in ("start", "end")}
#: What stays as it is written also where a group is equal to it: ``x IS NULL`` needs the word.
_NEVER_MADE = (exp.Literal, exp.Identifier, exp.Null, exp.Boolean)


@dataclass
class Scope:
    """The columns that an expression can name, and parts of expressions that are columns already.

    Attributes
    ----------
    rows
        The rows.
    context, clause
        The query, and the clause for errors.
    made
        What is computed already: groups, aggregates, subqueries, by what `same` says of them.
    aliases
        Names of other expressions of the ``SELECT``, with their SQL.
    hiding
        Those of them that hide a column of their name.
    grouped
        Whether only groups and aggregates are there.
    """

    rows: Rows
    context: Context
    clause: str
    made: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    hiding: frozenset[str] = frozenset()
    grouped: bool = False

    def sql(self, node: exp.Expr) -> str:
        """Return an expression as Spark's SQL."""
        return self._spliced(node, self._replaced)

    def _spliced(self, node: exp.Expr, replaced: Callable[[exp.Expr], str | None]) -> str:
        try:
            return spliced(node, self.context.text, replaced)
        except UnknownPlaceError as error:
            raise self.context.refuse(
                node,
                self.clause,
                "It is not clear where this expression ends.",
                "Put parentheses around its parts.",
            ) from error

    def sqls(self, nodes: Iterable[exp.Expr]) -> list[str]:
        """Return several."""
        return [self.sql(one) for one in nodes]

    def column(self, node: exp.Expr) -> Visible | None:
        """The column that an expression is, if it is nothing else."""
        try:
            return self.rows.of_column(node)
        except AmbiguousError as error:
            raise self._ambiguous(node, error) from error

    def plain(self, node: exp.Expr) -> str:
        """The name of the column that an expression is, or its SQL: what methods of tables take."""
        return self.name(node) or self.sql(with_type(node))

    def name(self, node: exp.Expr) -> str | None:
        """The name of the table's column that an expression is, if it is nothing else."""
        made = self.made.get(self.same(node))
        if made is not None:
            name = made[1:-1].replace("``", "`")
            return name if quoted(name) == made else None
        found = None if self.grouped else self.column(node)
        return None if found is None else found.column

    def same(self, node: exp.Expr) -> str:
        """A text that equal expressions have. Names within a subquery are its own."""

        def resolved(one: exp.Expr) -> exp.Expr:
            if isinstance(one, exp.Query):
                return exp.Var(this=one.sql(dialect="spark", comments=False))
            if isinstance(one, exp.Column) and not one.is_star:
                names = [part.name for part in one.parts]
                try:
                    found = self.rows.find(names)
                except AmbiguousError:
                    found = None
                if found is not None:
                    return exp.Var(this=text_of(found, names))
            return one

        return str(node.unnest().transform(resolved).sql(dialect="spark", comments=False))

    def _replaced(self, node: exp.Expr) -> str | None:
        if self.made and not isinstance(node, _NEVER_MADE):
            made = self.made.get(self.same(node))
            if made is not None:
                return made
            inside = self.made.get(self.same(node.this)) if isinstance(node, exp.Not) else None
            if inside is not None:  # `a NOT IN (...)` is one text
                return f"(NOT {inside})"
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.In | exp.Not) and (rows := _constants(node)):
            return f"({'NOT ' if isinstance(node, exp.Not) else ''}({self._is_one_of(node, rows)}))"
        if isinstance(node, exp.Is | exp.Not) and (word := _null_word(node, self.context.text)):
            given = node.this if isinstance(node, exp.Not) else node
            return f"({self.sql(given.this)} {word})"
        if is_subquery(node):
            raise self.context.refuse(
                node, self.clause, "A subquery cannot stand here.", "Join it in FROM, or name it with WITH."
            )
        if isinstance(node, exp.Anonymous) and node.name.lower() in _TIME_WINDOWS:
            raise self.context.refuse(
                node,
                self.clause,
                f"{node.name} cannot stand here.",
                "Group by window(at, '5 minutes'), or name it in SELECT; TUMBLE and HOP stand in FROM.",
            )
        if isinstance(node, exp.Window):
            raise self.context.refuse(
                node, self.clause, "A window function cannot stand here.", "Compute it in a subquery in FROM."
            )
        return None

    def _is_one_of(self, node: exp.Expr, rows: Sequence[exp.Expr]) -> str:
        """Whether values are those of one of some rows. Null equals nothing here, as in a subquery of ``IN``."""
        given = (node.this if isinstance(node, exp.Not) else node).this
        values = self.sqls(given.expressions) if isinstance(given, exp.Tuple) else [self.sql(given)]
        found = [self.sqls(row.expressions) for row in rows]
        for row in found:
            if len(row) != len(values):
                said = f"IN compares {len(values)} with {len(row)} columns."
                raise self.context.refuse(node, self.clause, said)
        if len(values) == 1:
            return f"{values[0]} IN ({', '.join(f'({one})' for (one,) in found)})"
        pairs = (zip(values, row, strict=True) for row in found)
        return " OR ".join(" AND ".join(f"({value}) = ({one})" for value, one in row) for row in pairs)

    def _column(self, node: exp.Column) -> str:
        if node.is_star:
            raise self.context.refuse(node, self.clause, "A star cannot stand here.", "Name the columns.")
        names = [one.name for one in node.parts]
        try:
            found = self.rows.find(names)
        except AmbiguousError as error:
            raise self._ambiguous(node, error) from error
        alias = self.aliases.get(self.rows.fold(names[0])) if len(names) == 1 else None
        is_hidden = (self.grouped and self.clause == "HAVING") or self.rows.fold(names[0]) in self.hiding
        if alias is not None and (found is None or is_hidden):
            return f"({alias})"
        if found is None and self.context.is_around(node):
            what = f"with {self.context.parts}" if self.context.parts else "in FROM"
            said = f"A subquery {what} cannot name {'.'.join(names)} of the query around it."
            instead = (
                "Join a subquery without it: FROM (SELECT a, count(*) AS n FROM t GROUP BY a) g WHERE g.a = x"
            )
            raise self.context.refuse(node, self.clause, said, instead)
        if found is None:
            raise self.context.refuse(
                node, self.clause, f"There is no column {'.'.join(names)}.", self._columns_hint()
            )
        if self.grouped:
            group = self.made.get(quoted(found[0].column))
            if group is not None:
                return group + fields_of(found[1], names)
            raise self.context.refuse(
                node,
                self.clause,
                f"{'.'.join(names)} is neither grouped nor aggregated.",
                "Add it to GROUP BY, or aggregate it, as in max() or first().",
            )
        return text_of(found, names)

    def _columns_hint(self) -> str:
        """Say which columns there are, or of which tables."""
        sources = dict.fromkeys(one.source for one in self.rows.shown)
        if len(sources) > 1:
            return f"The tables here are: {', '.join(sources)}."
        return f"Columns are: {', '.join(self.rows.table.columns)}."

    def _ambiguous(self, node: exp.Expr, error: AmbiguousError) -> Exception:
        names = getattr(node, "parts", [node])
        return self.context.refuse(
            node,
            self.clause,
            f"{'.'.join(one.name for one in names)} is ambiguous: {error}.",
            "Write the table's name before it.",
        )

    def can_tell(self, nodes: Sequence[exp.Expr]) -> bool:
        """Whether all columns of expressions are found here."""
        return all(self.tells(one) for node in nodes for one in own_columns(node))

    def tells(self, column: exp.Column) -> bool:
        """Whether a column is found here."""
        try:
            return self.rows.find([one.name for one in column.parts]) is not None
        except AmbiguousError:
            return True

    def tells_around(self, column: exp.Column) -> bool:
        """Whether a column is found here, or in a query around this one."""
        return self.tells(column) or self.context.is_around(column)

    def shown(self, node: exp.Expr) -> str:
        """The name that Spark gives to an expression without an alias."""
        visible = {one.name: one.column for one in self.rows.visible}
        frame = empty_rows(self.rows.table)
        renamed = frame.selectExpr(
            *(f"{quoted(column)} AS {quoted(name)}" for name, column in visible.items())
        )

        def bare(one: exp.Expr) -> str | None:
            return quoted(one.name) if isinstance(one, exp.Column) and not one.is_star else None

        text = self._spliced(node, bare)
        try:
            with unlogged():
                return str(renamed.selectExpr(text).columns[0])
        except PySparkException:
            return text


def _constants(node: exp.Expr) -> list[exp.Expr]:
    """The rows of ``[NOT] IN (VALUES ...)``; none of anything else."""
    given = node.this if isinstance(node, exp.Not) else node
    values = given.expressions[0] if isinstance(given, exp.In) and given.expressions else None
    return list(values.expressions) if isinstance(values, exp.Values) else []


def _null_word(node: exp.Expr, text: str) -> str:
    """What ``ISNULL`` and ``NOTNULL`` behind a value say, which Spark takes for an alias; empty: it is neither."""
    said = text[: (span(node) or (0, 0))[1]].upper()
    if isinstance(node, exp.Is):
        return "IS NULL" if said.endswith("ISNULL") else ""
    return "IS NOT NULL" if isinstance(node.this, exp.Is) and said.endswith("NOTNULL") else ""


def filtered(rows: Rows, node: exp.Expr, clause: str, context: Context) -> Rows:
    """Keep the rows for which a condition holds."""
    scope = Scope(rows, context, clause)
    table = rows.table
    with context.reasons.part(beginning(node), clause):
        table = table.filter(scope.plain(node))
    return replace(rows, table=table)


def own_columns(node: exp.Expr) -> Iterable[exp.Column]:
    """The columns that an expression names, also those inside its subqueries."""
    return (one for one in node.find_all(exp.Column) if not one.is_star)


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that ``AND`` joins, and those that every branch of an ``OR`` has.

    Two rows are equal where each pair of columns is: null equals null there, as in Spark's structs.
    """
    if node is None:
        return []
    node = node.unnest()
    if isinstance(node, exp.Null):
        return [cast(node, "BOOLEAN")]
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    if isinstance(node, exp.EQ) and isinstance(node.left, exp.Tuple) and isinstance(node.right, exp.Tuple):
        pairs = list(zip_longest(node.left.expressions, node.right.expressions))
        if all(map(all, pairs)):
            return [exp.NullSafeEQ(this=one.copy(), expression=other.copy()) for one, other in pairs]
    return [node, *_in_every_branch(node)] if isinstance(node, exp.Or) else [node]


def _in_every_branch(node: exp.Or) -> list[exp.Expr]:
    """The conditions that each branch has: they hold whichever branch does."""
    branches = [conjuncts(one) for one in _branches(node)]
    return [one for one in branches[0] if all(one in branch for branch in branches[1:])]


def _branches(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    return [*_branches(node.left), *_branches(node.right)] if isinstance(node, exp.Or) else [node]
