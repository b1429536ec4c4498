"""Laws of the reference: its outputs, kept as a table, are the join of its inputs; its two modes agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.strategies import (
    Change,
    cuts,
    foreign_key_changes,
    key_changes,
    self_join_changes,
)
from tests.reference import Filter, ForeignKeyJoin, Join, KeyJoin, OneToMany, Output, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.reference.key_join import How

Table: TypeAlias = dict[Any, Any]
Step: TypeAlias = list[tuple[int, Any, Any, int]]

PORTS = {"L": 0, "R": 1, "S": 2}
HOWS: list[How] = ["inner", "left", "right", "outer"]
every_how = pytest.mark.parametrize("how", HOWS)


def points_at(value: str, key: object = None) -> str | None:
    del key
    return value.partition("|")[2] if "|" in value else None


def messages(changes: Iterable[Change]) -> Step:
    return [(PORTS[topic], key, value, ts) for topic, key, value, ts in changes]


def table(changes: Iterable[tuple[Any, Any]]) -> Table:
    return {key: value for key, value in dict(changes).items() if value is not None}


def inputs(changes: Iterable[Change]) -> list[Table]:
    changes = list(changes)
    return [table((key, value) for at, key, value, _ in changes if at == topic) for topic in PORTS]


def kept(outputs: Iterable[Output]) -> Table:
    return table((out.key, out.value) for out in outputs)


def run(operator: Reference, steps: Iterable[Step]) -> list[Output]:
    """Run the steps; in default mode each key may emit once a step."""
    outputs = []
    for step in steps:
        out = operator.step(step)
        if not operator.compat:
            assert max(Counter(o.key for o in out).values(), default=1) == 1, out
        outputs += out
    return outputs


def one_by_one(changes: Iterable[Change]) -> list[Step]:
    return [[message] for message in messages(changes)]


def twice(changes: Iterable[Change]) -> list[Step]:
    """One table that is read at both ports."""
    return [[(0, key, value, ts), (1, key, value, ts)] for _, key, value, ts in changes]


def join_keys(left: Table, right: Table, how: str) -> Table:
    keys = {
        "inner": left.keys() & right.keys(),
        "left": left.keys(),
        "right": right.keys(),
        "outer": left.keys() | right.keys(),
    }[how]
    return {key: (left.get(key), right.get(key)) for key in keys}


def join_foreign_keys(left: Table, right: Table, how: str) -> Table:
    keep_left, keep_right = how in {"left", "outer"}, how in {"right", "outer"}
    pairs = {key: (value, right.get(points_at(value))) for key, value in left.items()}
    rows = {key: pair for key, pair in pairs.items() if keep_left or pair[1] is not None}
    if not keep_right:
        return rows
    unmatched = right.keys() - {points_at(value) for value in left.values()}
    return {(key, None): pair for key, pair in rows.items()} | {
        (None, key): (None, right[key]) for key in unmatched
    }


def join_one_to_many(many: Table, one: Table, how: str) -> Table:
    rows: Table = {
        (points_at(value), key): (one[points_at(value)], value)
        for key, value in many.items()
        if points_at(value) in one
    }
    if how == "left":
        rows |= {(key, None): (one[key], None) for key in one.keys() - {points_at(v) for v in many.values()}}
    return rows


@every_how
@given(data=st.data(), changes=key_changes(["L", "R", "S"]))
def test_a_tree_of_key_joins_ends_as_the_join_of_the_final_tables(
    how: Any, data: st.DataObject, changes: list[Change]
) -> None:
    other = data.draw(st.sampled_from(HOWS))
    tree = data.draw(st.sampled_from([Join(Join(0, 1, how), 2, other), Join(0, Join(1, 2, other), how)]))
    left, right, third = inputs(changes)
    if tree.right == 2:
        wanted = join_keys(join_keys(left, right, how), third, other)
    else:
        wanted = join_keys(left, join_keys(right, third, other), how)
    pieces = [messages(piece) for piece in data.draw(cuts(changes))]
    assert kept(run(KeyJoin(tree), pieces)) == wanted
    assert kept(run(KeyJoin(tree, compat=True), one_by_one(changes))) == wanted


@every_how
@given(data=st.data(), changes=foreign_key_changes())
def test_foreign_key_join_ends_as_the_join_of_the_final_tables(
    how: Any, data: st.DataObject, changes: list[Change]
) -> None:
    left, right, _ = inputs(changes)
    wanted = join_foreign_keys(left, right, how)
    pieces = [messages(piece) for piece in data.draw(cuts(changes))]
    assert kept(run(ForeignKeyJoin(points_at, how), pieces)) == wanted
    assert kept(run(ForeignKeyJoin(points_at, how, compat=True), pieces)) == wanted


@every_how
@given(changes=self_join_changes())
def test_self_joins_end_as_the_join_of_the_final_tables(how: Any, changes: list[Change]) -> None:
    rows = inputs(changes)[0]
    foreign_key = join_foreign_keys(rows, rows, how)
    shared = ForeignKeyJoin(points_at, how, store_ids=["L", "L"], compat=True)
    assert kept(run(ForeignKeyJoin(points_at, how), twice(changes))) == foreign_key
    assert kept(run(shared, twice(changes))) == foreign_key
    assert kept(run(KeyJoin(how), twice(changes))) == join_keys(rows, rows, how)


@pytest.mark.parametrize("how", ["inner", "left"])
@given(data=st.data(), changes=foreign_key_changes())
def test_one_to_many_ends_as_the_join_of_the_final_tables(
    how: Any, data: st.DataObject, changes: list[Change]
) -> None:
    many, one, _ = inputs(changes)
    wanted = join_one_to_many(many, one, how)
    pieces = [messages(piece) for piece in data.draw(cuts(changes))]
    assert kept(run(OneToMany(points_at, how), pieces)) == wanted
    assert kept(run(OneToMany(points_at, how, compat=True), pieces)) == wanted


@given(data=st.data(), changes=key_changes(["L"]))
def test_filter_ends_as_the_filtered_final_table(data: st.DataObject, changes: list[Change]) -> None:
    wanted = {key: value for key, value in inputs(changes)[0].items() if value == "a"}
    pieces = [messages(piece) for piece in data.draw(cuts(changes))]
    assert kept(run(Filter("a".__eq__), pieces)) == wanted
    assert kept(run(Filter("a".__eq__, compat=True), pieces)) == wanted


@pytest.mark.parametrize(
    "make",
    [
        *(lambda compat, how=how: KeyJoin(how, compat=compat) for how in HOWS),
        *(lambda compat, how=how: ForeignKeyJoin(points_at, how, compat=compat) for how in HOWS),
        *(lambda compat, how=how: OneToMany(points_at, how, compat=compat) for how in ("inner", "left")),
        lambda compat: Filter("a|x".__eq__, old_values=True, compat=compat),
    ],
)
@given(changes=foreign_key_changes(left_keys=["x", "y"], right_keys=["x", "y"]))
def test_modes_agree_on_steps_of_one_message(
    make: Callable[[bool], Reference], changes: list[Change]
) -> None:
    if isinstance(make(False), Filter):
        changes = [change for change in changes if change[0] == "L"]
    default, compat = make(False), make(True)
    assert run(default, one_by_one(changes)) == run(compat, one_by_one(changes))
    assert default.dropped == compat.dropped


@every_how
@given(data=st.data(), changes=foreign_key_changes())
def test_a_step_ends_where_its_messages_end_one_by_one(
    how: Any, data: st.DataObject, changes: list[Change]
) -> None:
    """After each step, not only at the end, the default's table is the one that compat arrives at."""
    default, compat = ForeignKeyJoin(points_at, how), ForeignKeyJoin(points_at, how, compat=True)
    default_table: Table = {}
    compat_table: Table = {}
    for piece in data.draw(cuts(changes)):
        default_table = table(
            [*default_table.items(), *((o.key, o.value) for o in default.step(messages(piece)))]
        )
        compat_table = table(
            [*compat_table.items(), *((o.key, o.value) for o in compat.step(messages(piece)))]
        )
        assert default_table == compat_table
