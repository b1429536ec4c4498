"""Which columns of its tables a plan needs."""

from __future__ import annotations

from dataclasses import replace

from tablestream.topology.measures import Measure
from tablestream.topology.needed import needed_columns
from tablestream.topology.nodes import (
    Aggregate,
    AsOf,
    Field,
    Filter,
    ForeignKeyJoin,
    KeyJoin,
    Named,
    Node,
    Select,
)
from tests.plans.tables import STRING, Python, key_join, materialized, source

COLUMNS = "a", "b", "c"


def table(name: str) -> Node:
    return replace(source(name), value=tuple(Field(column, STRING) for column in COLUMNS))


def using(*columns: str) -> Python:
    return Python(str, frozenset(columns))


def selected(parent: Node, **columns: Python) -> Select:
    value = tuple(Field(name, STRING) for name in columns)
    return Select("select", "", parent.key, value, parent, tuple(Named(*one) for one in columns.items()))


def of_sides(join: Node, *outputs: Node) -> tuple[str, ...]:
    """The needed columns of both sides of a join, as text."""
    found = needed_columns(outputs)
    return tuple(
        "".join(name for name, flag in zip(COLUMNS, found[join, side], strict=True) if flag)
        for side in (0, 1)
    )


def passed_on(left: Node, right: Node) -> KeyJoin:
    """A join with the columns of its left side, and none of its right side."""
    columns = tuple(Named(name, using(f"__left.{name}")) for name in COLUMNS)
    return replace(key_join(left, right), select=columns, value=left.value)


def needed(join: Node, *outputs: Node) -> str:
    """What such a join needs of its left side."""
    left, right = of_sides(join, *outputs)
    assert not right
    return left


def test_a_select_needs_what_its_needed_columns_use() -> None:
    one = passed_on(table("one"), table("other"))
    inner = selected(one, x=using("a"), y=using("b", "c"))
    assert needed(one, selected(inner, z=using("x"))) == "a"
    assert needed(one, selected(inner, z=using("y"))) == "bc"
    assert needed(one, selected(inner, z=using("x")), inner) == "abc"
    gone = replace(selected(one, z=using("k0")), delete_when=using("b"))
    assert needed(one, gone) == "b"


def test_a_filter_needs_its_condition_and_what_its_readers_need() -> None:
    one = passed_on(table("one"), table("other"))
    kept = Filter("filter", "", one.key, one.value, one, using("c"), negate=False)
    assert needed(one, selected(kept, z=using("a"))) == "ac"


def test_a_join_needs_of_each_side_what_its_needed_columns_use() -> None:
    left, right = table("left"), table("right")
    columns = (
        Named("x", using("__left.a", "__right.b", "__right.k0", "__right.")),
        Named("y", using("__right.c")),
    )
    value = tuple(Field(one.name, STRING) for one in columns)
    join = replace(key_join(left, right), select=columns, value=value)
    assert of_sides(join, join) == ("a", "bc")
    part = selected(join, z=using("x"))
    assert of_sides(join, part) == ("a", "b")
    assert of_sides(join, part, selected(right, z=using("c"))) == ("a", "b")
    pointing = ForeignKeyJoin(
        "foreign", "", left.key, value, left, right, "left", columns, None, (using("c"),), right.key
    )
    assert of_sides(pointing, pointing) == ("ac", "bc")
    timed = replace(pointing, as_of=AsOf(using("b"), forward=False, text="b"))
    assert of_sides(timed, selected(timed, z=using("y"))) == ("bc", "c")


def test_groups_need_what_they_are_made_of_and_what_keeps_rows_needs_all() -> None:
    one = passed_on(table("one"), table("other"))
    groups = Aggregate(
        "groups", "", one.key, (Field("n", STRING),), one, (using("a"),), (Named("b", using("b")),),
        (Field("b", STRING),), (Measure("max", 0),), None, False,
    )  # fmt: skip
    assert needed(one, groups) == "ab"
    assert needed(one, groups, selected(materialized(one), z=using("a"))) == "abc"


def test_what_is_not_known_needs_all_columns() -> None:
    one = passed_on(table("one"), table("other"))
    assert needed(one, selected(one, z=Python(str))) == "abc"
    assert needed(one, selected(one, z=using("other"))) == "abc"


class Failing(Python):
    """An expression that may fail."""

    may_fail = True


def test_where_a_row_that_fails_leaves_its_table_whatever_may_fail_is_needed() -> None:
    join = passed_on(table("one"), table("other"))
    inner = selected(join, x=using("a"), y=Failing(str, frozenset("b")))
    outer = selected(inner, z=using("x"))
    assert needed(join, outer) == "a"
    found = needed_columns([outer], {inner})
    assert found[join, 0] == (True, True, False)
