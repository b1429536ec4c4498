"""Plans by name: every operator, and the ways in which they are put together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

from tablestream.topology.nodes import How, Node
from tests.plans.tables import (
    DELETING,
    REDUCED,
    SORTED,
    ForeignKey,
    Key,
    Value,
    as_of_join,
    counted,
    filtered,
    first_of_key,
    foreign_key_join,
    grouped,
    key_join,
    mapped,
    materialized,
    one_to_many,
    pair,
    points,
    source,
    suppressed,
    topped,
)

Plan: TypeAlias = "Callable[[], tuple[Node, ...]]"
"""Builds the nodes that are asked for."""

HOWS: tuple[How, ...] = ("inner", "left", "right", "outer")
KEPT: tuple[How, ...] = ("inner", "left")

#: One operator; in default mode the order of its outputs is the reference's, across keys, too.
SINGLE: dict[str, Plan] = {}
#: Several operators, or one that reads a table twice.
COMPOSED: dict[str, Plan] = {}


def has_a(value: str) -> bool:
    """Keep about half of the rows."""
    return "a" in value


def without_b(value: str) -> Value:
    """Map a value; about half of the rows go."""
    return None if value.startswith(("b", "(b")) else f"{value}!"


def marked(value: str) -> str:
    """Map a value; no row goes."""
    return f"{value}?"


def never_b_a(left: Value, right: Value) -> Value:
    """Join two values; some pairs give no row."""
    return None if (left or "").startswith("b") and (right or "a").startswith("a") else pair(left, right)


def both_pointers(value: str, key: Key) -> Key | None:
    """Point at a key of two parts."""
    first, second = points(0)(value, key), points(1)(value, key)
    return None if first is None or second is None else (str(first), str(second))


def own_key(value: str, key: Key) -> str | None:
    """Point at the row with the same key, by an expression of the key."""
    return None if value.startswith("b") else key[0]


def by_letter(value: str, key: Key) -> str:
    """Group by the first letter."""
    del key
    return value[0]


def by_key(value: str, key: Key) -> str | None:
    """Group by the last part of the key."""
    del value
    return key[-1]


def by_both(value: str, key: Key) -> Key:
    """Group by two parts, one of the value and one of the key."""
    return points(0)(value, key), key[-1]  # type: ignore[return-value]


def first_letter(value: str) -> Value:
    """Sort by the first letter; some are null."""
    return None if value.startswith("c") else value[0]


def pointer_of(value: str) -> Value:
    """Sort by the first pointer, which may be null."""
    found = points(0)(value, ())
    return found if found is None else str(found)


def best_of_group(value: str, key: Key) -> Key | None:
    """Point at the first row of a group."""
    group = points(0)(value, key)
    return None if group is None else (group, 1)  # type: ignore[return-value]


def odd(value: str) -> bool:
    """Keep about half of the groups."""
    return len(value) % 2 == 1


def _add(into: dict[str, Plan], name: str) -> Callable[[Plan], Plan]:
    def added(plan: Plan) -> Plan:
        into[name] = plan
        return plan

    return added


def _single(how: How) -> None:
    _add(SINGLE, f"key {how}")(lambda: (key_join(source("A"), source("B"), how),))
    _add(SINGLE, f"foreign key {how}")(lambda: (foreign_key_join(source("A"), source("B"), how),))
    _add(SINGLE, f"foreign key {how}, keyed by the key")(
        lambda: (foreign_key_join(source("A"), source("B"), how, own_key),)
    )
    _add(SINGLE, f"foreign key {how}, both sides filtered")(
        lambda: (foreign_key_join(filtered(source("A"), has_a), filtered(source("B"), has_a), how),)
    )
    _add(SINGLE, f"foreign key {how}, both sides mapped")(
        lambda: (foreign_key_join(mapped(source("A"), without_b), mapped(source("B"), without_b), how),)
    )
    _add(SINGLE, f"foreign key {how} that deletes")(
        lambda: (foreign_key_join(source("A"), source("B"), how, joiner=never_b_a),)
    )
    _add(SINGLE, f"key {how}, left filtered, right mapped")(
        lambda: (key_join(filtered(source("A"), has_a), mapped(source("B"), without_b), how),)
    )
    _add(SINGLE, f"key {how} that deletes")(
        lambda: (key_join(source("A"), source("B"), how, joiner=never_b_a),)
    )


def _self_joins(how: How) -> None:
    @_add(COMPOSED, f"key self {how}")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (key_join(table, table, how),)

    @_add(COMPOSED, f"foreign key self {how}")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (foreign_key_join(table, table, how),)

    @_add(COMPOSED, f"foreign key self {how} through filters")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (foreign_key_join(filtered(table, has_a), filtered(table, has_a, negate=True), how),)


for one_how in HOWS:
    _single(one_how)
    _self_joins(one_how)


def _one_to_many(how: How) -> None:
    _add(SINGLE, f"one to many {how}")(lambda: (one_to_many(source("A"), source("B"), how),))
    _add(SINGLE, f"one to many {how}, both sides filtered")(
        lambda: (one_to_many(filtered(source("A"), has_a), filtered(source("B"), has_a), how),)
    )

    @_add(COMPOSED, f"one to many self {how}")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (one_to_many(table, table, how),)


for one_how in KEPT:
    _one_to_many(one_how)


def _trees(first: How, second: How) -> None:
    if HOWS.index(first) % 2 == HOWS.index(second) % 2:

        @_add(COMPOSED, f"key (A {first} B) {second} C")
        def _() -> tuple[Node, ...]:
            a, b, c = source("A"), source("B"), source("C")
            return (key_join(key_join(a, b, first), c, second),)

    else:

        @_add(COMPOSED, f"key A {second} (B {first} C)")
        def _() -> tuple[Node, ...]:
            a, b, c = source("A"), source("B"), source("C")
            return (key_join(a, key_join(b, c, first), second),)


for one_pair in product(HOWS, HOWS):
    _trees(*one_pair)


@_add(COMPOSED, "key (A left B) outer (C inner D), mapped within")
def _four() -> tuple[Node, ...]:
    left = mapped(key_join(source("A"), source("B"), "left"), marked, total=True)
    return (key_join(left, key_join(source("C"), source("D")), "outer"),)


@_add(COMPOSED, "key (A outer B) left A")
def _key_diamond() -> tuple[Node, ...]:
    a, b = source("A"), source("B")
    return (key_join(key_join(a, b, "outer"), a, "left"),)


@_add(COMPOSED, "key (A inner B) outer (A left C), and both")
def _key_diamond_of_two() -> tuple[Node, ...]:
    a = source("A")
    left, right = key_join(a, source("B")), key_join(a, source("C"), "left")
    return (key_join(left, right, "outer"), left, right)


@_add(COMPOSED, "key (A outer B) filtered, outer C")
def _filter_between() -> tuple[Node, ...]:
    middle = filtered(key_join(source("A"), source("B"), "outer"), has_a)
    return (key_join(middle, source("C"), "outer"), middle)


@_add(COMPOSED, "key (A outer B that deletes) outer A")
def _deleting_between() -> tuple[Node, ...]:
    a = source("A")
    return (key_join(key_join(a, source("B"), "outer", never_b_a), a, "outer"),)


def _chains(kept: How, how: How) -> None:
    @_add(COMPOSED, f"foreign key (A {kept} B) {how} C")
    def _() -> tuple[Node, ...]:
        middle = foreign_key_join(source("A"), source("B"), kept)
        return (foreign_key_join(middle, source("C"), how, points(1)), middle)

    @_add(COMPOSED, f"foreign key (A {how} B) {kept} B")
    def _() -> tuple[Node, ...]:
        a, b = source("A"), source("B")
        return (foreign_key_join(foreign_key_join(a, b, how), b, kept, points(1)),)


for one_pair in product(KEPT, HOWS):
    _chains(*one_pair)


def _mixed(how: How) -> None:
    @_add(COMPOSED, f"A foreign key {how} (B key outer C)")
    def _() -> tuple[Node, ...]:
        return (foreign_key_join(source("A"), key_join(source("B"), source("C"), "outer"), how),)

    @_add(COMPOSED, f"(A key outer B) foreign key {how} C")
    def _() -> tuple[Node, ...]:
        return (foreign_key_join(key_join(source("A"), source("B"), "outer"), source("C"), how),)

    @_add(COMPOSED, f"A foreign key {how} (A key left B), mapped")
    def _() -> tuple[Node, ...]:
        a = source("A")
        return (foreign_key_join(a, mapped(key_join(a, source("B"), "left"), without_b), how),)

    @_add(COMPOSED, f"(A foreign key left B) key {how} C")
    def _() -> tuple[Node, ...]:
        return (key_join(foreign_key_join(source("A"), source("B"), "left"), source("C"), how),)

    @_add(COMPOSED, f"(A foreign key inner B) key {how} A, filtered between")
    def _() -> tuple[Node, ...]:
        a = source("A")
        return (key_join(filtered(foreign_key_join(a, source("B")), has_a), a, how),)

    @_add(COMPOSED, f"A foreign key {how} (B foreign key left C)")
    def _() -> tuple[Node, ...]:
        return (foreign_key_join(source("A"), foreign_key_join(source("B"), source("C"), "left"), how),)


for one_how in HOWS:
    _mixed(one_how)


@_add(COMPOSED, "both foreign keys of A into B, each joined, then key join")
def _two_ways() -> tuple[Node, ...]:
    a, b = source("A"), source("B")
    return (key_join(foreign_key_join(a, b, "left"), foreign_key_join(a, b, "inner", points(1)), "outer"),)


@_add(COMPOSED, "A five times")
def _five_times() -> tuple[Node, ...]:
    a = source("A")
    twice = foreign_key_join(a, a, "left")
    return (key_join(foreign_key_join(twice, a, "inner", points(1)), key_join(a, a, "outer"), "left"), twice)


@_add(COMPOSED, "outer foreign keys joined by both their keys")
def _outer_on_outer() -> tuple[Node, ...]:
    a, b = source("A"), source("B")
    return (key_join(foreign_key_join(a, b, "outer"), foreign_key_join(a, b, "right"), "outer"),)


@_add(COMPOSED, "outer foreign key as left table")
def _unmatched_rows_go_on() -> tuple[Node, ...]:
    middle = foreign_key_join(source("A"), source("B"), "outer")
    return (foreign_key_join(middle, source("C"), "left", points(1)), middle)


@_add(COMPOSED, "pairs pointed at")
def _pairs_pointed_at() -> tuple[Node, ...]:
    return (foreign_key_join(source("A"), one_to_many(source("B"), source("C")), "left", both_pointers),)


@_add(COMPOSED, "pairs joined with a table of two key parts")
def _pairs_on_key() -> tuple[Node, ...]:
    return (key_join(one_to_many(source("A"), source("B"), "left"), source("C", width=2), "outer"),)


@_add(COMPOSED, "pairs of pairs")
def _pairs_of_pairs() -> tuple[Node, ...]:
    a, b = source("A"), source("B")
    return (one_to_many(a, one_to_many(a, b, "left"), "left", points(1)),)


@_add(COMPOSED, "the many of a foreign key join")
def _many_of_a_join() -> tuple[Node, ...]:
    a, b = source("A"), source("B")
    return (one_to_many(b, foreign_key_join(a, b, "left"), "left", points(1)),)


@_add(COMPOSED, "views of a source and of a join, asked for")
def _views() -> tuple[Node, ...]:
    a = source("A")
    joined = foreign_key_join(a, source("B"), "left")
    return (a, filtered(a, has_a), mapped(a, without_b), filtered(mapped(joined, without_b), has_a), joined)


@_add(COMPOSED, "views of a bare source")
def _bare_views() -> tuple[Node, ...]:
    a = source("A")
    return (filtered(a, has_a), mapped(filtered(a, has_a, negate=True), without_b))


def _as_of(how: How, *, forward: bool) -> None:
    name = f"as of {how}, {'forward' if forward else 'backward'}"
    _add(SINGLE, name)(
        lambda: (as_of_join(source("A"), materialized(source("B"), 8), how, forward=forward, strict=forward),)
    )
    _add(SINGLE, f"{name}, of views")(
        lambda: (
            as_of_join(
                filtered(source("A"), has_a),
                filtered(materialized(source("B"), 4), has_a),
                how,
                joiner=never_b_a,
                forward=forward,
            ),
        )
    )


for one_how in KEPT:
    _as_of(one_how, forward=one_how == "inner")


def _groups(name: str, by: ForeignKey) -> None:
    _add(SINGLE, f"groups by {name}")(lambda: (grouped(source("A"), by),))
    _add(SINGLE, f"groups by {name}, reduced")(lambda: (grouped(source("A"), by, REDUCED),))
    _add(SINGLE, f"groups by {name}, counted")(lambda: (counted(source("A"), by),))


for one_name, one_by in {"pointer": points(0), "letter": by_letter, "key": by_key}.items():
    _groups(one_name, one_by)
_add(SINGLE, "groups by two parts")(lambda: (grouped(source("A"), by_both, width=2),))
_add(SINGLE, "groups by two parts, counted")(lambda: (counted(source("A"), by_both, width=2),))
_add(SINGLE, "groups that delete")(lambda: (grouped(source("A"), by_letter, DELETING),))
_add(SINGLE, "groups that stay when empty")(lambda: (grouped(source("A"), keep_empty=True),))
_add(SINGLE, "groups that stay when empty, counted")(lambda: (counted(source("A"), keep_empty=True),))
_add(SINGLE, "groups of a filtered table")(lambda: (grouped(filtered(source("A"), has_a)),))
_add(SINGLE, "groups of a mapped table, counted")(lambda: (counted(mapped(source("A"), without_b)),))
_add(SINGLE, "groups, filtered")(lambda: (filtered(grouped(source("A")), odd),))
_add(SINGLE, "groups, mapped and filtered")(
    lambda: (filtered(mapped(counted(source("A")), without_b), odd, negate=True),)
)


def _groups_of_joins(how: How) -> None:
    @_add(COMPOSED, f"groups of A foreign key {how} B")
    def _() -> tuple[Node, ...]:
        joined = foreign_key_join(source("A"), source("B"), how)
        return (grouped(joined, points(1), SORTED), joined)

    @_add(COMPOSED, f"groups of A foreign key {how} B, counted")
    def _() -> tuple[Node, ...]:
        return (counted(foreign_key_join(source("A"), source("B"), how), by_key),)

    @_add(COMPOSED, f"groups of A key {how} B")
    def _() -> tuple[Node, ...]:
        return (grouped(key_join(source("A"), source("B"), how), functions=SORTED),)

    @_add(COMPOSED, f"A foreign key {how} (groups of B)")
    def _() -> tuple[Node, ...]:
        return (foreign_key_join(source("A"), grouped(source("B")), how),)

    @_add(COMPOSED, f"(groups of A) foreign key {how} B")
    def _() -> tuple[Node, ...]:
        groups = grouped(source("A"), by_key)
        return (foreign_key_join(groups, source("B"), how), groups)

    @_add(COMPOSED, f"A foreign key {how} (groups of A)")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (foreign_key_join(table, grouped(table), how),)

    @_add(COMPOSED, f"groups of A foreign key {how} A")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (grouped(foreign_key_join(table, table, how), functions=SORTED),)

    @_add(COMPOSED, f"A key {how} (groups of A, counted)")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (key_join(table, counted(table), how),)

    @_add(COMPOSED, f"(groups of A) key {how} (other groups of A)")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (key_join(grouped(table), filtered(grouped(table, points(1), REDUCED), odd), how),)


for one_how in HOWS:
    _groups_of_joins(one_how)


_add(SINGLE, "best row of groups")(lambda: (topped(source("A"), n=1),))
_add(SINGLE, "top of groups by key")(lambda: (topped(source("A"), by_key, 3),))
_add(SINGLE, "top of groups by two parts")(lambda: (topped(source("A"), by_both, width=2),))
_add(SINGLE, "top of groups by letter, in two orders")(
    lambda: (topped(source("A"), by_letter, 3, order=((pointer_of, True), (first_letter, False))),)
)
_add(SINGLE, "A by another key")(lambda: (first_of_key(source("A")),))
_add(SINGLE, "A by another key of two parts, in an order")(
    lambda: (first_of_key(source("A"), by_both, order=((first_letter, False),), width=2),)
)
_add(SINGLE, "top of groups of a filtered table, mapped")(
    lambda: (mapped(topped(filtered(source("A"), has_a)), without_b),)
)


def _top_of_joins(how: How) -> None:
    @_add(COMPOSED, f"top of A foreign key {how} B")
    def _() -> tuple[Node, ...]:
        joined = foreign_key_join(source("A"), source("B"), how)
        return (topped(joined, points(1), 3), topped(joined, by_letter, 1, order=((pointer_of, False),)))

    @_add(COMPOSED, f"(top of A) key {how} (top of B), counted")
    def _() -> tuple[Node, ...]:
        joined = key_join(topped(source("A")), topped(source("B")), how)
        return (joined, counted(joined, points(1)))


for one_how in HOWS:
    _top_of_joins(one_how)


@_add(COMPOSED, "A foreign key left (top of A)")
def _best_of_own_group() -> tuple[Node, ...]:
    table = source("A")
    return (foreign_key_join(table, topped(table), "left", best_of_group),)


@_add(COMPOSED, "A by another key foreign key left (B by another key), and by its own key again")
def _rekeyed_tables() -> tuple[Node, ...]:
    table, other = source("A"), first_of_key(filtered(source("B"), has_a), by_letter)
    joined = foreign_key_join(first_of_key(table), other, "left", by_letter)
    return (joined, first_of_key(joined, own_key), key_join(first_of_key(table, by_letter), other, "outer"))


@_add(COMPOSED, "groups of top, and top of groups of top")
def _groups_of_top() -> tuple[Node, ...]:
    top = topped(source("A"), by_letter, 3)
    return (grouped(top, points(0), SORTED), topped(counted(top, points(0)), by_letter, 2))


@_add(COMPOSED, "top of A, suppressed")
def _suppressed_top() -> tuple[Node, ...]:
    return (suppressed(topped(source("A")), 5),)


@_add(COMPOSED, "groups of groups")
def _groups_of_groups() -> tuple[Node, ...]:
    groups = grouped(source("A"))
    return (grouped(groups, by_letter, SORTED), counted(groups, points(1)), groups)


@_add(COMPOSED, "groups of groups that delete")
def _groups_of_deleted_groups() -> tuple[Node, ...]:
    return (grouped(grouped(source("A"), by_letter, DELETING), points(1), SORTED),)


@_add(COMPOSED, "groups of pairs")
def _groups_of_pairs() -> tuple[Node, ...]:
    pairs = one_to_many(source("A"), source("B"))
    return (grouped(pairs, lambda _, key: key[0], SORTED), counted(pairs, by_both, width=2))


@_add(COMPOSED, "pairs of groups")
def _pairs_of_groups() -> tuple[Node, ...]:
    table = source("A")
    return (one_to_many(grouped(table), table, "left", points(1)),)


@_add(COMPOSED, "groups of a table that filters of it are declared around")
def _filters_around_groups() -> tuple[Node, ...]:
    table = source("A")
    before, of_groups = filtered(table, has_a), filtered(table, has_a, negate=True)
    groups = grouped(of_groups)
    return (before, of_groups, groups, filtered(table, has_a))


@_add(COMPOSED, "a filtered table, suppressed")
def _suppressed_view() -> tuple[Node, ...]:
    return (
        suppressed(filtered(source("A"), has_a), 5),
        suppressed(filtered(source("A"), has_a), 9, max_records=2),
    )


@_add(COMPOSED, "A that filters are declared around, suppressed")
def _filters_around_suppress() -> tuple[Node, ...]:
    table = source("A")
    before = filtered(table, has_a)
    return (before, suppressed(table, 5), filtered(table, has_a, negate=True))


@_add(COMPOSED, "(A foreign key left B) suppressed, key outer A, filtered")
def _suppressed_join() -> tuple[Node, ...]:
    table = source("A")
    held = suppressed(foreign_key_join(table, source("B"), "left"), 5)
    return (filtered(key_join(held, table, "outer"), has_a), held)


@_add(COMPOSED, "groups of A suppressed, both suppressed")
def _suppressed_groups() -> tuple[Node, ...]:
    return (suppressed(grouped(suppressed(source("A"), 3)), 3, max_records=3),)


def _copies(how: How) -> None:
    @_add(COMPOSED, f"A foreign key {how} (copies of B)")
    def _() -> tuple[Node, ...]:
        return (foreign_key_join(source("A"), source("B"), how, copied=True),)

    @_add(COMPOSED, f"A foreign key {how} (copies of A)")
    def _() -> tuple[Node, ...]:
        table = source("A")
        return (foreign_key_join(filtered(table, has_a), table, how, copied=True),)


for one_how in KEPT:
    _copies(one_how)
