"""The reference's joins on the key, in both modes, through scenarios seen on Kafka Streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.notation import PORTS, both_modes, check, self_joined, single
from tests.conformance.vectors import joined
from tests.reference import Join, KeyJoin, Output

SCENARIO = (
    "L~1 R~2 LA3 Ra4 LB5 Rb6 L~7 R~8 LC9 Rc10 R~11 L~12 R~13 Rd7 LD6 L~2 R~3 Re14 LE15 L~10 R~9 LF4 Rf3"
)
SCENARIO_OUTPUTS = {
    "inner": "- - - A-a@4 B-a@5 B-b@6 ~@7 - - C-c@10 ~@11 - - - D-d@7 ~@7 - - E-e@15 ~@14 - - F-f@4",
    "left": "- - A-~@3 A-a@4 B-a@5 B-b@6 ~@7 - C-~@9 C-c@10 C-~@11 ~@12 - - D-d@7 ~@7 - - E-e@15 ~@14 - "
    "F-~@4 F-f@4",
    "outer": "- - A-~@3 A-a@4 B-a@5 B-b@6 ~-b@7 ~@8 C-~@9 C-c@10 C-~@11 ~@12 - ~-d@7 D-d@7 ~-d@7 ~@3 ~-e@14 "
    "E-e@15 ~-e@14 ~@9 F-~@4 F-f@4",
}


@both_modes
@pytest.mark.parametrize("how", SCENARIO_OUTPUTS)
def test_key_join_through_the_reference_scenario(how: Any, compat: bool) -> None:
    join = KeyJoin(how, joiner=lambda left, right: f"{left or '~'}-{right or '~'}", compat=compat)
    seen = []
    for record in SCENARIO.split():
        value = None if record[1] == "~" else record[1]
        outputs = join.change(PORTS[record[0]], "k", value, int(record[2:]))
        assert len(outputs) <= 1
        seen.append("".join(f"{out.value or '~'}@{out.ts}" for out in outputs) or "-")
    assert " ".join(seen) == SCENARIO_OUTPUTS[how]


@both_modes
def test_inner_join_deletes_what_never_was(compat: bool) -> None:
    trace = """
        R k r@1 → -
        L k ~@2 → k=~@2
        L k ~@3 → k=~@3
    """
    check(single(KeyJoin("inner", joiner=joined, compat=compat)), trace)


@both_modes
def test_left_join_deletes_what_never_was_only_where_there_is_a_right_row(compat: bool) -> None:
    trace = """
        L k ~@1 → -
        R k r@2 → -
        L k ~@1 → k=~@2
    """
    check(single(KeyJoin("left", joiner=joined, compat=compat)), trace)


@both_modes
def test_outer_join_repeats_the_right_row(compat: bool) -> None:
    trace = """
        R k r@3 → k=(null,r)@3
        L k ~@4 → k=(null,r)@4
    """
    check(single(KeyJoin("outer", joiner=joined, compat=compat)), trace)


@both_modes
@pytest.mark.parametrize("how", ["left", "outer"])
def test_a_second_delete_of_the_right_row_repeats_the_left_one(how: Any, compat: bool) -> None:
    trace = """
        L k a@4 → k=(a,null)@4
        R k ~@5 → k=(a,null)@5
        R k ~@6 → k=(a,null)@6
    """
    check(single(KeyJoin(how, joiner=joined, compat=compat)), trace)


@both_modes
def test_inner_join_is_silent_where_the_other_side_is_absent(compat: bool) -> None:
    trace = """
        L k a@1 → -
        L k ~@2 → -
        R k r@3 → -
        R k ~@4 → -
    """
    check(single(KeyJoin("inner", joiner=joined, compat=compat)), trace)


@both_modes
def test_unchanged_rows_are_joined_again(compat: bool) -> None:
    trace = """
        L k a@1 → -
        R k r@1 → k=(a,r)@1
        R k r@1 → k=(a,r)@1
    """
    check(single(KeyJoin("inner", joiner=joined, compat=compat)), trace)


@both_modes
def test_timestamps_of_a_join_may_go_back(compat: bool) -> None:
    trace = """
        L k a@10 → -
        R k r@5  → k=(a,r)@10
        R k s@20 → k=(a,s)@20
        L k b@3  → k=(b,s)@20
        R k ~@1  → k=~@3
    """
    check(single(KeyJoin("inner", joiner=joined, compat=compat)), trace)


@both_modes
def test_right_join_is_the_left_join_mirrored(compat: bool) -> None:
    trace = """
        R k r@3 → k=(null,r)@3
        L k a@1 → k=(a,r)@3
        L k ~@5 → k=(null,r)@5
        R k ~@4 → k=~@4
        R k ~@6 → -
        L k b@7 → -
    """
    check(single(KeyJoin("right", joiner=joined, compat=compat)), trace)


@pytest.mark.parametrize(
    ("how", "delete"), [("inner", []), ("left", [("k", None, 2)]), ("outer", [("k", None, 2)] * 2)]
)
def test_key_self_join_in_compat_answers_once_per_role(how: Any, delete: list[Output]) -> None:
    join = self_joined(KeyJoin(how, joiner=joined, store_ids=["x", "x"], compat=True))
    assert join("L", "k", "a", 1) == [("k", "(a,a)", 1)] * 2
    assert join("L", "k", None, 2) == delete


def test_key_self_join_in_compat_takes_one_change_after_the_other() -> None:
    join = KeyJoin("inner", joiner=joined, store_ids=["x", "x"], compat=True)
    step = [(port, "k", value, 1) for value in ("a", "b") for port in (0, 1)]
    assert [out.value for out in join.step(step)] == ["(a,a)", "(a,a)", "(b,b)", "(b,b)"]


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_key_self_join_answers_once_and_deletes(how: Any) -> None:
    trace = """
        L k ~@1 → -
        L k a@2 → k=(a,a)@2
        L k b@1 → k=(b,b)@1
        L k ~@3 → k=~@3
        L k ~@4 → -
    """
    check(self_joined(KeyJoin(how, joiner=joined)), trace)


def test_a_table_joined_twice_is_answered_twice_in_compat() -> None:
    tree = Join(Join(0, 1, "inner", joined), 2, "inner", joined)
    join = KeyJoin(tree, store_ids=["A", "B", "B"], compat=True)
    assert join.change(0, "k", "C", 1) == []
    assert join.step([(1, "k", "c", 2), (2, "k", "c", 2)]) == [("k", "((C,c),c)", 2)] * 2


def test_a_table_joined_twice_is_answered_once() -> None:
    join = KeyJoin(Join(Join(0, 1, "inner", joined), 2, "inner", joined))
    assert join.change(0, "k", "C", 1) == []
    assert join.step([(1, "k", "c", 2), (2, "k", "c", 2)]) == [("k", "((C,c),c)", 2)]


@both_modes
def test_a_join_read_as_other_has_the_time_of_its_latest_row(compat: bool) -> None:
    join = KeyJoin(Join(Join(0, 1, "left", joined), 2, "inner", joined), compat=compat)
    assert join.change(1, "k", "b", 9) == []
    assert join.change(0, "k", "a", 3) == []
    assert join.change(2, "k", "c", 4) == [("k", "((a,b),c)", 9)]
    assert join.change(1, "k", None, 5) == [("k", "((a,null),c)", 5)]
    assert join.change(2, "k", "d", 2) == [("k", "((a,null),d)", 3)]


def test_both_sides_in_one_step_have_the_later_time_and_no_needless_tombstone() -> None:
    join = KeyJoin("inner", joiner=joined)
    assert join.step([(0, "k", None, 1), (1, "k", "r", 2)]) == []
    assert join.step([(1, "k", None, 4), (0, "k", "a", 3)]) == []
    assert join.step([(1, "k", "r", 5), (0, "k", "b", 3)]) == [("k", "(b,r)", 5)]
    assert join.step([(0, "k", None, 9), (1, "k", None, 7)]) == [("k", None, 9)]


def test_joiner_may_make_a_tombstone() -> None:
    join = KeyJoin("inner", joiner=lambda left, right: None if left == right else joined(left, right))
    check(single(join), "L k a@1 → - \n R k a@2 → k=~@2 \n R k b@3 → k=(a,b)@3")


def test_ports_of_a_tree_may_stand_in_any_order() -> None:
    check(single(KeyJoin(Join(1, 0, "left", joined))), "L k a@1 → - \n R k b@2 → k=(b,a)@2")


def test_ports_of_a_tree_are_numbered_once() -> None:
    with pytest.raises(ValueError, match=r"\(0, 0\)"):
        KeyJoin(Join(0, 0))
    with pytest.raises(ValueError, match="3 stores for 2 ports"):
        KeyJoin("inner", store_ids=[1, 2, 3])
