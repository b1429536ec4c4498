"""Queries that evolve: a plan goes on from the rows that another plan's state has of the sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.planner.evolution import NOT_WHOLE, Facts, fates, records_wait
from tablestream.planner.physical_plan import Align
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Field, Named, Node, SequenceBy, Source
from tablestream.topology.streams import Grace
from tests.marks import quick_each
from tests.plans.catalogue import COMPOSED, SINGLE, by_letter, has_a, marked
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.evolving import assert_evolves, evolves, of_plan
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    LONG,
    STRING,
    VALUE,
    Record,
    called,
    captured,
    counted,
    counts,
    deduplicated,
    filtered,
    foreign_key_join,
    frozen,
    kept,
    key_join,
    looked_up,
    many_to_many,
    mapped,
    materialized,
    merged,
    one_to_many,
    over,
    pointers,
    rekeyed,
    reordered,
    source,
    stream,
    suppressed,
    to_stream,
    to_table,
    topped,
    unfolded,
    whole_transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestream.planner.physical_plan import PhysicalPlan

SIZE = 120


PLANS = {name: make for name, make in (SINGLE | COMPOSED).items() if evolves(make())}


def names_of(nodes: Sequence[Node]) -> set[tuple[str, int]]:
    return {(one.name, len(one.key)) for one in sources_of(nodes)}


def partner(name: str) -> str:
    """Another plan that reads at least the tables of a plan."""
    names = list(PLANS)
    start, wanted = names.index(name), names_of(PLANS[name]())
    around = names[start + 7 :] + names[: start + 7]
    return next(one for one in around if names_of(PLANS[one]()) >= wanted)


@pytest.mark.parametrize("name", quick_each(list(PLANS), 6))
def test_a_plan_that_evolves_goes_on_as_if_it_had_run_from_the_start(name: str) -> None:
    before, after, seed = PLANS[partner(name)](), PLANS[name](), len(name)
    log = random_log(sources_of(before), seed, SIZE)
    first, rest = random_cuts(log[: SIZE // 2], seed, 3), random_cuts(log[SIZE // 2 :], seed, 3)
    assert_evolves(before, after, first, rest)


@pytest.mark.parametrize("compat", [False, True])
def test_only_tables_that_no_operator_keeps_whole_are_kept_once_more(compat: bool) -> None:
    nodes = SINGLE["foreign key left"]()
    kept = Engine([Output(node) for node in nodes], compat, evolvable=True).plan
    names = [
        placed.name for work in kept.rounds for placed in work.operators if placed.name.startswith("kept")
    ]
    assert names == ["kept A"]  # the right side's operator has B
    assert {one.name for one in kept.whole} == {"A", "B"}


#: A plan with each kind of operator.
OPERATORS: dict[str, Callable[[], Node]] = {
    "Aggregate": lambda: counted(source("A"), by_letter),
    "Captured": lambda: captured("A"),
    "Deduplicate": lambda: deduplicated(source("A")),
    "Filter": lambda: filtered(source("A"), has_a),
    "FlatMap": lambda: unfolded(source("A"), pointers),
    "ForeignKeyJoin": lambda: foreign_key_join(source("A"), source("B"), "left"),
    "Keep": lambda: kept(source("A"), 9),
    "KeyJoin": lambda: key_join(source("A"), source("B"), "outer"),
    "ManyToMany": lambda: many_to_many(source("A"), source("B")),
    "Materialize": lambda: materialized(source("A")),
    "Merge": lambda: merged(stream("A"), stream("B")),
    "OneToMany": lambda: one_to_many(source("A"), source("B"), "left"),
    "Over": lambda: over(source("A"), by_letter),
    "Reorder": lambda: reordered(source("A"), 3),
    "Select": lambda: mapped(source("A"), marked),
    "SelectKey": lambda: rekeyed(stream("A")),
    "SequenceBy": lambda: SequenceBy(
        "A_sequenced", "", source("A").key, VALUE, source("A"), Field("n", LONG), "n", 5
    ),
    "Source": lambda: source("A"),
    "StreamJoin": lambda: looked_up(stream("A"), source("B")),
    "Suppress": lambda: suppressed(source("A"), 4),
    "ToStream": lambda: to_stream(source("A")),
    "ToTable": lambda: to_table(stream("A")),
    "Top": lambda: topped(source("A"), by_letter),
    "Transactions": lambda: captured("A", whole_transactions()),
}


def kinds_of(base: type[Node]) -> set[type[Node]]:
    """The kinds below a kind that have no other kinds below them."""
    below = base.__subclasses__()
    return {one for kind in below for one in kinds_of(kind)} if below else {base}


def test_each_kind_of_operator_has_a_plan() -> None:
    assert set(OPERATORS) == {
        one.__name__ for one in kinds_of(Node) if one.__module__.startswith("tablestream")
    }
    for kind, make in OPERATORS.items():
        assert kind in {type(one).__name__ for one in ancestors(make())}


@pytest.mark.parametrize("kind", OPERATORS)
def test_each_kind_of_operator_goes_on_silently_or_is_refused_by_its_name(kind: str) -> None:
    """There is no third way; and if the logs are read again, none is refused."""
    node = OPERATORS[kind]()
    known, plan = facts([node])
    parts = fates(known, known, plan, ())
    assert [one.fate for one in parts if one.part == "output"] == ["silent"]
    refused = {one.name for one in parts if one.fate == "refused"}
    again = fates(known, known, plan, (), ["target 0"], refill=True)
    output = "silent" if node.is_stream else "told anew"  # another order of records can make another table
    wanted = {"source": "read again", "operator": "rebuilt", "output": output}
    assert all(one.fate == wanted[one.part] for one in again)
    if refused:
        of_kind = [one for one in ancestors(node) if type(one).__name__ == kind or one.is_stream]
        assert refused & {plan.names[one] for one in of_kind}
    else:
        log = random_log(sources_of([node]), 5, SIZE)
        assert_evolves([node], [node], random_cuts(log[:80], 5, 3), random_cuts(log[80:], 5, 3))


def test_logs_are_not_read_again_where_that_would_lose_something() -> None:
    """Rows of a bootstrap are in no log, and what waits for the time of its shard would wait for another one's."""
    events = reordered(stream("A"), 3)
    (refused,) = refill([events], [events], shards=5)
    assert refused == (events.name, "what waits in it, waits by shard: it needs shards=2, as before")
    started, rows = replace(source("A"), bootstrapped=True), ("A", "the rows of its bootstrap= are in no log")
    assert refill([started], [source("A")]) == refill([source("A")], [started]) == [rows]
    # Also if the query has evolved since, and the rows then came from the state. A source that was away begins anew.
    between = facts([source("A")])[0].following(facts([started])[0])
    assert refill(Facts.read(between.document), [source("A")]) == [rows]
    assert not refill(facts([source("B")])[0].following(between), [source("A")])
    (refused,) = refill([source("A"), source("B")], [source("A"), source("B")], begun_elsewhere=["B"])
    assert refused[0] == "B"
    assert "it is a Delta table" in refused[1]


CLOCKS: list[Callable[[Source], Node]] = [
    lambda events: to_stream(suppressed(to_table(events), 4, wall_clock=9)),
    lambda events: to_stream(kept(to_table(events), 4, wall_clock=9)),
    lambda events: looked_up(events, source("B"), grace=Grace(4, wall_clock_us=9)),
    lambda _: to_stream(captured("A", whole_transactions())),
]


@pytest.mark.parametrize("make", CLOCKS)
def test_what_a_stream_has_told_by_the_clock_is_not_decided_anew(make: Callable[[Source], Node]) -> None:
    node = make(stream("A"))
    ((name, why),) = refill([node], [node])
    assert name in {one.name for one in ancestors(node)}
    assert "the clock decides" in why
    table = to_table(node) if node.is_stream else node
    assert not refill([table], [table])
    assert not refill([source("A")], [node], at=1)  # a new output has told nothing


def time_of(word: str, _: Any) -> int:
    return int(word.strip("kx"))


#: What emits by the order of all keys, and three logs: as it came, the same in another order of keys, and what follows.
IN_ANOTHER_ORDER: list[tuple[Callable[[Source], Node], str, str, str]] = [
    (lambda table: suppressed(table, 4), "k3 k8 x10", "x10 k3 k8", "x14"),
    (lambda table: frozen(table, 9, time_of), "k15 k12 x22", "x22 k15 k12", "k!23"),
]


@pytest.mark.parametrize(("make", "came", "again", "later"), IN_ANOTHER_ORDER)
def test_logs_are_not_read_again_for_a_stream_that_would_tell_a_record_too_much(
    make: Callable[[Source], Node], came: str, again: str, later: str
) -> None:
    node = to_stream(make(source("A")))
    told = told_of(node, [written(came)], written(later))
    assert told_of(node, [written(came)], written(later), again=written(came)) == told
    assert told_of(node, [written(came)], written(later), again=written(again)) > told
    (refused,) = refill([node], [node])
    assert "it emits by the order of all keys" in refused[1]
    assert not refill([node], [node], at=1)
    table = make(source("A"))
    assert not refill([table], [table])


def first_side(left: str | None, _: str | None) -> str | None:
    return left


@pytest.mark.parametrize("order", [lambda one: repr(one.whole), lambda one: one.source.name])
@pytest.mark.parametrize(
    "make",
    [
        lambda events: reordered(events, 3),
        lambda events: looked_up(events, source("B"), "left", joiner=first_side, grace=Grace(4)),
        lambda events: to_stream(kept(to_table(events), 2)),
    ],
)
def test_what_waits_for_its_time_is_told_once_in_whatever_order_logs_are_read_again(
    make: Callable[[Source], Node], order: Callable[[Record], str]
) -> None:
    node = make(stream("A"))
    assert not refill([node], [node])
    for seed in range(5):
        log = random_log(sources_of([node]), seed, SIZE // 2, worlds=1)
        pieces, rest = random_cuts(log[:40], seed, 3), log[40:]
        again = sorted(log[:40], key=order)
        assert told_of(node, pieces, rest, again=again) == told_of(node, pieces, rest)


def written(log: str) -> list[Record]:
    """The records of words such as ``k12``: a key and a time. ``k!12`` is a tombstone."""
    words = [(word.rstrip("!0123456789"), word) for word in log.split()]
    return [
        Record(source("A"), (key,), None if "!" in word else word, int(word.strip("kx!")))
        for key, word in words
    ]


def told_of(
    node: Node,
    pieces: Sequence[Sequence[Record]],
    rest: Sequence[Record],
    again: Sequence[Record] | None = None,
) -> Counter[tuple[Any, Any]]:
    """What a stream tells in all; `again`: between, it evolves, and reads what came in this order, silently."""
    engine = Engine([Output(node)], shards=1)
    told = [change for piece in pieces for change in engine.run(of_plan(piece, sources_of([node])))[0]]
    if again is not None:
        engine = Engine([Output(node)], shards=1)
        engine.run(of_plan(again, sources_of([node])))
    told += engine.run(of_plan(rest, sources_of([node])))[0]
    return Counter((one.key, one.value) for one in told)


def facts(nodes: Sequence[Node]) -> tuple[Facts, PhysicalPlan]:
    plan = Engine([Output(node) for node in nodes], evolvable=True).plan
    return Facts.of(plan, {f"o{number}": f"target {number}" for number in range(len(nodes))}), plan


def refill(
    old: Sequence[Node] | Facts, new: Sequence[Node], at: int = 0, shards: int = 2, **given: Any
) -> list[tuple[str, str]]:
    """What is refused, and why, if the logs are read again; the new outputs' targets are numbered from `at`."""
    known = old if isinstance(old, Facts) else facts(old)[0]
    plan = Engine([Output(node) for node in new], shards=shards, evolvable=True).plan
    targets = [f"target {number}" for number in range(at, at + len(new))]
    now = Facts.of(plan, dict(zip(targets, targets, strict=True)))
    parts = fates(known, now, plan, (), targets, refill=True, **given)
    return [(one.name, one.why) for one in parts if one.fate == "refused"]


def refusals(old: Sequence[Node], new: Sequence[Node]) -> list[str]:
    before, (after, plan) = facts(old)[0], facts(new)
    return [
        one.why for one in fates(before, after, plan, ()) if one.fate == "refused" and one.part == "source"
    ]


def test_a_maintained_table_keeps_the_columns_that_its_output_no_longer_has() -> None:
    def of(*names: str) -> Node:
        value = tuple(Field(name, STRING) for name in names)
        columns = tuple(Named(name, called(name)) for name in names)
        return replace(mapped(source("A"), str), value=value, columns=columns)

    old, (new, plan) = facts([of("Name", "city", "n")])[0], facts([of("name", "m")])
    (output,) = (one for one in fates(old, new, plan, ("target 0",)) if one.part == "output")
    assert (output.fate, output.why) == (
        "brought over", "target 0 gets the new table as it is; the columns Name, city, n stay in it"
    )  # fmt: skip


def test_tables_that_are_called_the_same_do_not_evolve_into_other_ones() -> None:
    """Which of them is which cannot be told: the rows of one would become those of another."""
    first, second, other = source("A"), source("A"), source("B")
    both = [counts(first), counts(second)]
    assert not refusals(both, [counts(source("A")), counts(source("A"))])
    (why,) = refusals(both, [counts(second)])
    assert "several tables are called so" in why
    assert any(
        "several tables are called so" in why for why in refusals([counts(first), other], [*both, other])
    )


def test_a_plan_does_not_go_on_from_records_that_wait_for_others() -> None:
    """They are read, and in no table: the new plan would lack them."""
    node = counts(source("A"))
    aligned = Engine([Output(node)], align=Align(), evolvable=True)
    aligned.run([Record(one, "k", "a", 1) for one in aligned.plan.sources])
    assert not aligned.read("A")
    known, plan = facts([node])
    assert not records_wait(plan.text)
    parts = fates(known, known, plan, (), waits=records_wait(aligned.plan.text))
    assert [one.name for one in parts if one.fate == "refused"] == ["align="]
    parts = fates(known, known, plan, (), ["target 0"], waits=True, refill=True)
    assert not [one for one in parts if one.fate == "refused"]


def test_a_source_of_which_the_state_has_versions_is_not_whole() -> None:
    """Under its name the state has several rows of a key, and keys that are gone."""
    versions = replace(materialized(source("A"), 9), name="A/versions")
    engine = Engine([Output(versions)], evolvable=True)
    engine.run(
        [Record(one, "k", value, time) for one in engine.plan.sources for time, value in enumerate("ab")]
    )
    assert len(engine.read("A")) == 2
    (why,) = refusals([versions], [source("A")])
    assert why == NOT_WHOLE
    assert not refusals([materialized(source("A"), 9)], [source("A")])


def test_an_output_means_the_same_whatever_other_outputs_there_are_and_what_is_declared_first() -> None:
    a, b = source("A"), source("B")
    old = facts([key_join(a, b, "left")])[0].outputs["target 0"]
    b, a = source("B"), source("A")
    new = facts([key_join(filtered(a, has_a), b, "left"), key_join(a, b, "left")])[0].outputs["target 1"]
    assert old.meaning == new.meaning
    assert old.meaning != facts([key_join(b, a, "left")])[0].outputs["target 0"].meaning
