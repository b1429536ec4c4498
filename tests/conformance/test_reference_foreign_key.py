"""The reference's foreign-key joins: KIP-213's examples, traces of Kafka Streams, and what it has not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.notation import both_modes, check, self_joined, single
from tests.conformance.vectors import foreign_key, joined
from tests.reference import ForeignKeyJoin, OneToMany

# Joins on a foreign key.


def fk_join(how: Any, *, compat: bool) -> ForeignKeyJoin:
    return ForeignKeyJoin(foreign_key, how, joiner=joined, compat=compat)


def kip_213_join(how: Any, *, compat: bool) -> ForeignKeyJoin:
    """Left rows are foreign keys, and the right table holds 1 → foo."""
    join = ForeignKeyJoin(lambda value, _: value, how, joiner=joined, compat=compat)
    assert join.change(ForeignKeyJoin.RIGHT, "1", "foo", 0) == []
    return join


@both_modes
def test_kip_213_workflow_inner(compat: bool) -> None:
    trace = """
        L k 1@1    → k=(1,foo)@1
        L k 2@2    → k=~@2
        L k 3@3    → k=~@3
        R 3 bar@4  → k=(3,bar)@4
        L k ~@5    → k=~@5
        L k 1@6    → k=(1,foo)@6
        L q 10@7   → -
        R 10 baz@8 → q=(10,baz)@8
    """
    check(single(kip_213_join("inner", compat=compat)), trace)


@both_modes
def test_kip_213_workflow_left(compat: bool) -> None:
    trace = """
        L k 1@1    → k=(1,foo)@1
        L k 2@2    → k=(2,null)@2
        L k 3@3    → k=(3,null)@3
        R 3 bar@4  → k=(3,bar)@4
        L k ~@5    → k=~@5
        L k 1@6    → k=(1,foo)@6
        L q 10@7   → q=(10,null)@7
        R 10 baz@8 → q=(10,baz)@8
    """
    check(single(kip_213_join("left", compat=compat)), trace)


@both_modes
@pytest.mark.parametrize("how", ["inner", "left"])
def test_kip_213_rapid_changes(how: Any, compat: bool) -> None:
    trace = """
        R Y bar@1 → -
        L A 1|Y@2 → A=(1|Y,bar)@2
        L A 2|Y@3 → A=(2|Y,bar)@3
    """
    check(single(fk_join(how, compat=compat)), trace)


@both_modes
def test_kip_213_rapid_changes_in_one_step(compat: bool) -> None:
    join = fk_join("inner", compat=compat)
    join.change(ForeignKeyJoin.RIGHT, "Y", "bar", 1)
    outputs = join.step([(0, "A", "1|Y", 2), (0, "A", "2|Y", 3)])
    last = ("A", "(2|Y,bar)", 3)
    assert outputs == ([("A", "(1|Y,bar)", 2), last] if compat else [last])


@both_modes
def test_kip_213_first_proposal_one_to_many(compat: bool) -> None:
    join = OneToMany(foreign_key, joiner=joined, compat=compat)
    trace = """
        one  A0 a0@1   → -
        one  A1 a1@2   → -
        many B0 b0|A2@3 → -
        many B1 b1|A2@4 → -
        one  A2 a2@5   → A2/B0=(a2,b0|A2)@5 A2/B1=(a2,b1|A2)@5
        many B1 ~@6    → A2/B1=~@6
        many B3 b3|A0@7 → A0/B3=(a0,b3|A0)@7
        one  A2 ~@8    → A2/B0=~@8
        many B4 b4@9   → -
    """
    check(single(join), trace)
    assert join.dropped == 1  # KIP-213 drops a row without an A silently


@both_modes
def test_foreign_key_inner_join_trace(compat: bool) -> None:
    trace = """
        L l1 a|x@1 → -
        R x  X@2   → l1=(a|x,X)@2
        L l1 b|x@3 → l1=(b|x,X)@3
        L l1 b|x@2 → l1=(b|x,X)@2
        L l1 c|y@4 → l1=~@4
        R y  Y@5   → l1=(c|y,Y)@5
        L l1 d|x@6 → l1=(d|x,X)@6
        L l1 ~@7   → l1=~@7
        L l1 ~@8   → -
    """
    check(single(fk_join("inner", compat=compat)), trace)


@both_modes
def test_foreign_key_left_join_trace(compat: bool) -> None:
    trace = """
        L l1 a|x@1 → l1=(a|x,null)@1
        R x  X@2   → l1=(a|x,X)@2
        L l1 b|x@3 → l1=(b|x,X)@3
        L l1 b|x@2 → l1=(b|x,X)@2
        L l1 c|y@4 → l1=(c|y,null)@4
        R y  Y@5   → l1=(c|y,Y)@5
        L l1 d|x@6 → l1=(d|x,X)@6
        L l1 ~@7   → l1=~@7
        L l1 ~@8   → -
    """
    check(single(fk_join("left", compat=compat)), trace)


@both_modes
def test_foreign_key_join_deletes_a_row_that_never_joined(compat: bool) -> None:
    inner = "L l1 a|x@1 → - \n L l1 ~@2 → l1=~@2 \n L l1 ~@3 → -"
    left = "L l1 a|x@1 → l1=(a|x,null)@1 \n L l1 ~@2 → l1=~@2 \n L l1 ~@3 → -"
    check(single(fk_join("inner", compat=compat)), inner)
    check(single(fk_join("left", compat=compat)), left)


@both_modes
def test_foreign_key_moves_without_a_right_row(compat: bool) -> None:
    inner = "L l1 a|x@1 → - \n L l1 a|y@2 → l1=~@2 \n L l1 a|y@3 → -"
    left = "L l1 a|x@1 → l1=(a|x,null)@1 \n L l1 a|y@2 → l1=(a|y,null)@2 \n L l1 a|y@3 → l1=(a|y,null)@3"
    check(single(fk_join("inner", compat=compat)), inner)
    check(single(fk_join("left", compat=compat)), left)


@both_modes
def test_null_foreign_keys_inner(compat: bool) -> None:
    join = fk_join("inner", compat=compat)
    trace = """
        L l1 a@1   → -
        L l1 b@2   → -
        R x  X@3   → -
        L l1 a|x@4 → l1=(a|x,X)@4
        L l1 c@5   → l1=~@5
        L l1 d@6   → -
        L l1 ~@7   → -
    """
    check(single(join), trace)
    assert join.dropped == 4


@both_modes
def test_null_foreign_keys_left(compat: bool) -> None:
    join = fk_join("left", compat=compat)
    trace = """
        L l1 a@1   → l1=(a,null)@1
        L l1 b@2   → l1=(b,null)@2
        R x  X@3   → -
        L l1 a|x@4 → l1=(a|x,X)@4
        L l1 c@5   → l1=(c,null)@5
        L l1 d@6   → l1=(d,null)@6
        L l1 ~@7   → l1=~@7
    """
    check(single(join), trace)
    assert join.dropped == 0


@both_modes
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_right_change_reaches_left_rows_in_the_order_of_their_bytes(how: Any, compat: bool) -> None:
    join = fk_join(how, compat=compat)
    for ts, key in enumerate(["l2", "l1", "l10"]):
        join.change(ForeignKeyJoin.LEFT, key, "a|x", ts)
    joined_rows = [(key, "(a|x,X)", 4) for key in ("l1", "l10", "l2")]
    assert join.change(ForeignKeyJoin.RIGHT, "x", "X", 4) == joined_rows


@both_modes
def test_a_right_change_keeps_its_own_time(compat: bool) -> None:
    trace = """
        R x X@10  → -
        L a a|x@5 → a=(a|x,X)@10
        L b b|x@3 → b=(b|x,X)@10
        R x Z@2   → a=(a|x,Z)@2 b=(b|x,Z)@2
        R x ~@1   → a=~@1 b=~@1
        R x ~@0   → a=~@0 b=~@0
    """
    check(single(fk_join("inner", compat=compat)), trace)


@both_modes
def test_times_of_left_deletes_and_of_null_foreign_keys(compat: bool) -> None:
    inner = """
        R x X@9   → -
        L a a|x@1 → a=(a|x,X)@9
        L a a@2   → a=~@9
        L a a|x@3 → a=(a|x,X)@9
        L a ~@4   → a=~@9
    """
    left = """
        R x X@9   → -
        L a a|x@1 → a=(a|x,X)@9
        L a a@2   → a=(a,null)@2
        L a a|x@3 → a=(a|x,X)@9
        L a ~@4   → a=~@4
    """
    check(single(fk_join("inner", compat=compat)), inner)
    check(single(fk_join("left", compat=compat)), left)


def test_foreign_key_self_join_answers_the_right_role_first_in_compat() -> None:
    join = ForeignKeyJoin(foreign_key, joiner=joined, store_ids=["e", "e"], compat=True)
    trace = """
        L e1 a|e2@1 → -
        L e2 b|e1@5 → e1=(a|e2,b|e1)@5 e2=(b|e1,a|e2)@5
    """
    check(self_joined(join), trace)


def test_a_row_that_points_at_itself_in_compat() -> None:
    join = ForeignKeyJoin(foreign_key, joiner=joined, store_ids=["e", "e"], compat=True)
    trace = """
        L e a|e@1 → e=(a|e,a|e)@1
        L e b|e@2 → e=(b|e,b|e)@2
        L e b|e@3 → e=(b|e,b|e)@3 e=(b|e,b|e)@3
    """
    check(self_joined(join), trace)
    assert join.dropped == 1


def test_a_row_that_points_at_itself_answers_once() -> None:
    join = fk_join("inner", compat=False)
    trace = """
        L e a|e@1 → e=(a|e,a|e)@1
        L e b|e@2 → e=(b|e,b|e)@2
        L e b|e@3 → e=(b|e,b|e)@3
        L e ~@4   → e=~@4
    """
    check(self_joined(join), trace)
    assert join.dropped == 0


def test_one_step_answers_a_left_key_once_with_the_right_row_after_it() -> None:
    join = fk_join("inner", compat=False)
    join.step([(0, "a", "1|x", 1), (0, "b", "1|x", 1), (1, "x", "X", 1)])
    assert join.step([(0, "a", "2|x", 3), (1, "x", "Y", 4)]) == [("b", "(1|x,Y)", 4), ("a", "(2|x,Y)", 4)]
    # The left rule is silent without a right row, so the right change answers for both.
    assert join.step([(0, "a", "3|x", 9), (1, "x", None, 5)]) == [("b", None, 5), ("a", None, 5)]


def test_one_step_says_nothing_of_a_left_row_that_comes_as_its_right_row_goes() -> None:
    join = fk_join("inner", compat=False)
    join.change(ForeignKeyJoin.RIGHT, "x", "X", 1)
    assert join.step([(0, "a", "1|x", 2), (1, "x", None, 3)]) == []


def test_extractor_may_use_the_key() -> None:
    join = ForeignKeyJoin(lambda value, key: (key, value), joiner=joined)
    join.change(ForeignKeyJoin.RIGHT, ("k", "v"), "X", 1)
    assert join.change(ForeignKeyJoin.LEFT, "k", "v", 2) == [("k", "(v,X)", 2)]


# Right and outer, which Kafka Streams does not have.


@both_modes
def test_outer_foreign_key_join_keeps_right_rows_that_nothing_points_at(compat: bool) -> None:
    trace = """
        R x X@5   → ~/x=(null,X)@5
        R x X@4   → ~/x=(null,X)@4
        L a a|x@3 → ~/x=~@4 a/~=(a|x,X)@4
        L b b|x@6 → b/~=(b|x,X)@6
        L a a|y@7 → a/~=(a|y,null)@7
        L b ~@8   → ~/x=(null,X)@8 b/~=~@8
        R y Y@9   → a/~=(a|y,Y)@9
        L a a|x@2 → ~/y=(null,Y)@9 ~/x=~@4 a/~=(a|x,X)@4
        R x ~@1   → a/~=(a|x,null)@1
        R y ~@3   → ~/y=~@3
        R y ~@4   → -
        L a a@5   → a/~=(a,null)@5
    """
    check(single(fk_join("outer", compat=compat)), trace)


@both_modes
def test_right_foreign_key_join_is_the_inner_join_and_unmatched_right_rows(compat: bool) -> None:
    join = fk_join("right", compat=compat)
    trace = """
        L a a|x@1 → -
        R x X@2   → a/~=(a|x,X)@2
        L a a|y@3 → ~/x=(null,X)@3 a/~=~@3
        L a a@4   → a/~=~@4
        R x ~@5   → ~/x=~@5
    """
    check(single(join), trace)
    assert join.dropped == 1


def test_unmatched_right_rows_are_compared_before_and_after_the_step() -> None:
    join = fk_join("outer", compat=False)
    join.step([(1, "x", "X", 1), (0, "a", "a|x", 2)])
    # x stays pointed at: one row leaves, another comes.
    assert join.step([(0, "a", None, 3), (0, "b", "b|x", 4)]) == [
        (("a", None), None, 3),
        (("b", None), "(b|x,X)", 4),
    ]
    # The right row changed, so the row that appears has its time.
    assert join.step([(0, "b", None, 9), (1, "x", "Y", 5)]) == [
        ((None, "x"), "(null,Y)", 5),
        (("b", None), None, 9),
    ]
    assert join.step([(1, "x", None, 6), (0, "b", "b|x", 7)]) == [
        ((None, "x"), None, 6),
        (("b", None), "(b|x,null)", 7),
    ]


# One to many.


@both_modes
def test_one_to_many_times_and_moves(compat: bool) -> None:
    join = OneToMany(foreign_key, joiner=joined, compat=compat)
    trace = """
        one  A a@5   → -
        many m 1|A@3 → A/m=(a,1|A)@5
        many m 2|A@7 → A/m=(a,2|A)@7
        one  B b@9   → -
        many m 2|B@4 → A/m=~@5 B/m=(b,2|B)@9
        one  B b@2   → B/m=(b,2|B)@2
        many m 2|C@1 → B/m=~@2
        many m 2|D@8 → -
        many m ~@9   → -
        one  A ~@4   → -
    """
    check(single(join), trace)
    assert join.dropped == 0


@both_modes
def test_one_to_many_left_keeps_ones_without_many(compat: bool) -> None:
    join = OneToMany(foreign_key, "left", joiner=joined, compat=compat)
    trace = """
        one  A a@5   → A/~=(a,null)@5
        many m 1|A@3 → A/~=~@5 A/m=(a,1|A)@5
        many m 1@8   → A/~=(a,null)@8 A/m=~@8
        one  A ~@1   → A/~=~@1
    """
    check(single(join), trace)
    assert join.dropped == 1


def test_one_to_many_emits_no_tombstone_for_a_pair_that_never_was() -> None:
    join = OneToMany(foreign_key, joiner=joined)
    join.change(OneToMany.MANY, "m", "1|A", 1)
    assert join.step([(OneToMany.ONE, "A", "a", 2), (OneToMany.MANY, "m", "1|B", 3)]) == []


def test_one_to_many_pair_that_is_left_takes_the_time_of_the_one_after_the_step() -> None:
    join = OneToMany(foreign_key, joiner=joined)
    join.step([(OneToMany.MANY, "m", "1|A", 1), (OneToMany.ONE, "A", "a", 1)])
    step = [(OneToMany.ONE, "A", "b", 2), (OneToMany.MANY, "m", "1|B", 9)]
    assert join.step(step) == [(("A", "m"), None, 9)]


def test_one_to_many_pair_goes_with_its_one() -> None:
    join = OneToMany(foreign_key, joiner=joined)
    join.step([(OneToMany.MANY, "m", "1|A", 1), (OneToMany.ONE, "A", "a", 1)])
    step = [(OneToMany.MANY, "m", "2|A", 9), (OneToMany.ONE, "A", None, 2)]
    assert join.step(step) == [(("A", "m"), None, 2)]
    assert join.change(OneToMany.ONE, "A", "b", 3) == [(("A", "m"), "(b,2|A)", 3)]
    step = [(OneToMany.MANY, "m", None, 9), (OneToMany.ONE, "A", None, 4)]
    assert join.step(step) == [(("A", "m"), None, 4)]
