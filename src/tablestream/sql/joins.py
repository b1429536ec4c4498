"""Two inputs of FROM become one table: which method of tables a join is, by the keys.

=====================================  =======================================================  ==================
the equalities have                    becomes                                                  key
=====================================  =======================================================  ==================
the whole key of the right side        ``left.join(right, on=...)``; on both keys, a key join   the left key
the whole key of the left side         the same from the right side; LEFT: ``one_to_many``      right; both keys
anything else, or there are none       ``left.join(right, on=..., right_on=...)``               both keys
=====================================  =======================================================  ==================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.handles.joining import KEY
from tablestream.handles.relation import ALL_ROWS
from tablestream.handles.star import Lookup
from tablestream.handles.unions import key_text
from tablestream.spark.row import LEFT, RIGHT, Row, side_column
from tablestream.sql.as_of import as_of_options
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality
from tablestream.sql.handles import never_null, node_of, with_key_names
from tablestream.sql.parse import unwrapped
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope, own_columns
from tablestream.streams import Stream
from tablestream.tables import GlobalTable, Table
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import Materialize, Select, Source

How = Literal["inner", "left", "outer"]
_Pointers: TypeAlias = "dict[str, Equality] | None"


@dataclass(frozen=True)
class Joined:
    """Two inputs and the conditions between them.

    Attributes
    ----------
    context
        The query.
    left, right
        The rows.
    equalities
        The conditions that compare both.
    others
        Further conditions on both sides, which are part of the match.
    guards
        Conditions on the left row: one that fails them has no match.
    """

    context: Context
    left: Rows
    right: Rows
    equalities: tuple[Equality, ...]
    others: tuple[exp.Expr, ...] = ()
    guards: tuple[exp.Expr, ...] = ()

    def swapped(self) -> Joined:
        """The same with the sides exchanged."""
        turned = tuple(Equality(one.node, one.right, one.left) for one in self.equalities)
        return replace(self, left=self.right, right=self.left, equalities=turned, guards=())

    def refused(self, message: str, instead: str) -> Exception:
        """Return what to raise for the join, or for what says which versions it reads."""
        clause = "JOIN" if self.right.as_of is None else self.right.as_of.clause
        return self.context.reasons.at(max(self.left.place, self.right.place), clause, message, instead)

    def is_just(self, pointers: dict[str, Equality]) -> bool:
        """Whether nothing but the equalities of a key is compared."""
        return len(self.equalities) == len(pointers) and not self.others and not self.guards

    def told_apart(self) -> Joined:
        """The same with names of keys that no column of the other side has."""
        right = _with_free_keys(self.right, self.left)
        return replace(self, left=_with_free_keys(self.left, right), right=right)

    def pointers(self) -> dict[str, Equality] | None:
        """The equality of each column of the right key, in its order; None unless there is one for each."""
        scope = Scope(self.right, self.context, "ON")
        found: dict[str, Equality] = {}
        for one in self.equalities:
            name = key_column(one.right, scope)
            if name is not None and name in self.right.table.key_columns:
                found.setdefault(name, replace(one, left=unwrapped(one.left), right=unwrapped(one.right)))
        keys = self.right.table.key_columns
        return {key: found[key] for key in keys} if set(found) == set(keys) else None

    def found_by(self) -> Sequence[Equality]:
        """The equalities by which an inner join finds rows: those with the whole key of a side, or all."""
        for one in (self, self.swapped()):
            pointers = one.pointers()
            looks_up = not isinstance(one.left.table, GlobalTable) and not isinstance(one.right.table, Stream)
            if pointers is not None and looks_up:
                return list(pointers.values())
        return self.equalities

    def on(self, equalities: Iterable[Equality]) -> list[str]:
        """The left sides of equalities, as methods of tables take them; ``true`` if there are none."""
        scope = Scope(self.left, self.context, "ON")
        plain, texts = [], []
        for one in equalities:
            plain.append(scope.plain(one.left))
            texts.append(scope.sql(one.left))
        if not self.guards:
            return plain or ["true"]
        guarded = " AND ".join(f"({scope.sql(one)})" for one in self.guards)
        return [f"CASE WHEN {guarded} THEN {one} END" for one in texts or ["true"]]

    def needed(self, equalities: Iterable[Equality]) -> list[str]:
        """The left columns that equalities need, in their order."""
        nodes = [*(one.left for one in equalities), *self.guards]
        found = (
            self.left.find([part.name for part in one.parts]) for node in nodes for one in own_columns(node)
        )
        return list(dict.fromkeys(one[0].column for one in found if one is not None))

    def both_sql(self, nodes: Sequence[exp.Expr]) -> str:
        """Conditions over the two rows that functions of a join get."""
        visible = [replace(one, column=side_column(LEFT, one.column)) for one in self.left.visible]
        visible += [replace(one, column=side_column(RIGHT, one.column)) for one in self.right.visible]
        scope = Scope(Rows(self.left.table, tuple(visible)), self.context, "ON")
        return " AND ".join(f"({scope.sql(one)})" for one in nodes)


def key_column(node: exp.Expr, scope: Scope) -> str | None:
    """The column that a value finds as a part of a key; one that can be null is not found by ``<=>``."""
    column = scope.column(unwrapped(node))
    if column is None or (unwrapped(node) is not node and not never_null(scope.rows.table, column.column)):
        return None
    return column.column


@dataclass(frozen=True)
class Names:
    """The names of columns in a join's result.

    Attributes
    ----------
    left, right
        By the columns of each side that are values of the result: their names there.
    """

    left: dict[str, str]
    right: dict[str, str]

    @classmethod
    def of(cls, joined: Joined, *, left_keys: bool, avoided: Sequence[str] = ()) -> Names:
        """Name the visible columns; `left_keys`: also those of the left key, as values."""
        fold = joined.left.fold
        keys = joined.left.table.key_columns
        taken = [*keys, *avoided]
        lefts: dict[str, str] = {}
        for one in joined.left.visible:
            if one.column in lefts or (one.column in keys and not left_keys):
                continue
            lefts[one.column] = _free(one, [*taken, *lefts.values()], fold)
        rights: dict[str, str] = {}
        for one in joined.right.visible:
            if one.column not in rights:
                rights[one.column] = _free(one, [*taken, *lefts.values(), *rights.values()], fold)
        return cls(lefts, rights)

    def select(self, mask: str = "") -> Callable[[Row, Row], list[Column]]:
        """The columns of the result; the right ones are null where `mask`, a condition on both rows, is not true."""

        def columns(left: Row, right: Row) -> list[Column]:
            made = [_named(left, old, new) for old, new in self.left.items()]
            if not mask:
                return made + [_named(right, old, new) for old, new in self.right.items()]
            masked = (
                f"CASE WHEN {mask} THEN {quoted(side_column(RIGHT, old))} END AS {quoted(new)}"
                for old, new in self.right.items()
            )
            return made + [F.expr(one) for one in masked]

        return columns

    def without(self, right: Collection[str]) -> Names:
        """The same without right columns that are columns of the result anyway."""
        return replace(self, right={old: new for old, new in self.right.items() if old not in right})


def join(joined: Joined, how: How) -> Rows:
    """Join two inputs: inner, left or full outer."""
    pointers, backward = joined.pointers(), joined.swapped().pointers()
    if isinstance(joined.left.table, Stream) or isinstance(joined.right.table, Stream):
        return _of_records(joined, pointers, backward, how)
    if joined.right.as_of is not None:
        return _versioned(joined, pointers, how)
    if how == "outer":
        return _outer(joined, pointers, backward)
    by_key = _by_key(joined, how, pointers, backward)
    return _many_to_many(joined, how) if by_key is None else by_key


def _of_records(joined: Joined, pointers: _Pointers, backward: _Pointers, how: How) -> Rows:
    """A join of the records of a stream with the rows of a table, which they look up."""
    streams = [one for one in (joined.left, joined.right) if isinstance(one.table, Stream)]
    if len(streams) == 2:
        raise joined.refused(
            "The records of two streams are not joined with each other.",
            "Read one of them as a table: CREATE TABLE with a PRIMARY KEY, ts.table(...), or to_table() in Python.",
        )
    if isinstance(joined.right.table, Stream) and how == "inner":
        return in_order(_of_records(joined.swapped(), backward, pointers, how), joined.right)
    if isinstance(joined.right.table, Stream) or how == "outer":
        raise joined.refused(
            "Rows of a table do not wait for the records of a stream.",
            "Write the stream on the left of LEFT JOIN, or read it as a table.",
        )
    return _versioned(joined, pointers, how)


def _versioned(joined: Joined, pointers: _Pointers, how: How) -> Rows:
    """A join with the right row that is found by its whole key, in the version that the query says."""
    if is_one_row(joined.right) and not joined.equalities:
        pointers = {}
    if pointers is None or how == "outer" or isinstance(joined.left.table, GlobalTable):
        keys = ", ".join(joined.right.table.key_columns)
        raise joined.refused(
            f"Rows of {joined.right.table.name} are only found by their whole key here: {keys}.",
            "Compare each column of it for equality in an inner or LEFT JOIN.",
        )
    return _to_key(joined, pointers, how)


def _by_key(joined: Joined, how: How, pointers: _Pointers, backward: _Pointers) -> Rows | None:
    """An inner or left join by the whole key of a side, or with a single row."""
    if pointers is not None and not isinstance(joined.left.table, GlobalTable):
        return _to_key(joined, pointers, how)
    if backward is not None and how == "inner" and not isinstance(joined.right.table, GlobalTable):
        return in_order(_to_key(joined.swapped(), backward, how), joined.right)
    if backward is not None and how == "left" and joined.is_just(backward):
        return _one_to_many(joined, backward)
    if is_one_row(joined.right) and not joined.equalities:
        return _to_key(joined, {}, how)
    if is_one_row(joined.left) and not joined.equalities and how == "inner":
        return in_order(_to_key(joined.swapped(), {}, how), joined.right)
    return None


def is_one_row(rows: Rows) -> bool:
    """Whether a table has one row at most: it is aggregated without groups."""
    return rows.table.key_columns == [ALL_ROWS]


def _to_key(joined: Joined, pointers: dict[str, Equality], how: How) -> Rows:
    """A join of left rows with the right row that they point at; the key stays."""
    names = Names.of(joined, left_keys=False)
    same = _same_columns(joined, pointers) if how == "inner" else {}
    used = {id(one.node) for one in pointers.values()}
    others = [*joined.others, *(one.node for one in joined.equalities if id(one.node) not in used)]
    mask = joined.both_sql(others) if how == "left" and others else ""
    select = names.without(same).select(mask)
    on = joined.on(pointers.values())
    options = as_of_options(joined.left, joined.right, joined.context)
    star = None
    if options or isinstance(joined.left.table, Stream):
        table: Any = joined.left.table.join(joined.right.table, on=on, how=how, select=select, **options)  # type: ignore[arg-type]
    else:
        found = Lookup(joined.right.table, on, how, select)  # type: ignore[arg-type]
        table, star = _look_up(joined.left, found, joined.needed(pointers.values()))
    renamed = {**names.right, **same}
    return Rows(table, (*joined.left.renamed(names.left), *joined.right.renamed(renamed)), star=star)


@dataclass(frozen=True)
class Star:
    """Lookups for the rows of a table.

    Attributes
    ----------
    center
        These rows.
    lookups
        What is looked up for them.
    made
        The table that this made.
    """

    center: Rows
    lookups: tuple[Lookup, ...]
    made: Table

    @property
    def columns(self) -> set[str]:
        """The columns by which more can be looked up."""
        return {one.column for one in self.center.visible}


def _look_up(rows: Rows, one: Lookup, needed: Sequence[str]) -> tuple[Table, Star | None]:
    """Look up rows of one more table by columns that are `needed` for it.

    Lookups of several tables for the same rows are one star join: three rounds in all, in place of two for each. A star
    looks up the rows of all its tables at once. So none of them may leave rows out, or the others are looked up in
    vain: each is a `LEFT JOIN`, or an inner one with a table as it was read.

    Returns
    -------
    tuple of Table and (Star or None)
        The result, and the star that another lookup can join; None if there is none.
    """
    table: Table = rows.table  # type: ignore[assignment]  # streams look up elsewhere
    may_join = bool(needed) and list(needed) != table.key_columns and _keeps_all(one)
    may_join &= all(history_of(node_of(side)) is None for side in (table, one.table))
    star = rows.star
    if star is None or star.made is not table or not set(needed) <= star.columns:
        star = Star(rows, (), table)
    if not star.lookups or not may_join:
        made = table.join(one.table, on=one.on, how=one.how, select=one.select)
        return made, Star(rows, (one,), made) if may_join else None
    made = star.center.table.join_many(*star.lookups, one)
    return made, Star(star.center, (*star.lookups, one), made)


def _keeps_all(one: Lookup) -> bool:
    """Whether each row finds one, as far as can be known."""
    every = ancestors(node_of(one.table))
    return one.how == "left" or all(isinstance(step, Select | Source | Materialize) for step in every)


def _same_columns(joined: Joined, pointers: dict[str, Equality]) -> dict[str, str]:
    """The right key columns that are equal to a left column in each row of an inner join."""
    left, right = joined.left.table.schema, joined.right.table.schema
    scope = Scope(joined.left, joined.context, "ON")
    found = {}
    for key, one in pointers.items():
        column = scope.column(one.left)
        kind = right[key].dataType
        if column is not None and left[column.column].dataType == kind and not _has_floats(kind):
            found[key] = column.column
    return found


def _has_floats(kind: T.DataType) -> bool:
    """Whether equal values of a type can differ, as 0.0 and -0.0 do."""
    return not isinstance(kind, T.IntegralType | T.DateType | T.TimestampType | T.DecimalType | T.StringType)


def _one_to_many(joined: Joined, backward: dict[str, Equality]) -> Rows:
    """A join of the rows of one table with those that point at them: LEFT JOIN keeps the one."""
    joined = replace(joined, right=_with_sure_key(joined.right)).told_apart()
    names = Names.of(joined, left_keys=False, avoided=_key_names(joined))
    select = names.without(joined.right.table.key_columns).select()
    options: dict[str, Any] = {"on": joined.swapped().on(backward.values()), "how": "left", "select": select}
    table = joined.left.table.one_to_many(joined.right.table, **options)  # type: ignore[union-attr, arg-type]
    return _keyed_by_both(table, joined, names)


def _outer(joined: Joined, pointers: _Pointers, backward: _Pointers) -> Rows:
    """FULL JOIN."""
    if pointers is None and backward is not None and joined.is_just(backward):
        return in_order(_outer(joined.swapped(), backward, None), joined.right)
    if pointers is None or not joined.is_just(pointers):
        return _many_to_many(joined, "outer")
    sides = (joined.left.table, joined.right.table)
    # A key join takes two nulls for one key.
    on_keys = all(never_null(side, key) for side in sides for key in side.key_columns)
    on_keys = on_keys and joined.on(pointers.values()) == joined.left.table.key_columns
    if not on_keys:
        left = joined.left if _has_sure_key(joined.right) else _with_sure_key(joined.left)
        joined = replace(joined, left=left).told_apart()
    names = Names.of(joined, left_keys=on_keys, avoided=_key_names(joined))
    on = KEY if on_keys else joined.on(pointers.values())
    options: dict[str, Any] = {"on": on, "how": "outer", "select": names.select()}
    table = joined.left.table.join(joined.right.table, **options)  # type: ignore[arg-type]
    renamed = dict(names.left)
    if not on_keys:  # the first parts of the key are the left key, null where there is no left row
        renamed |= dict(zip(joined.left.table.key_columns, table.key_columns, strict=False))
    return Rows(table, (*joined.left.renamed(renamed), *joined.right.renamed(names.right)))


def _many_to_many(joined: Joined, how: How) -> Rows:
    """A join on other equalities, or a product, keyed by both keys."""
    if not isinstance(joined.left.table, Table) or isinstance(joined.left.table, GlobalTable):
        raise joined.refused(
            "A global table can only be joined by its whole key.",
            "Compare each column of its key for equality.",
        )
    if how != "inner":
        joined = replace(joined, right=_with_sure_key(joined.right))
    if how == "outer":
        joined = replace(joined, left=_with_sure_key(joined.left))
    joined = joined.told_apart()
    names = Names.of(joined, left_keys=False, avoided=_key_names(joined))
    select = names.without(joined.right.table.key_columns).select()
    options: dict[str, Any] = {
        "on": joined.on(joined.equalities),
        "right_on": joined.swapped().on(joined.swapped().equalities),
        "how": how,
        "select": select,
    }
    if joined.others:
        matches = joined.both_sql(joined.others)
        options["where"] = lambda *_: F.expr(matches)
    table: Any = joined.left.table.join(joined.right.table, **options)  # type: ignore[arg-type]
    return _keyed_by_both(table, joined, names)


def _keyed_by_both(table: Table, joined: Joined, names: Names) -> Rows:
    """The rows of a join that is keyed by the left key, then by the right one."""
    lefts, rights = joined.left.table.key_columns, joined.right.table.key_columns
    keys = table.key_columns
    left = {**names.left, **dict(zip(lefts, keys, strict=False))}
    right = {**names.right, **dict(zip(rights, keys[len(lefts) :], strict=True))}
    return Rows(table, (*joined.left.renamed(left), *joined.right.renamed(right)))


def _key_names(joined: Joined) -> list[str]:
    """The names of the columns of a key of both keys."""
    return [*joined.left.table.key_columns, *joined.right.table.key_columns]


def _has_sure_key(rows: Rows) -> bool:
    """Whether no key of the rows is all nulls, as the key of a group can be."""
    return is_one_row(rows) or any(never_null(rows.table, one) for one in rows.table.key_columns)


def _with_sure_key(rows: Rows) -> Rows:
    """The rows under a text of their key, if that can be all nulls: where a side has no row, its key is nulls, too."""
    if _has_sure_key(rows) or not isinstance(rows.table, Table):
        return rows
    schema = rows.table.schema
    text = key_text((one, schema[one].dataType) for one in rows.table.key_columns)
    name = unique("row_key", rows.table.columns, rows.fold)
    return replace(rows, table=rows.table.select_key(F.expr(f"{text} AS {name}")))


def _with_free_keys(rows: Rows, other: Rows) -> Rows:
    """The rows with names for key columns that no column of others has: both keys are in one table then."""
    fold, keys = rows.fold, rows.table.key_columns
    sources = {one.column: one.source for one in rows.visible}
    there = {fold(one) for one in other.table.columns}
    made: list[str] = []
    for key in keys:
        taken = [*other.table.columns, *rows.table.columns, *made]
        wanted = f"{sources.get(key) or rows.table.name}_{key}"
        made.append(unique(wanted, taken, fold) if fold(key) in there else key)
    table = with_key_names(rows.table, made)
    return replace(rows, table=table, visible=rows.renamed(dict(zip(keys, made, strict=True))))


def in_order(rows: Rows, first: Rows) -> Rows:
    """The rows of a join whose sides were exchanged: the columns of its first side, `first`, go behind the others."""
    count = len(first.visible)
    return replace(rows, visible=(*rows.visible[count:], *rows.visible[:count]))


def _free(one: Visible, taken: Sequence[str], fold: Callable[[str], str]) -> str:
    """A name for a column in a result: its own, or with its table's name before it."""
    folded = {fold(name) for name in taken}
    if fold(one.column) not in folded:
        return one.column
    return unique(f"{one.source}_{one.name}", taken, fold)


def _named(row: Row, old: str, new: str) -> Column:
    return row[old] if old == new else row[old].alias(new)
