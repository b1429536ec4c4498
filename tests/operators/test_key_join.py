"""The rule table of `operators.key_join`, row by row."""

from __future__ import annotations

import pytest

from tablestream.operators.joins.key_join import Branch
from tablestream.planner.join_rules import _meeting
from tests.operators.bench import Bench, key_join, results

INNER, LEFT, RIGHT, OUTER = (
    Branch(0, 1, "inner"),
    Branch(0, 1, "left"),
    Branch(0, 1, "right"),
    Branch(0, 1, "outer"),
)


@pytest.mark.parametrize(
    ("tree", "messages", "wanted"),
    [
        # inner, either: nothing while other is none
        (INNER, "0 k a@1", []),
        (INNER, "0 k ~@1", []),
        (INNER, "1 k b@1", []),
        # inner, either: a row, or a tombstone when new is none, needed or not
        (INNER, "0 k a@1\n1 k b@2", ["k=(a,b)@2"]),
        (INNER, "1 k b@3\n0 k a@2", ["k=(a,b)@3"]),
        (INNER, "1 k b@2\n0 k ~@1", ["k=~@2"]),
        (INNER, "0 k a@1\n1 k ~@2", ["k=~@2"]),
        # left, left: nothing when other, new and old are none
        (LEFT, "0 k ~@1", []),
        (LEFT, "0 k a@1\n0 k ~@2", ["k=~@2"]),
        (LEFT, "1 k b@2\n0 k ~@1", ["k=~@2"]),
        (LEFT, "0 k a@1", ["k=(a,~)@1"]),
        (LEFT, "1 k b@2\n0 k a@1", ["k=(a,b)@2"]),
        # left, right: nothing while the left row is none; never a tombstone
        (LEFT, "1 k b@1", []),
        (LEFT, "1 k ~@1", []),
        (LEFT, "0 k a@1\n1 k b@2", ["k=(a,b)@2"]),
        (LEFT, "0 k a@5\n1 k ~@2", ["k=(a,~)@5"]),
        # right: the mirror image
        (RIGHT, "1 k ~@1", []),
        (RIGHT, "1 k b@1\n1 k ~@2", ["k=~@2"]),
        (RIGHT, "0 k a@1", []),
        (RIGHT, "1 k b@1", ["k=(~,b)@1"]),
        (RIGHT, "1 k b@5\n0 k ~@2", ["k=(~,b)@5"]),
        # outer: nothing when other, new and old are none; a row while a side exists
        (OUTER, "0 k ~@1", []),
        (OUTER, "1 k ~@1", []),
        (OUTER, "0 k a@1", ["k=(a,~)@1"]),
        (OUTER, "1 k b@1", ["k=(~,b)@1"]),
        (OUTER, "0 k a@1\n0 k ~@2", ["k=~@2"]),
        (OUTER, "0 k a@3\n1 k b@1\n0 k ~@2", ["k=(~,b)@2/1"]),
        (OUTER, "1 k b@3\n0 k ~@4", ["k=(~,b)@4/3"]),
    ],
)
def test_rule_table(tree: Branch, messages: str, wanted: list[str]) -> None:
    assert results(key_join(tree), messages) == wanted
    assert results(key_join(tree, atomic=False), messages) == wanted
    one = Bench(key_join(tree)).run(messages)  # the same within one micro-batch
    assert one[len(one) - len(wanted) :] == wanted


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        (INNER, []),
        (LEFT, ["~=(a,~)@1", "~=(c,~)@4"]),
        (RIGHT, ["~=(~,b)@2", "~=~@3"]),
    ],
)
def test_a_key_with_a_null_has_no_match(tree: Branch, wanted: list[str]) -> None:
    """Whole, and with the rows of the other side in the state."""
    messages = "0 ~ a@1\n1 ~ b@2\n1 ~ ~@3\n0 ~ c@4"
    assert Bench(key_join(tree, nulls=(0, 1))).run(messages) == wanted
    bench = Bench(key_join(tree, nulls=(0, 1)))
    assert [out for line in messages.splitlines() for out in bench.run(line)] == wanted


def test_a_step_joins_no_keys_with_a_null() -> None:
    step = "0 ~ a@1\n+ 1 ~ b@2\n0 k a@3\n+ 1 k b@4"
    assert Bench(key_join(LEFT, nulls=(0, 1))).run(step) == ["~=(a,~)@1", "k=(a,b)@4"]
    assert Bench(key_join(OUTER, nulls=(0, 0))).run(step) == ["~=(a,b)@2", "k=(a,b)@4"]


@pytest.mark.parametrize(
    ("tree", "numbers"),
    [
        (LEFT, (0, 1)),
        (OUTER, (0, 0)),
        (Branch(LEFT, 2, "outer"), (0, 1, 0)),
        (Branch(RIGHT, 2, "outer"), (0, 1, 1)),
        (Branch(OUTER, 2, "left"), (0, 0, 2)),
        (Branch(OUTER, Branch(2, 3, "outer"), "outer"), (0, 0, 0, 0)),
        (Branch(LEFT, Branch(2, 3, "inner"), "outer"), (0, 1, 0, 3)),
        (Branch(Branch(0, 1, "left", own_times=True), 2, "left", own_times=True), (0, 0, 0)),
    ],
)
def test_in_an_outer_join_the_rows_of_a_key_with_a_null_meet(tree: Branch, numbers: tuple[int, ...]) -> None:
    """Both would have one key in the result."""
    assert _meeting(tree) == numbers


def test_inputs_of_one_number_meet_under_a_key_with_a_null() -> None:
    tree = Branch(Branch(0, 1, "left"), 2, "left")
    messages = "0 ~ a@1\n1 ~ b@2\n2 ~ c@3"
    assert Bench(key_join(tree, 3, nulls=(0, 0, 1))).run(messages) == ["~=(a,~,~)@1", "~=(a,b,~)@2"]
    assert Bench(key_join(tree, 3, nulls=(0, 1, 0))).run(messages) == ["~=(a,~,~)@1", "~=(a,~,c)@3"]


def test_keys_do_not_meet_and_equal_hashes_are_told_apart() -> None:
    assert results(key_join(OUTER), "0 k a@1\n0 n b@2\n1 m c@3") == ["m=(~,c)@3"]


def test_a_tombstone_forgets_the_time_of_its_row() -> None:
    assert results(key_join(INNER), "0 k a@9\n0 k ~@9\n0 k a@1\n1 k b@2") == ["k=(a,b)@2"]


def test_times_go_back_and_the_last_to_come_counts() -> None:
    assert Bench(key_join(INNER)).run("0 k a@10\n1 k r@5\n1 k s@20\n0 k b@3\n1 k ~@1") == [
        "k=(a,r)@10",
        "k=(a,s)@20",
        "k=(b,s)@20",
        "k=~@3",
    ]


def test_a_row_may_have_a_time_of_its_own() -> None:
    """The change has its time; whoever meets the row later meets it with the row's."""
    assert Bench(key_join(LEFT)).run("0 k a@7/2\n1 k b@3") == ["k=(a,~)@7/2", "k=(a,b)@3"]


# Trees: an inner node that emits is an event for the node above it; one that does not is its `other`.


def test_an_inner_join_that_emits_nothing_is_silent_above() -> None:
    tree = Branch(Branch(0, 1, "inner"), 2, "outer")
    assert results(key_join(tree, 3), "0 k a@1") == []
    # (the row of input 0 is shown, but it makes no row of the inner join, and its time does not count)
    assert results(key_join(tree, 3), "0 k a@9\n2 k c@2") == ["k=(a,~,c)@2"]
    assert results(key_join(tree, 3), "2 k c@2\n0 k a@1\n1 k b@1") == ["k=(a,b,c)@2"]


def test_a_needless_tombstone_of_an_inner_node_is_an_event_above() -> None:
    tree = Branch(Branch(0, 1, "inner"), 2, "outer")
    assert results(key_join(tree, 3), "1 k b@5\n2 k c@2\n0 k ~@1") == ["k=(~,b,c)@5/2"]
    assert results(key_join(Branch(Branch(0, 1, "inner"), 2, "left"), 3), "1 k b@5\n0 k ~@1") == []


def test_a_node_read_as_other_has_the_largest_time_of_its_rows() -> None:
    tree = Branch(0, Branch(1, 2, "outer"), "left")
    assert results(key_join(tree, 3), "1 k b@9\n2 k c@4\n1 k ~@20\n0 k a@1") == ["k=(a,~,c)@4"]
    assert results(key_join(tree, 3), "1 k b@9\n2 k c@4\n0 k a@1") == ["k=(a,b,c)@9"]


# Steps.


def test_an_atomic_step_emits_once_with_the_largest_time_of_its_changes() -> None:
    assert Bench(key_join(INNER)).run("0 k a@3\n+ 1 k b@1") == ["k=(a,b)@3"]
    assert results(key_join(INNER), "0 k a@9\n+ 1 k b@9\n0 k c@1") == ["k=(c,b)@9"]
    bench = Bench(key_join(INNER))
    bench.run("0 k a@9\n1 k b@9")
    assert bench.run("0 k c@1\n+ 1 k d@2") == ["k=(c,d)@2"]


def test_an_atomic_step_is_silent_where_no_row_was_nor_is() -> None:
    bench = Bench(key_join(INNER))
    bench.run("0 k a@1")
    assert bench.run("0 k ~@2\n+ 1 k b@2") == []
    assert bench.run("0 k a@3\n+ 1 k ~@3") == []
    assert bench.run("1 k b@4") == ["k=(a,b)@4"]
    assert bench.run("0 k ~@5\n+ 1 k ~@6") == ["k=~@6"]


def test_without_atomic_steps_each_change_is_its_own_event() -> None:
    bench = Bench(key_join(INNER, atomic=False))
    assert bench.run("0 k a@1\n+ 1 k b@2\n+ 0 k ~@3") == ["k=(a,b)@2", "k=~@3"]


def test_inputs_of_one_store_are_updated_before_the_first_answers() -> None:
    together = key_join(INNER, stores=(0, 0), atomic=False)
    assert Bench(together).run("0 k a@1\n+ 1 k a@1") == ["k=(a,a)@1", "k=(a,a)@1"]
    # both lookups miss: Kafka Streams leaves the joined row behind
    bench = Bench(together)
    bench.run("0 k a@1\n+ 1 k a@1")
    assert bench.run("0 k ~@2\n+ 1 k ~@2") == []
    outer = Bench(key_join(OUTER, stores=(0, 0), atomic=False))
    outer.run("0 k a@1\n+ 1 k a@1")
    assert outer.run("0 k ~@2\n+ 1 k ~@2") == ["k=~@2", "k=~@2"]


def test_inputs_of_one_store_take_turns_in_a_step() -> None:
    """The table changes twice in one step; each change is seen by both inputs before the next one."""
    together = key_join(INNER, stores=(0, 0), atomic=False)
    assert Bench(together).run("0 k a@1\n+ 1 k a@1\n+ 0 k b@2\n+ 1 k b@2") == [
        "k=(a,a)@1",
        "k=(a,a)@1",
        "k=(b,b)@2",
        "k=(b,b)@2",
    ]


def test_early_inputs_are_updated_before_any_of_the_step_answers() -> None:
    late, early = key_join(LEFT, atomic=False), key_join(LEFT, atomic=False, early=True)
    assert Bench(late).run("0 k a@1\n+ 1 k b@2") == ["k=(a,~)@1", "k=(a,b)@2"]
    assert Bench(early).run("0 k a@1\n+ 1 k b@2") == ["k=(a,b)@2", "k=(a,b)@2"]


# Options.


def test_minimal_inputs_have_no_tombstones_for_absent_rows() -> None:
    loud, minimal = key_join(INNER), key_join(INNER, minimal=True)
    assert results(loud, "1 k b@1\n0 k ~@2") == ["k=~@2"]
    assert results(minimal, "1 k b@1\n0 k ~@2") == []
    assert results(minimal, "1 k b@1\n0 k a@2\n0 k ~@3") == ["k=~@3"]
    assert Bench(minimal).run("1 k b@1\n0 k a@2\n0 k ~@3\n0 k ~@4") == ["k=(a,b)@2", "k=~@3"]


def test_final_is_the_last_change_of_each_key() -> None:
    bench = Bench(key_join(OUTER, final=True))
    assert bench.run("0 k a@1\n0 j a@2\n0 k b@3\n0 visits a@4\n0 visits ~@5") == ["j=(a,~)@2", "k=(b,~)@3"]
    assert bench.run("0 k c@1\n0 k ~@2\n0 j a@1") == ["k=~@2", "j=(a,~)@1"]
    assert bench.run("0 k ~@9") == []


def test_final_of_a_table_joined_with_itself_knows_what_was_there() -> None:
    bench = Bench(key_join(OUTER, stores=(0, 0), atomic=False, final=True))
    assert bench.run("0 k a@1\n+ 1 k a@1\n0 k ~@2\n+ 1 k ~@2") == []


def test_it_remembers_the_last_row_of_each_key_and_input() -> None:
    bench = Bench(key_join(OUTER))
    bench.run("0 k a@1\n0 k b@2\n0 m c@3\n1 k d@4")
    assert (bench.remembered("input 0"), bench.remembered("input 1")) == (2, 1)
    bench.run("0 k ~@5")
    assert (bench.remembered("input 0"), bench.remembered("input 1")) == (1, 1)
