"""What is said of a source that the state of a plan does not have whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tablestream.planner.evolution import NOT_WHOLE, Facts, KeptRows, fates, table_of
from tablestream.provenance.kept_rows import kept_rows
from tablestream.provenance.registry import described
from tablestream.provenance.steps import Column, Lineage, Step
from tablestream.topology.nodes import Field
from tests.plans.catalogue import both_pointers, by_letter, has_a
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_log
from tests.plans.tables import (
    STRING,
    counted,
    filtered,
    foreign_key_join,
    key_join,
    many_to_many,
    mapped,
    materialized,
    one_to_many,
    over,
    source,
    topped,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.planner.evolution import Remains
    from tablestream.topology.nodes import Node, Source


def remains(*nodes: Node) -> Remains:
    """What the state of a plan has of its sources, if each expression but a condition copies the column ``v``."""
    plan = Engine([Output(node) for node in nodes]).plan
    return kept_rows(described(plan, {}, lambda _: "v"))


def marked(value: str) -> str:
    return f"{value}?"


#: What is remembered of the source A: by which table or operator, behind how many conditions, and whether with values.
REMEMBERED: list[tuple[Callable[[Source], Node], list[tuple[str, int, bool]]]] = [
    (lambda a: foreign_key_join(a, source("B"), "left"), [("A_B", 1, True)]),
    (lambda a: foreign_key_join(filtered(a, has_a), source("B")), [("A_filter_B", 2, True)]),
    (lambda a: one_to_many(source("B"), a), [("B_A", 1, True)]),
    (lambda a: many_to_many(a, source("B")), [("A_B", 1, True)]),
    (lambda a: many_to_many(source("B"), filtered(a, has_a)), [("B_A_filter", 2, True)]),
    (lambda a: counted(a, by_letter), [("A_n", 0, True)]),
    (lambda a: topped(mapped(a, marked, total=True), by_letter), [("A_map_top", 0, True)]),
    (
        lambda a: over(filtered(filtered(a, has_a), has_a, negate=True), by_letter),
        [("A_filter_filter_over", 2, True)],
    ),
    (lambda a: key_join(filtered(a, has_a), mapped(a, marked)), [("A_filter", 1, True), ("A_map", 1, True)]),
    (lambda a: materialized(filtered(a, has_a)), [("A_filter_kept", 1, True)]),
    (lambda a: materialized(a, 5), []),
    (lambda a: filtered(a, has_a), []),
]


@pytest.mark.parametrize(("make", "wanted"), REMEMBERED)
def test_it_is_said_what_an_operator_remembers_of_a_source(
    make: Callable[[Source], Node], wanted: list[tuple[str, int, bool]]
) -> None:
    found = [
        (one.where, len(one.conditions), one.columns == ("v",)) for one in remains(make(source("A")))["A"]
    ]
    assert found == wanted


def test_columns_are_followed_through_selects() -> None:
    a, b, c = (Field(name, '"int"') for name in "abc")
    chosen = (Column("x", "b", 0, "b"), Column("y", "a + 1"))
    steps = (
        Step("A", "A", "Source", "", (), (a, b, c)),
        Step("S", "S", "Select", "", (), (b,), ("A",), columns=chosen, deletes="a = 0"),
        Step("F", "F", "Filter", "", (), (b,), ("S",), texts=("x > 1",)),
        Step("G", "G", "Aggregate", "", (), (b,), ("F",), inputs=chosen[:1], tables={"members": "G/rows"}),
        Step(
            "H",
            "H",
            "Aggregate",
            "",
            (),
            (b,),
            ("F",),
            inputs=(Column("z", "x", 0, "x"),) * 2,
            tables={"members": ""},
        ),
    )
    assert kept_rows(Lineage({one.name: one for one in steps}, {}, {})) == {
        "A": (KeptRows("G", ("not (a = 0)", "x > 1"), ()), KeptRows("H", ("not (a = 0)", "x > 1"), ("b",)))
    }


FIELDS = tuple(Field(name, STRING) for name in "abc")
SAID: list[tuple[Remains, str]] = [
    ({}, NOT_WHOLE),
    ({"A": ()}, f"{NOT_WHOLE}: it has none of its rows as they are"),
    (
        {"A": (KeptRows("J", ("a > 5",), ("a", "b", "c")),)},
        f"{NOT_WHOLE}: it has only rows where a > 5 (in J); it lacks all other rows",
    ),
    (
        {"A": (KeptRows("G", (), ("b",)), KeptRows("J", ("a > 5", "c < 0"), ()))},
        (
            f"{NOT_WHOLE}: it has only the column b (in G); only the keys of rows where (a > 5) and (c < 0) (in J);"
            " it lacks the columns a, c"
        ),
    ),
    (
        {"A": (KeptRows("G", (), ("b",)), KeptRows("J", ("a > 5",), ("a", "b", "c")))},
        (
            f"{NOT_WHOLE}: it has only the column b (in G); only rows where a > 5 (in J);"
            " it lacks the columns a, c of all other rows"
        ),
    ),
    ({"A": (KeptRows("M", (), ("a", "b", "c")),)}, f"{NOT_WHOLE}: it has its rows as M remembers them"),
    ({"A": (KeptRows("M", (), ("a", "b", "c"), "M"),)}, "kept"),
]


@pytest.mark.parametrize(("known", "said"), SAID)
def test_a_refusal_names_what_is_there_and_what_is_lacking(known: Remains, said: str) -> None:
    node = replace(source("A"), value=FIELDS)
    plan = Engine([Output(node)]).plan
    facts = Facts.of(plan, {"o": "t"})
    assert not facts.sources["A"].is_whole
    (part,) = [one for one in fates(facts, facts, plan, (), remains=known) if one.part == "source"]
    assert (part.why if part.fate == "refused" else part.fate) == said
    assert table_of(facts, "A", known) == ("M" if said == "kept" else "")


def test_rows_with_a_null_are_not_said_to_be_remembered_by_a_join_on_values() -> None:
    both = many_to_many(source("A"), source("B"), both_pointers, both_pointers, width=2)
    (one,), (both_of,) = remains(many_to_many(source("A"), source("B")))["A"], remains(both)["A"]
    assert one.conditions == ("nth is not null",)
    assert both_of.conditions == ("none of nth, nth is null",)


def test_a_materialized_source_has_the_rows_that_evolvable_keeps() -> None:
    log = random_log([source("A"), source("B")], 3, 90)
    a = source("A")
    engines = [
        Engine([Output(counted(materialized(a), by_letter))]),
        Engine([Output(foreign_key_join(a, source("B")))], evolvable=True),
    ]
    for engine in engines:
        named = {one.name: one for one in engine.plan.sources}
        engine.run([one._replace(source=named[one.source.name]) for one in log if one.source.name in named])
    (first, *_) = remains(counted(materialized(a), by_letter))["A"]
    assert first == KeptRows("A_kept", (), ("v",), "A_kept")
    rows = [sorted(engine.read(name)) for engine, name in zip(engines, ("A_kept", "A"), strict=True)]
    assert rows[0] == rows[1] != []
