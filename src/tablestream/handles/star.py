"""Star joins: one table joined to several others, each by its own foreign key. Built from the other joins.

Each right table is looked up by the foreign key alone. The result is a table with the center's key and the right
row as its value. These tables and the center are then joined on their common key, as one operator, however many
there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tablestream.arguments.place import Place
from tablestream.errors import ArgumentError
from tablestream.handles.joining import Joining, On, SelectFunction, Suffixes
from tablestream.handles.unions import same_column
from tablestream.topology.clauses import Written, clause_now, made_for
from tablestream.topology.graph import shown_name
from tablestream.topology.nodes import (
    Expression,
    Field,
    Fields,
    ForeignKeyJoin,
    How,
    KeyJoin,
    Named,
    Node,
    Select,
)

if TYPE_CHECKING:
    from tablestream.tables import Table


@dataclass(frozen=True)
class Lookup:
    """One table of a star join; made by `lookup`."""

    table: Table
    on: On
    how: Literal["inner", "left"] = "inner"
    select: SelectFunction | None = None
    suffixes: Suffixes = None
    _clause: Written | None = field(default_factory=clause_now, init=False, repr=False)


def lookup(
    table: Table,
    *,
    on: On,
    how: Literal["inner", "left"] = "inner",
    select: SelectFunction | None = None,
    suffixes: Suffixes = None,
) -> Lookup:
    """Describe one table of a star join, for `Table.join_many`.

    Parameters
    ----------
    table
        A table or a `global_table`.
    on
        The foreign key, over the row of the table that joins, as in `Table.join`.
    how
        ``inner``, or ``left``: unmatched rows are kept.
    select
        A function of two rows: the result of the lookups before this one, and the row of `table`. It returns the
        columns of the result. Default: all columns of both.
    suffixes
        Suffixes for columns that both rows have, as in `Table.join`: with ``("", "_plane")`` those of `table` get one.

    Returns
    -------
    Lookup

    Examples
    --------
    ``flights.join_many(ts.lookup(planes, on="tailnum", how="left"), ts.lookup(airlines, on="carrier"))``
    """
    return Lookup(table, on, how, select, suffixes)


def check_lookups(given: Sequence[object], at: Place) -> None:
    """Raise unless there is at least one lookup and nothing else."""
    others = [one for one in given if not isinstance(one, Lookup)]
    if others or not given:
        raise at.error(
            ArgumentError,
            f"join_many() was given {f'a {type(others[0]).__name__}' if others else 'no table'}; it takes lookups.",
            'Write join_many(ts.lookup(tickers, on="ticker", how="left"), ts.lookup(clients, on="client")).',
        )


def star_join(
    center: Node,
    joining: Joining,
    pointing: tuple[Fields, tuple[Expression, ...]],
    how: How,
    lookup: Lookup,
    *,
    copied: bool,
) -> KeyJoin:
    """Add one table to a star join.

    Parameters
    ----------
    center
        The table with the foreign keys.
    joining
        The join so far, and the right table.
    pointing
        The right table's key in the compared types, and the center's foreign key.
    how
        The kind of the join.
    lookup
        The columns of the result.
    copied
        Whether the right table is a global one.
    """
    key = joining.left.key
    value = joining.value(lookup.select, lookup.suffixes, joining.key_columns(key, same=False))
    with made_for(lookup._clause):  # noqa: SLF001 - a lookup is of this module
        found = replace(joining, right=_looked_up(center, joining, pointing, copied=copied))
        return found.made(KeyJoin, key, how, value, own_times=True)


def _looked_up(
    center: Node, joining: Joining, pointing: tuple[Fields, tuple[Expression, ...]], *, copied: bool
) -> ForeignKeyJoin:
    """The right rows, keyed by the center. A null foreign key has no match."""
    right, (foreign, expressions) = joining.right, pointing
    name = f"{joining.at.operator}[{shown_name(right)}]"
    # The right key is a part of the value here, and may bear the name of the left one.
    key = tuple(Field(f"__center_{one.name}", one.type) for one in center.key)
    pointers = tuple(Field(f"__on{number}", one.type) for number, one in enumerate(foreign))
    pointer = Select(
        name=f"{name}/on",
        where=joining.at.where,
        key=key,
        value=pointers,
        parent=center,
        columns=tuple(
            Named(one.name, expression) for one, expression in zip(pointers, expressions, strict=True)
        ),
    )
    fields = (*right.key, *right.value)
    inner = tuple(Field(f"__right_{one.name}", one.type) for one in right.key)
    rows = Select(
        name=f"{name}/rows",
        where=joining.at.where,
        key=right.key,
        value=(*inner, *right.value),
        parent=right,
        columns=tuple(
            Named(shown.name, same_column(one.name))
            for shown, one in zip((*inner, *right.value), fields, strict=True)
        ),
    )
    return ForeignKeyJoin(
        name=name,
        where=joining.at.where,
        key=key,
        value=fields,
        left=pointer,
        right=rows,
        how="left",
        select=(),
        delete_when=None,
        on=tuple(same_column(one.name) for one in pointers),
        foreign=foreign,
        copied=copied,
        right_only=True,
    )
