"""The reference's suppress: what Kafka Streams did, its limits, its shards, and old values in both modes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conformance.notation import both_modes, check, single
from tests.conformance.vectors import Event, Sequence, added, group, replay, sequences, subtracted
from tests.reference import Aggregate, Change, GroupBy, Output, Suppress, TableSource

RECORDED = [sequence for sequence in sequences("table_ops") if sequence.op.startswith("suppress_")]

#: Longer than any recorded sequence.
NEVER = 1000


# What was recorded.


def test_fifteen_sequences_are_recorded() -> None:
    assert Counter(s.op for s in RECORDED) == {
        "suppress_until_time_limit": 9,
        "suppress_max_records_emit_early": 6,
    }


@both_modes
@pytest.mark.parametrize("sequence", RECORDED, ids=str)
def test_suppress_gives_the_recorded_outputs(sequence: Sequence, compat: bool) -> None:
    table = TableSource(compat=compat)
    suppress = Suppress(
        sequence.params.get("limit_ms", NEVER),
        max_records=sequence.params.get("max_records"),
        compat=compat,
    )

    def answer(event: Event) -> list[Output]:
        return suppress.step([(0, *row) for row in table.change(0, event.key, event.value, event.ts)])

    replay(sequence, answer)
    assert table.dropped + suppress.dropped == sequence.dropped


# Time.


@both_modes
def test_suppress_until_a_time_limit(compat: bool) -> None:
    trace = """
        T a 1@0  → -
        T b 1@2  → -
        T a 2@3  → -
        T c 1@4  → -
        T d x@5  → a=2@3
        T a 3@6  → -
        T a ~@7  → b=1@2
        T e x@12 → c=1@4 d=x@5 a=~@7
        T b 0@1  → b=0@1
        T f x@11 → -
        T g x@30 → f=x@11 e=x@12
    """
    check(single(Suppress(5, compat=compat)), trace)


@both_modes
def test_a_limit_of_nothing_lets_everything_through(compat: bool) -> None:
    check(single(Suppress(0, compat=compat)), "T a 1@5 → a=1@5 \n T b ~@3 → b=~@3 \n T a 1@1 → a=1@1")


@both_modes
def test_keys_that_wait_since_the_same_time_leave_in_the_order_of_their_bytes(compat: bool) -> None:
    suppress = Suppress(5, compat=compat)
    for key in ("l2", "l1", "l10"):
        suppress.change(0, key, "x", 3)
    assert [out.key for out in suppress.change(0, "z", "x", 8)] == ["l1", "l10", "l2"]


# Limits of size.


@both_modes
def test_the_first_to_wait_leaves_a_full_buffer(compat: bool) -> None:
    trace = """
        T a 1@3 → -
        T a 2@9 → -
        T b 1@5 → a=2@9
        T c 1@4 → c=1@4
        T d 1@7 → b=1@5
    """
    check(single(Suppress(NEVER, max_records=1, compat=compat)), trace)


@both_modes
def test_bytes_are_limited_and_the_last_change_counts(compat: bool) -> None:
    trace = """
        T a 12@1    → -
        T b 34@2    → -
        T a 1@3     → -
        T c 5@4     → a=1@3
        T b ~@5     → -
        T d 12345@6 → b=~@5 c=5@4
        T e 1@5     → e=1@5
        T d 123456@5 → d=123456@5
    """
    check(single(Suppress(NEVER, max_bytes=6, compat=compat)), trace)


@both_modes
def test_a_row_may_be_measured_otherwise(compat: bool) -> None:
    suppress = Suppress(NEVER, max_bytes=1, size=lambda _, value: value is not None, compat=compat)
    check(single(suppress), "T a 1@1 → - \n T b ~@0 → - \n T c 12345@2 → b=~@0 a=1@1")


@both_modes
def test_time_lets_through_before_a_buffer_is_full(compat: bool) -> None:
    suppress = Suppress(5, max_records=1, on_full="fail", compat=compat)
    check(single(suppress), "T a 1@1 → - \n T b 1@6 → a=1@1")
    with pytest.raises(BufferError, match="it holds 2 of 1 records and 4 of any number of bytes"):
        suppress.change(0, "c", "1", 7)


@both_modes
def test_too_many_bytes_may_be_an_error(compat: bool) -> None:
    suppress = Suppress(5, max_bytes=2, on_full="fail", compat=compat)
    check(single(suppress), "T a 1@1 → - \n T a 2@2 → -")
    with pytest.raises(BufferError, match="1 of any number of records and 3 of 2 bytes"):
        suppress.change(0, "a", "22", 3)


# Shards.


@both_modes
def test_each_shard_has_its_own_time_and_its_own_limits(compat: bool) -> None:
    suppress = Suppress(5, max_records=2, shard=lambda key: key[0], compat=compat)
    trace = """
        T a1 x@0   → -
        T b1 x@100 → -
        T a2 x@4   → -
        T b2 x@90  → b2=x@90
        T a3 x@4   → a1=x@0
        T a2 y@9   → a2=y@9 a3=x@4
        T b2 x@99  → -
    """
    check(single(suppress), trace)


# Old values.


def grouped_after_suppress(trace: str, *, compat: bool) -> None:
    """Check a table that is suppressed, grouped, and aggregated to what was added and subtracted."""
    suppress, groups = Suppress(5, compat=compat), GroupBy(group, compat=compat)
    aggregate = Aggregate(
        lambda: "0",
        lambda _, item, old: added(old, item),
        lambda _, item, old: subtracted(old, item),
        compat=compat,
    )
    check(
        lambda _, key, value, ts: aggregate.step(groups.regroup(suppress.changes([(0, key, value, ts)]))),
        trace,
    )


def test_old_values_are_those_last_let_through() -> None:
    trace = """
        T x g:9@0  → -
        T a g:1@5  → g=0+9@0
        T a g:2@6  → -
        T z f:0@10 → g=0+9+2@6
        T a g:3@11 → -
        T a g:4@11 → -
        T y f:0@16 → f=0+0@10 g=0+9+2-2+4@11
    """
    grouped_after_suppress(trace, compat=False)


def test_old_values_in_compat_may_never_have_been_let_through() -> None:
    trace = """
        T x g:9@0  → -
        T a g:1@5  → g=0+9@0
        T a g:2@6  → -
        T z f:0@10 → g=0+9-1+2@6
        T a g:3@11 → -
        T a g:4@11 → -
        T y f:0@16 → f=0+0@10 g=0+9-1+2-3+4@11
    """
    grouped_after_suppress(trace, compat=True)


def test_a_row_that_moves_while_it_is_held_leaves_no_group_that_it_never_was_in() -> None:
    trace = "T a g:1@0 → - \n T a h:2@1 → - \n T z f:0@5 → {}h=0+2@1"
    grouped_after_suppress(trace.format(""), compat=False)
    grouped_after_suppress(trace.format("g=~@1 "), compat=True)


@pytest.mark.parametrize("sequence", RECORDED, ids=str)
def test_old_values_are_what_a_reader_of_the_outputs_knows(sequence: Sequence) -> None:
    suppress = Suppress(
        sequence.params.get("limit_ms", NEVER), max_records=sequence.params.get("max_records")
    )
    known: dict[Any, Any] = {}
    for event in sequence.events:
        for change in suppress.changes([(0, event.key, event.value, event.ts)]):
            assert change.old == known.get(change.key)
            known[change.key] = change.new


# Steps.


def test_a_step_is_held_before_anything_leaves() -> None:
    step = [(0, "a", "1", 0), (0, "b", "1", 9), (0, "a", "2", 3), (0, "c", "1", 1)]
    assert Suppress(5).changes(step) == [Change("a", "2", None, 3), Change("c", "1", None, 1)]
    assert Suppress(5, compat=True).changes(step) == [
        Change("a", "1", None, 0),
        Change("a", "2", "1", 3),
        Change("c", "1", None, 1),
    ]
