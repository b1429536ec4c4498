"""Equalities between two sides: of a join, or of a subquery and the query around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from tablestream.handles.values import empty
from tablestream.spark.analysis import unlogged
from tablestream.spark.columns import sql_type
from tablestream.spark.compared import common_type
from tablestream.sql.context import Context
from tablestream.sql.handles import session_of, type_of
from tablestream.sql.parse import cast, unwrapped, wrapped
from tablestream.sql.rows import Rows
from tablestream.sql.scope import Scope, own_columns


@dataclass(frozen=True)
class Equality:
    """A condition that compares both sides of a join.

    Attributes
    ----------
    node
        The condition.
    left, right
        Its side over the left rows, and that over the right ones.
    """

    node: exp.Expr
    left: exp.Expr
    right: exp.Expr


def compared(node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The two values that a condition says are equal, each `wrapped` if null equals null; None: it says more."""
    node = node.unnest()
    if isinstance(node, exp.EQ):
        return node.left, node.right
    if isinstance(node, exp.Not) and isinstance(node.this.unnest(), exp.NullSafeNEQ):
        node = node.this.unnest()
    elif isinstance(node, exp.Or):
        sides = [one.unnest() for one in (node.left, node.right)]
        node = next((one for one in sides if isinstance(one, exp.EQ)), node)
        if not any(_are_null(one, node) for one in sides):
            return None
    elif not isinstance(node, exp.NullSafeEQ | exp.EqualNull):
        return None
    return wrapped(node.this), wrapped(node.expression)


def _are_null(node: exp.Expr, equality: exp.Expr) -> bool:
    """Whether a condition is that both sides of an equality are null."""
    if not isinstance(node, exp.And):
        return False
    parts = [one.unnest() for one in (node.left, node.right)]
    if not all(isinstance(one, exp.Is) and isinstance(one.expression, exp.Null) for one in parts):
        return False
    return {one.this.unnest() for one in parts} == {equality.this.unnest(), equality.expression.unnest()}


def equalities(
    nodes: Sequence[exp.Expr], left: Rows, right: Rows, context: Context
) -> tuple[list[Equality], list[exp.Expr]]:
    """Divide conditions into those that compare both sides for equality, and others."""
    lefts, rights = Scope(left, context, "ON"), Scope(right, context, "ON")
    found, others = list[Equality](), list[exp.Expr]()
    for one in nodes:
        a, b = compared(one) or (exp.Null(), exp.Null())
        pair = next(
            (
                (mine, theirs)
                for mine, theirs in ((a, b), (b, a))
                if any(own_columns(mine))
                and any(own_columns(theirs))
                and lefts.can_tell([mine])
                and rights.can_tell([theirs])
            ),
            None,
        )
        if pair is None:
            others.append(one)
        else:
            found.append(Equality(one, *in_one_type(*pair, lefts, rights)))
    return found, others


def in_one_type(one: exp.Expr, other: exp.Expr, left: Scope, right: Scope) -> tuple[exp.Expr, exp.Expr]:
    """Cast values that tables do not compare as they are to the type in which Spark compares them.

    A cast that can make two values one is no column of a key any more.
    """
    if unwrapped(one) is not one:
        pair = in_one_type(unwrapped(one), unwrapped(other), left, right)
        return wrapped(pair[0]), wrapped(pair[1])
    kinds = types_of(one, other, left, right)
    if not kinds or common_type(*kinds) is not None:
        return one, other
    both = [T.StructField(name, kind) for name, kind in zip("ab", kinds, strict=True)]
    frame = empty(session_of(left.rows.table), T.StructType(both))
    try:
        with unlogged():
            kind = frame.select(F.coalesce("a", "b")).schema[0].dataType
    except PySparkException:
        kind = T.StringType()
    if isinstance(kind, T.StringType) and T.NullType() not in kinds:
        # Without ANSI, Spark says so of a text and a number, and compares them as numbers.
        said = " cannot be compared with one of type ".join(kind.simpleString() for kind in kinds)
        raise left.context.refuse(one, left.clause, f"A value of type {said}.", "Cast one.")
    made = (
        node if common_type(own, kind) == kind else cast(node, sql_type(kind))
        for node, own in zip((one, other), kinds, strict=True)
    )
    return next(made), next(made)


def types_of(one: exp.Expr, other: exp.Expr, left: Scope, right: Scope) -> tuple[T.DataType, ...]:
    """The types of two values; none if something is wrong with one, which is said where it is used."""
    try:
        with unlogged():
            return _type(one, left), _type(other, right)
    except PySparkException:
        return ()


def _type(node: exp.Expr, scope: Scope) -> T.DataType:
    """The type of a value."""
    column = scope.name(node)
    if column is not None:
        return scope.rows.table.schema[column].dataType
    return type_of(scope.rows.table, scope.sql(node))
