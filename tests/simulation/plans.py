"""The plans that the simulator runs, by class of operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tablestream.planner.physical_plan import Align
from tablestream.topology.nodes import Node
from tablestream.topology.streams import Grace
from tests.plans.catalogue import by_both, by_key, by_letter, has_a, own_key, without_b
from tests.plans.engine import Output
from tests.plans.tables import (
    DELETING,
    REDUCED,
    as_of_join,
    counted,
    counts,
    deduplicated,
    filtered,
    first_of_key,
    foreign_key_join,
    grouped,
    kept,
    key_join,
    looked_up,
    many_to_many,
    mapped,
    materialized,
    merged,
    named_time,
    one_to_many,
    over,
    pointers,
    points,
    rekeyed,
    reordered,
    source,
    starred,
    stream,
    suppressed,
    to_stream,
    to_table,
    topped,
    unfolded,
)


@dataclass(frozen=True)
class Case:
    """A plan, and what the simulator has to know about it.

    Attributes
    ----------
    outputs
        Builds what is asked for.
    has_model
        Whether the record-at-a-time model has all of its operators.
    has_clock
        Whether it follows the wall clock.
    align
        Whether records wait for each other.
    modes
        The modes in which it can be built: compat or not.
    evolvable
        Whether the state keeps the tables of sources whole.
    """

    outputs: Callable[[], tuple[Output, ...]]
    has_model: bool = True
    has_clock: bool = False
    align: Align | None = None
    modes: tuple[bool, ...] = (False, True)
    evolvable: bool = False


def _case(*build: Callable[[], Node], **options: object) -> Case:
    return Case(lambda: tuple(Output(one()) for one in build), **options)  # type: ignore[arg-type]


def _only_joins() -> tuple[Output, ...]:
    """A join and a table that reads it, in two outputs: every change, and the last one of each key."""
    joined = foreign_key_join(source("A"), source("B"), "left")
    return Output(joined, before=True), Output(counted(joined, points(1)), final=True)


def _several() -> tuple[Output, ...]:
    """Outputs of several depths in one query."""
    table = source("A")
    joined = foreign_key_join(table, source("B"), "outer")
    return Output(table), Output(joined), Output(grouped(table))


def _waiting_pair() -> tuple[Output, ...]:
    """A table that is held by stream time, and what is made of it."""
    held = suppressed(source("A"), 4, max_records=2)
    return Output(held), Output(counts(held, by_letter))


def _lookup_of_history(history: int = 6, grace: Grace | None = None) -> Node:
    return looked_up(stream("S"), materialized(source("A"), history), "left", grace=grace)


def _complete(how: str, *, foreign: bool) -> Node:
    sides = materialized(source("A"), 5), materialized(source("B"), 5)
    if foreign:
        return foreign_key_join(*sides, how, complete_history=True)  # type: ignore[arg-type]
    return key_join(*sides, how, complete_history=True)  # type: ignore[arg-type]


def _with_itself(table: Node) -> Node:
    return many_to_many(table, filtered(table, has_a), points(0), by_letter)


def _star(*, copied: bool = False) -> Node:
    joins = [(source("A"), "left", points(0)), (source("B"), "inner", points(1))]
    return starred(source("L"), *joins, copied=copied)  # type: ignore[arg-type]


CLASSES: Mapping[str, Mapping[str, Case]] = {
    "key join": {
        "key outer": _case(lambda: key_join(source("A"), source("B"), "outer")),
        "key left, filtered and mapped": _case(
            lambda: key_join(filtered(source("A"), has_a), mapped(source("B"), without_b), "left")
        ),
        "key of three": _case(
            lambda: key_join(key_join(source("A"), source("B"), "left"), source("C"), "outer")
        ),
    },
    "foreign-key join": {
        "foreign key left": _case(lambda: foreign_key_join(source("A"), source("B"), "left")),
        "foreign key outer": _case(lambda: foreign_key_join(source("A"), source("B"), "outer")),
        "foreign key left, spread": _case(
            lambda: foreign_key_join(source("A"), source("B"), "left", spread=3), modes=(False,)
        ),
        "one to many": _case(lambda: one_to_many(source("A"), source("B"), "left")),
        "many to many": _case(lambda: many_to_many(source("A"), source("B")), modes=(False,)),
        "many to many of one table": _case(lambda: _with_itself(source("A")), modes=(False,)),
        "every change and the last ones": Case(_only_joins, has_model=False, modes=(False,)),
    },
    "star join": {
        "star": _case(_star, has_model=False),
        "star of copies": _case(lambda: _star(copied=True), has_model=False),
    },
    "as-of join": {
        "as of": _case(_lookup_of_history),
        "as of, with grace": _case(lambda: _lookup_of_history(8, Grace(3))),
        "as of, by the clock": _case(
            lambda: _lookup_of_history(8, Grace(50, wall_clock_us=3000)), has_model=False, has_clock=True
        ),
        "corrected": _case(
            lambda: looked_up(stream("S"), materialized(source("A"), 6), "left", corrections=True),
            has_model=False,
            modes=(False,),
        ),
        "a table as of times": _case(
            lambda: as_of_join(source("A"), materialized(source("B"), 8), "left"),
            lambda: as_of_join(source("A"), materialized(source("B"), 8), "inner", forward=True),
        ),
    },
    "stream-table join": {
        "records look up": _case(lambda: looked_up(stream("S"), source("A"), "left")),
        "merged records look up": _case(
            lambda: looked_up(merged(stream("S"), rekeyed(stream("T"))), source("A"), "inner")
        ),
    },
    "global table": {
        "records look up copies": _case(lambda: looked_up(stream("S"), source("A"), "left", copied=True)),
        "a table points at copies": _case(
            lambda: foreign_key_join(source("A"), source("B"), "left", copied=True)
        ),
    },
    "complete history": {
        "histories by key": _case(lambda: _complete("outer", foreign=False), has_model=False, modes=(False,)),
        "histories by foreign key": _case(
            lambda: _complete("left", foreign=True), has_model=False, modes=(False,)
        ),
    },
    "versioned table": {
        "versions": _case(lambda: materialized(source("A"), 3)),
        "versions joined": _case(
            lambda: key_join(materialized(source("A"), 3), materialized(source("B"), 0), "left")
        ),
        "versions of a stream": _case(lambda: filtered(materialized(to_table(stream("S")), 3), has_a)),
    },
    "groups": {
        "groups with the user's functions": _case(lambda: grouped(source("A"))),
        "groups that delete": _case(lambda: grouped(source("A"), by_letter, DELETING)),
        "groups, reduced": _case(lambda: grouped(source("A"), by_key, REDUCED)),
        "groups, counted": _case(lambda: counted(source("A"))),
        "groups by two parts, kept when empty": _case(
            lambda: counted(source("A"), by_both, width=2, keep_empty=True)
        ),
        "groups of records": _case(lambda: counted(stream("S"))),
    },
    "top": {
        "top": _case(lambda: topped(source("A"), n=1)),
        "top by letter": _case(lambda: topped(source("A"), by_letter, 3)),
        "window functions": _case(lambda: over(source("A"), by_letter), modes=(False,)),
        "elements": _case(lambda: unfolded(source("A"), pointers), modes=(False,)),
        "another key": _case(lambda: first_of_key(source("A"), by_letter)),
    },
    "suppress": {
        "held": _case(lambda: suppressed(source("A"), 5)),
        "held, filtered": _case(lambda: suppressed(filtered(source("A"), has_a), 4, max_records=2)),
        "held, and counted": Case(_waiting_pair),
        "held by the clock": _case(
            lambda: suppressed(source("A"), 50, wall_clock=3000), has_model=False, has_clock=True
        ),
    },
    "buffers": {
        "reordered": _case(lambda: reordered(source("A"), 4), has_model=False),
        "reordered records": _case(lambda: reordered(stream("S"), 4), has_model=False),
        "kept": _case(
            lambda: kept(source("A"), 9), lambda: counted(kept(source("A"), 5, named_time)), modes=(False,)
        ),
        "kept by the clock": _case(
            lambda: kept(source("A"), 50, wall_clock=3000), has_model=False, has_clock=True, modes=(False,)
        ),
        "aligned": _case(lambda: key_join(source("A"), source("B"), "outer"), has_model=False, align=Align()),
        "aligned, with an end to waiting": _case(
            lambda: merged(stream("S"), stream("T")), has_model=False, align=Align(idle_us=4000)
        ),
    },
    "deduplicate": {
        "once": _case(lambda: deduplicated(source("A")), has_model=False),
        "records once, counted": _case(lambda: counted(deduplicated(stream("S"))), has_model=False),
    },
    "streams": {
        "unfolded": _case(lambda: to_table(unfolded(stream("S"), pointers))),
        "a filtered table as a stream": _case(lambda: to_stream(filtered(source("A"), has_a))),
        "a stream as a table, with another key": _case(
            lambda: foreign_key_join(to_table(rekeyed(stream("S"))), source("A"), "left", own_key)
        ),
    },
    "several outputs": {"outputs of several depths": Case(_several)},
}

CASES: Mapping[str, Case] = {name: case for cases in CLASSES.values() for name, case in cases.items()}
