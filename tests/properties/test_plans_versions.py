"""Random plans with versioned tables, and with records that look versions up: the engine against its twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, given
from hypothesis import strategies as st

from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import (
    Aggregate,
    ForeignKeyJoin,
    Materialize,
    Node,
    OneToMany,
    Source,
    Suppress,
)
from tablestream.topology.streams import Grace, StreamJoin
from tests.plans.catalogue import KEPT, both_pointers, own_key
from tests.plans.comparing import sources_of
from tests.plans.tables import (
    as_of_join,
    looked_up,
    materialized,
    points,
    source,
    stream,
    suppressed,
    to_stream,
    to_table,
)
from tests.properties.test_plans import (
    Case,
    asked_for,
    groups,
    is_settled,
    joins,
    logged,
    run,
    views,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (3, 8)
KINDS = (
    "versions", "versions", "lookup", "lookup", "key", "foreign key", "global", "one to many", "view", "groups",
    "suppress",
)  # fmt: skip
HISTORIES = (0, 2, 4, 8, 30)
#: What changes rows of several keys, at different times, in one step.
MANY_KEYS = (ForeignKeyJoin, OneToMany, Aggregate, Suppress)


@st.composite
def versioned_plans(draw: st.DrawFn, *, ordered: bool) -> tuple[Node, ...]:
    """Four to nine operators over up to two sources and two streams; one of the tables is versioned from the start."""
    records = stream("S")
    tables: list[Node] = [source(name) for name in "AB"[: draw(st.integers(1, 2))]]
    tables.append(draw(_versions(tables[-1])))
    if draw(st.booleans()):
        tables.append(to_table(draw(_waiting_for(tables[-1], stream("W")))))
    for _ in range(draw(st.integers(*SIZES))):
        tables.append(draw(_operator(tables, records, ordered=ordered)))
    return draw(asked_for(tables))


@st.composite
def _operator(draw: st.DrawFn, tables: Sequence[Node], records: Source, *, ordered: bool) -> Node:
    table = draw(st.sampled_from(tables[-3:]))
    kind = draw(st.sampled_from(KINDS if ordered else (*KINDS, "as of", "as of")))
    match kind:
        case "versions" | "as of":
            return draw(_versions(table) if kind == "versions" else _as_of(table, tables))
        case "lookup":
            return to_table(draw(_lookup(tables, records)))
        case "view":
            return draw(views(table))
        case "groups":
            return draw(groups(table, ordered=ordered, in_sql=False))
        case "suppress":
            flat = table if history_of(table) is None else materialized(table)
            return suppressed(flat, draw(st.integers(0, 6)))
    return draw(joins(kind, table, tables, spread=not ordered))


@st.composite
def _versions(draw: st.DrawFn, table: Node) -> Node:
    return materialized(table, draw(st.sampled_from(HISTORIES)))


@st.composite
def _as_of(draw: st.DrawFn, table: Node, tables: Sequence[Node]) -> Node:
    """A table looks versions up, as of times of its rows."""
    versioned = [one for one in tables if len(one.key) == 1 and history_of(one) is not None]
    on = draw(st.sampled_from([points(0), points(1), own_key]))
    forward, strict = draw(st.booleans()), draw(st.booleans())
    right = draw(st.sampled_from(versioned))
    return as_of_join(table, right, draw(st.sampled_from(KEPT)), on, forward=forward, strict=strict)


@st.composite
def _lookup(draw: st.DrawFn, tables: Sequence[Node], records: Source) -> Node:
    """Records of the stream, or a table's changes, look up what they point at."""
    told: Node = draw(st.sampled_from([records, records, *map(to_stream, tables[-2:])]))
    versioned = [one for one in tables if len(one.key) == 1 and history_of(one) is not None]
    waits = draw(st.booleans())
    if versioned and waits:
        return draw(_waiting_for(draw(st.sampled_from(versioned)), told))
    table = draw(st.sampled_from([table for table in tables if len(table.key) <= 2]))
    on = both_pointers if len(table.key) == 2 else draw(st.sampled_from([points(0), points(1), own_key]))
    return looked_up(told, table, draw(st.sampled_from(KEPT)), on, copied=draw(st.booleans()))


@st.composite
def _waiting_for(draw: st.DrawFn, table: Node, told: Node) -> Node:
    """Records look versions up, with grace."""
    longest = min(history_of(table) or 0, 4)
    grace = Grace(draw(st.integers(0, longest)), draw(st.booleans()))
    on = draw(st.sampled_from([points(0), points(1), own_key]))
    return looked_up(told, table, draw(st.sampled_from(KEPT)), on, copied=draw(st.booleans()), grace=grace)


@st.composite
def versioned_cases(draw: st.DrawFn, *, ordered: bool) -> Case:
    """A plan with a log that is cut at random places."""
    return draw(logged(draw(versioned_plans(ordered=ordered)), least=(12, 20), max_size=36))


def waiting(nodes: Sequence[Node]) -> list[StreamJoin]:
    """The joins of a plan in which records wait."""
    return [one for one in ancestors(*nodes) if isinstance(one, StreamJoin) and one.grace is not None]


def meet_what_waited(nodes: Sequence[Node]) -> bool:
    """Whether what one record causes meets, at some operator, what the record lets go.

    These are different steps by default; which comes first hangs on the ways they take, and the twin does not say.
    """
    for join in waiting(nodes):
        assert join.grace is not None
        causes = set(sources_of(join.parents if join.grace.table_advances else [join.left]))
        for node in ancestors(*nodes):
            behind = [parent for parent in node.parents if join in ancestors(parent)]
            beside = [one for parent in node.parents for one in _around(parent, join)]
            if node is not join and behind and causes.intersection(beside):
                return True
    return False


def _around(node: Node, join: Node) -> set[Node]:
    """All that a node hangs on without a join."""
    if node is join:
        return set()
    return {node}.union(*(_around(parent, join) for parent in node.parents))


def expire_within_a_step(nodes: Sequence[Node]) -> bool:
    """Whether a history may be shorter than the times of one step are apart.

    By default the changes of one step to different keys have no order that the twin knows, and by their order one of
    them may be late.
    """
    return any(
        isinstance(node, Materialize)
        and (history_of(node) or 0) < HISTORIES[-1]
        and any(isinstance(one, MANY_KEYS) for one in ancestors(*node.parents))
        for node in ancestors(*nodes)
        if history_of(node) is not None
    )


@given(case=versioned_cases(ordered=False))
def test_random_plans_of_versions_by_default(case: Case) -> None:
    assume(not meet_what_waited(case.nodes) and not expire_within_a_step(case.nodes))
    run(case, compat=False)


@given(case=versioned_cases(ordered=True))
def test_random_plans_of_versions_in_compat(case: Case) -> None:
    assume(is_settled(case.nodes))
    run(case, compat=True)
