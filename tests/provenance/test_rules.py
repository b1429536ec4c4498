"""What is said of rows, and of keys that have none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tablestream.planner.physical_plan import Output
from tablestream.provenance.answer import Why, key_text, text_of
from tablestream.provenance.finding import Asked
from tablestream.provenance.registry import described
from tablestream.provenance.steps import decode, encode
from tablestream.topology.graph import base_of
from tablestream.topology.nodes import Named
from tests.pictures.drawn import Drawn
from tests.plans import catalogue
from tests.plans.engine import Engine
from tests.plans.tables import (
    Record,
    called,
    counted,
    foreign_key_join,
    kept,
    key_join,
    many_to_many,
    mapped,
    materialized,
    one_to_many,
    over,
    points,
    source,
    starred,
    stream,
    suppressed,
    to_table,
)
from tests.provenance.asking import walk, why
from tests.simulation.recipes import WithName, by_letter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

pointer = WithName("pointer", points(0))
own_key = WithName("own_key", catalogue.own_key)
A, B, C = source("A"), source("B"), source("C")
LOG = [
    Record(A, "1", "a|x|z", 1),
    Record(A, "2", "a|zz", 2),
    Record(A, "3", "a", 3),
    Record(B, "x", "ax", 4),
    Record(B, "y", "ay", 5),
    Record(C, "z", "az", 6),
]


def said(node: Node, *keys: object) -> list[str]:
    """The texts about some keys of a table, after the log."""
    engine = Engine([Output(node)])
    engine.run([one for one in LOG if one.source in engine.plan.sources])
    return [text_of(one) for one in why(engine, node, *keys)]


def test_the_row_that_a_foreign_key_names_is_named_also_if_it_is_missing() -> None:
    texts = said(foreign_key_join(A, B, "inner", pointer), "1", "2", "3", "4")
    assert [text.splitlines() for text in texts] == [
        [
            "A_B (inner join) k0=1: not in the state: v = pair",
            "  A (source) k0=1: v=a|x|z",
            "  B (source) k0=x: v=ax; at 4",
        ],
        [
            "A_B (inner join) k0=2: no row",
            "  - A 2 names B zz, which has no row; the join is inner.",
            "  A (source) k0=2: v=a|zz",
            "  B (source) k0=zz: no row",
        ],
        [
            "A_B (inner join) k0=3: no row",
            "  - A 3 names no row of B: pointer is null; the join is inner.",
            "  A (source) k0=3: not in the state: v",
        ],
        ["A_B (inner join) k0=4: no row", "  - A has no row with this key.", "  A (source) k0=4: no row"],
    ]


def test_all_tables_of_a_star_stand_beside_its_center() -> None:
    star = starred(A, (B, "inner", points(0)), (C, "left", points(1)))
    one, two = said(star, "1", "2")
    assert one.splitlines()[1:] == [
        "  A (source) k0=1: v=a|x|z; at 1",
        "  B (source) k0=x: v=ax; at 4",
        "  C (source) k0=z: v=az; at 6",
    ]
    assert "no row\n  - A 2 names B zz, which has no row; the join is inner." in two


def test_spread_and_copied_tables_are_found_where_they_are() -> None:
    for join in (foreign_key_join(A, B, spread=3), foreign_key_join(A, B, copied=True)):
        engine = Engine([Output(join)], shards=5)
        engine.run([one for one in LOG if one.source is not C])
        (found,) = why(engine, join, "1")
        assert [one.table for one in found.sources] == ["A", "B"]


def test_a_right_row_alone_is_there_while_nothing_names_it() -> None:
    join = foreign_key_join(A, B, "outer")
    named, alone, none = said(join, (None, "x"), (None, "y"), ("1", "x"))
    assert named.startswith("A_B (outer join) k0=null, k1=x: no row\n  - B x has matches, such as 1.")
    assert alone.splitlines()[1] == "  B (source) k0=y: v=ay; at 5"
    assert "or that of a right row that nothing names." in none


def test_of_one_to_many_the_row_of_the_many_has_to_name_the_one() -> None:
    join = one_to_many(B, A, "left")
    there, other, alone = said(join, ("x", "1"), ("y", "1"), ("y", None))
    assert [line.strip() for line in there.splitlines()[1:]] == [
        "B (source) k0=x: v=ax; at 4", "A (source) k0=1: v=a|x|z"
    ]  # fmt: skip
    assert "- A 1 names B x." in other
    assert alone.splitlines()[1:] == ["  B (source) k0=y: v=ay; at 5"]


def test_the_sides_of_a_join_have_the_names_of_its_tables_also_in_what_is_selected_of_it() -> None:
    worth = (Named("v", called("(__left.n AS n * __right.price AS price)")),)
    pairs = many_to_many(A, C, pointer, own_key)
    for node in (replace(key_join(A, C), select=worth), replace(mapped(pairs, str), columns=worth)):
        plan = Engine([Output(node)]).plan
        step = described(plan, {}, lambda _: None).steps[plan.names[node]]
        assert [one.text for one in step.columns] == ["(A.n * C.price)"]


def test_a_group_shows_some_of_its_rows_and_says_that_there_are_more() -> None:
    groups = base_of(counted(A, by_letter))
    engine = Engine([Output(groups)])
    engine.run([one for one in LOG if one.source is A])
    (all_rows,) = why(engine, groups, "a")
    assert len(all_rows.made_of) == 3
    assert all_rows.notes == ()
    from_few = walk(engine, limit=2)
    (few,) = from_few.find(engine.plan.names[groups], [_asked("a")])
    assert len(few.made_of) == 2
    assert few.notes == ("The group has more rows; the first 2 that were found are shown.",)
    (none,) = why(engine, groups, "q")
    assert none.notes == ("No row of A has by_letter = q.",)


def _asked(key: str) -> Asked:
    return Asked((key,))


def test_a_group_of_many_rows_takes_as_many_reads_as_one_of_a_single_row() -> None:
    groups = base_of(counted(foreign_key_join(A, B, "left"), by_letter))
    reads = []
    for size in (1, 30):
        engine = Engine([Output(groups)])
        engine.run([Record(A, str(number), "a|x", number) for number in range(size)])
        asking = walk(engine)
        (found,) = asking.find(engine.plan.names[groups], [_asked("(")])
        assert len(found.made_of) == size
        reads.append(asking.state.reads)  # type: ignore[attr-defined]
    assert reads[0] == reads[1]


def test_a_null_in_a_key_has_no_match() -> None:
    groups, others = counted(A, points(0)), counted(B, points(0))
    inner, left = (
        said(key_join(groups, others), (None,))[0],
        said(key_join(groups, others, "left"), (None,))[0],
    )
    note = "A key with a null has no match: a null equals nothing."
    assert ": no row" in inner.splitlines()[0]
    assert note in inner
    assert ": no row" not in left.splitlines()[0]
    assert note in left


def test_a_group_without_a_key_may_be_one_of_many() -> None:
    join = one_to_many(B, counted(A, points(1)), "left")
    engine = Engine([Output(join)])
    engine.run([*LOG[:5], Record(B, "zz", "az", 6)])
    paired, alone = why(engine, join, ("zz", None), ("y", None))
    assert [one.table for one in paired.sources] == ["B", "A", "A"]
    assert [one.table for one in alone.sources] == ["B"]
    assert paired.there
    assert alone.there


def test_a_row_with_window_functions_stands_beside_its_partition() -> None:
    windows = base_of(over(A, by_letter))
    one, none = said(windows, "1", "9")
    assert [line.strip() for line in one.splitlines()[1:]] == [
        "A (source) k0=1: not in the state: v",
        "A (source) k0=2: not in the state: v",
        "A (source) k0=3: not in the state: v",
    ]
    assert none.splitlines()[1:] == ["  - A has no row with this key."]
    engine = Engine([Output(windows)])
    engine.run(LOG[:3])
    (few,) = walk(engine, limit=2).find(engine.plan.names[windows], [_asked("2")])
    assert few.made_of[0].key == {"k0": "2"}
    assert (len(few.made_of), few.notes) == (2, ("Its partition has more rows; 2 are shown.",))


def test_a_row_that_was_forgotten_is_said_to_have_been_too_old() -> None:
    forgetting = kept(A, 1)
    one, three = said(forgetting, "1", "3")
    why_not = "older than the newest row by more than 0:00:00.000001."
    assert one.splitlines()[:2] == [
        "A_keep (keep 0:00:00.000001) k0=1: no row",
        f"  - A_keep has no row with this key: A has none, or it was {why_not}",
    ]
    assert three.splitlines()[0] == "A_keep (keep 0:00:00.000001) k0=3: not in the state: v"
    engine = Engine([Output(forgetting)], evolvable=True)  # the state has the source
    engine.run(LOG[:3])
    told = [text_of(of).splitlines() for of in why(engine, forgetting, "1", "3", "9")]
    assert told[0][1] == f"  - A_keep has no row with this key: it was {why_not}"
    assert told[1] == ["A_keep (keep 0:00:00.000001) k0=3: v=a", "  A (source) k0=3: v=a; at 3"]
    assert told[2][:2] == ["A_keep (keep 0:00:00.000001) k0=9: no row", "  - A has no row with this key."]
    clocked = kept(A, 86_400_000_000, wall_clock=3_600_000_000)
    (text,) = said(clocked, "9")
    assert "by more than 1 day, or unchanged for 1:00:00 on the clock." in text


def test_a_pair_has_the_same_values_on_both_sides() -> None:
    join = many_to_many(A, C, pointer, own_key)
    log = [*LOG[:3], Record(C, "x", "ax", 6), Record(C, "zz", "az", 6)]
    engine = Engine([Output(join)])
    engine.run(log)
    there, other, nothing = why(engine, join, ("1", "x"), ("1", "zz"), ("3", "q"))
    assert [(one.table, one.row) for one in there.sources] == [("A", {"v": "a|x|z"}), ("C", {"v": "ax"})]
    assert other.notes == ("A 1 has x: pointer.", "C zz has zz: own_key.")
    assert nothing.notes == (
        "A has no row with this key, or a null in pointer.",
        "C has no row with this key, or a null in own_key.",
    )
    assert (there.there, other.there, nothing.there) == (True, False, False)


NOT_FOLLOWED: dict[str, Callable[[], Node]] = {
    "histories on the key": lambda: key_join(materialized(A, 5), materialized(B, 5), complete_history=True),
    "histories by a foreign key": lambda: foreign_key_join(
        materialized(A, 5), materialized(B, 5), complete_history=True
    ),
    "records": lambda: to_table(stream("S")),
}


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_what_is_not_followed_says_what_it_reads(name: str) -> None:
    node = base_of(NOT_FOLLOWED[name]())
    engine = Engine([Output(node)])
    (found,) = why(engine, node, ("1",) * len(node.key))
    assert found.there is None
    (note,) = found.notes
    assert note.startswith("Not followed: ")
    assert note.endswith(
        f" It reads {', '.join(dict.fromkeys(walk(engine).title(one) for one in _parents(engine, node)))}."
    )


def _parents(engine: Engine, node: Node) -> tuple[str, ...]:
    return walk(engine).lineage.steps[engine.plan.names[node]].parents


def test_a_change_may_wait_in_a_buffer() -> None:
    waiting = suppressed(foreign_key_join(A, B), 5)
    (text,) = said(waiting, "1")
    assert "not known whether there is a row" in text
    assert " may hold a change back, or have removed the row: this is not known." in text


def test_a_row_that_kafka_streams_never_deletes_is_not_said_to_be_there() -> None:
    join = key_join(A, A)
    engine = Engine([Output(join)], compat=True)
    (changes,) = engine.run([Record(A, "1", "a", 1), Record(A, "1", None, 2)])
    assert changes[-1].value is not None
    (found,) = why(engine, join, "1")
    assert found.there is False


def test_what_is_only_there_for_rejected_records_is_described() -> None:
    join = foreign_key_join(A, B)
    engine = Engine([Output(counted(join, by_letter), rejected=True)])
    lineage = described(engine.plan, {}, lambda _: None)
    assert encode(lineage) == encode(decode(encode(lineage)))  # type: ignore[arg-type]


def test_steps_of_another_version_are_not_read() -> None:
    assert decode('{"version": 99}') is None


def test_an_answer_is_a_picture_too() -> None:
    joined = foreign_key_join(A, B, "inner", pointer)
    for node, key in ((counted(joined, own_key), "zz"), (joined, "2"), (joined, "1"), (A, "1")):
        engine = Engine([Output(node)])
        engine.run([one for one in LOG if one.source in engine.plan.sources])
        (found,) = why(engine, node, key)
        shown = Drawn(Why(found, 4).svg)
        assert shown.faults() == []
        assert len(shown.boxes) == len(list(found.every)) == len(shown.arrows) + 1
        said = "".join(text.name for texts in shown.texts for text in texts).replace(" ", "")
        for one in found.every:
            parts = [f"{one.table}({one.what})", key_text(one), *one.notes]
            assert all(part.replace(" ", "") in said for part in parts), one
        assert Why(replace(found, made_of=(found,) * 200), 4)._repr_mimebundle_().keys() == {"text/plain"}
        assert Why(found, 4)._repr_mimebundle_() == {
            "image/svg+xml": Why(found, 4).svg,
            "text/plain": text_of(found),
        }
