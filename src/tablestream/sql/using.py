"""USING and NATURAL JOIN: columns that are equal, and that the result shows once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality, in_one_type
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope
from tablestream.tables import Table


def equalities_of_using(
    using: Sequence[exp.Identifier], left: Rows, right: Rows, context: Context
) -> list[Equality]:
    """The equalities that USING stands for."""
    found = []
    for name in using:
        scopes = Scope(left, context, "USING"), Scope(right, context, "USING")
        mine, theirs = (_qualified(name, one) for one in scopes)
        node = exp.EQ(this=mine, expression=theirs)
        found.append(Equality(node, *in_one_type(mine, theirs, *scopes)))
    return found


def _qualified(name: exp.Identifier, scope: Scope) -> exp.Column:
    """A column of one side, with the name of its input."""
    found = scope.column(exp.Column(this=name.copy()))
    if found is None:
        raise scope.context.refuse(
            name, "USING", f"There is no column {name.name} on one side.", "Write ON with both columns."
        )
    return exp.Column(this=name.copy(), table=exp.Identifier(this=found.source, quoted=True))


def merged(
    visible: Sequence[Visible],
    using: Sequence[exp.Identifier],
    how: str,
    left: int,
    fold: Callable[[str], str],
) -> tuple[Visible, ...]:
    """The columns of a join, where those of USING are found only on the side whose rows stay; FULL: on none.

    Parameters
    ----------
    left
        How many columns are of the left side: the first ones.
    """
    names, count = {fold(one.name) for one in using}, len(visible)
    hidden = {"full": range(count), "right": range(left)}.get(how, range(left, count))
    return tuple(
        replace(one, merged=True) if number in hidden and fold(one.name) in names else one
        for number, one in enumerate(visible)
    )


def coalesced(rows: Rows, using: Sequence[exp.Identifier], left: int) -> Rows:
    """Show the columns of USING of a FULL JOIN once: whichever side has a row."""
    if not using:
        return rows
    made: dict[str, str] = {}
    shown: list[Visible] = []
    for one in using:
        name = rows.fold(one.name)
        pair = [quoted(it.column) for it in rows.visible if rows.fold(it.name) == name and not it.merged]
        column = unique(f"{one.name}_merged", [*rows.table.columns, *made], rows.fold)
        made[column] = f"coalesce({', '.join(pair)})"
        shown.append(Visible("", one.name, column))
    table = rows.table.with_columns(**made)
    assert isinstance(table, Table)  # noqa: S101 - outer joins are of tables
    return Rows(table, (*shown, *merged(rows.visible, using, "full", left, rows.fold)))
