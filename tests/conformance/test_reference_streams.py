"""The reference's stream-global-table joins and streams read as tables; tables joined with global tables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.notation import both_modes, check, single
from tests.conformance.vectors import Event, Sequence, foreign_key, joined, replay, sequences
from tests.reference import (
    ForeignKeyJoin,
    Output,
    StreamGlobalTableJoin,
    TableSource,
    ToTable,
)

# What was recorded.


def run_recorded(sequence: Sequence, *, compat: bool) -> None:
    table = TableSource(compat=compat)
    join = StreamGlobalTableJoin(foreign_key, sequence.params["join"], joiner=joined, compat=compat)

    def answer(event: Event) -> list[Output]:
        if event.topic == "S":
            return join.change(join.STREAM, event.key, event.value, event.ts)
        rows = table.change(0, event.key, event.value, event.ts)
        return join.step([(join.TABLE, *row) for row in rows])

    replay(sequence, answer)
    assert join.dropped + table.dropped == sequence.dropped


def test_six_sequences_are_recorded() -> None:
    recorded = sequences("stream_global_table_join")
    assert [sequence.params["join"] for sequence in recorded] == ["inner"] * 3 + ["left"] * 3


@both_modes
@pytest.mark.parametrize("sequence", sequences("stream_global_table_join"), ids=str)
def test_stream_global_table_join_gives_the_recorded_outputs(sequence: Sequence, compat: bool) -> None:
    run_recorded(sequence, compat=compat)


@both_modes
@pytest.mark.parametrize(
    "sequence", [s for s in sequences("table_ops") if s.op == "table_to_stream" and not s.versioned], ids=str
)
def test_a_stream_read_as_a_table_gives_what_a_table_gives(sequence: Sequence, compat: bool) -> None:
    table = ToTable(compat=compat)
    replay(sequence, lambda event: table.change(0, event.key, event.value, event.ts))
    assert table.dropped == sequence.dropped


# Streams and global tables.


def stream_join(how: Any, *, compat: bool) -> StreamGlobalTableJoin:
    return StreamGlobalTableJoin(foreign_key, how, joiner=joined, compat=compat)


@both_modes
def test_stream_global_table_join_inner(compat: bool) -> None:
    join = stream_join("inner", compat=compat)
    trace = """
        S k a|x@5 → -
        G x X@9   → -
        S k a|x@3 → k=(a|x,X)@3
        S ~ a|x@2 → ~=(a|x,X)@2
        S k a@4   → -
        S k ~@4   → -
        G x Y@1   → -
        S k b|x@6 → k=(b|x,Y)@6
        G x ~@2   → -
        S k b|x@7 → -
    """
    check(single(join), trace)
    assert join.dropped == 2  # the record that points at nothing, and the one without a value


@both_modes
def test_stream_global_table_join_left(compat: bool) -> None:
    join = stream_join("left", compat=compat)
    trace = """
        S k a|x@5 → k=(a|x,null)@5
        G x X@9   → -
        S k a|x@3 → k=(a|x,X)@3
        S ~ a|x@2 → ~=(a|x,X)@2
        S ~ a@2   → ~=(a,null)@2
        S k a@4   → k=(a,null)@4
        S k ~@4   → -
        G x ~@2   → -
        S k b|x@7 → k=(b|x,null)@7
    """
    check(single(join), trace)
    assert join.dropped == 1


def test_mapper_may_use_the_key_and_is_not_called_for_a_null_value() -> None:
    join = StreamGlobalTableJoin(lambda value, key: (key, value.upper()), joiner=joined)
    join.change(join.TABLE, ("k", "V"), "X", 1)
    assert join.step([(0, "k", "v", 2), (0, "k", None, 3), (0, None, "v", 4)]) == [("k", "(v,X)", 2)]
    assert join.dropped == 2  # a key with a null part is null


def test_a_step_changes_the_global_table_first() -> None:
    step = [(0, "k", "a|x", 5), (1, "x", "X", 5), (0, "k", "b|x", 5)]
    assert stream_join("left", compat=False).step(step) == [("k", "(a|x,X)", 5), ("k", "(b|x,X)", 5)]
    assert stream_join("left", compat=True).step(step) == [("k", "(a|x,null)", 5), ("k", "(b|x,X)", 5)]


# Tables and global tables: nothing but a foreign-key join, whose right side is the global table.


@both_modes
def test_table_global_table_join_inner(compat: bool) -> None:
    join = ForeignKeyJoin(foreign_key, "inner", joiner=joined, compat=compat)
    trace = """
        L b b|x@1 → -
        L a a|x@2 → -
        G x X@1   → a=(a|x,X)@1 b=(b|x,X)@1
        L a c|x@0 → a=(c|x,X)@1
        G x Y@9   → a=(c|x,Y)@9 b=(b|x,Y)@9
        L a c|y@3 → a=~@3
        G y Z@4   → a=(c|y,Z)@4
        G x ~@5   → b=~@5
        L a c@6   → a=~@6
        L b ~@7   → b=~@7
    """
    check(single(join), trace)
    assert join.dropped == 1  # the row that points at nothing


@both_modes
def test_table_global_table_join_left(compat: bool) -> None:
    join = ForeignKeyJoin(foreign_key, "left", joiner=joined, compat=compat)
    trace = """
        G x X@8   → -
        L a a|x@2 → a=(a|x,X)@8
        L b b@3   → b=(b,null)@3
        G x ~@1   → a=(a|x,null)@1
        L a ~@9   → a=~@9
        G x Y@9   → -
    """
    check(single(join), trace)
    assert join.dropped == 0


# Streams read as tables.


@both_modes
def test_a_stream_read_as_a_table(compat: bool) -> None:
    table = ToTable(compat=compat)
    trace = """
        S a 1@5 → a=1@5
        S a 1@5 → a=1@5
        S a 2@3 → a=2@3
        S a ~@1 → a=~@1
        S a ~@2 → a=~@2
        S ~ x@9 → -
    """
    check(single(table), trace)
    assert table.dropped == 1


def test_a_stream_read_as_a_table_forwards_a_key_once_a_step() -> None:
    step = [(0, "a", "1", 5), (0, "b", "1", 5), (0, None, "1", 6), (0, "a", "2", 3)]
    default, compat = ToTable(), ToTable(compat=True)
    assert default.step(step) == [("a", "2", 3), ("b", "1", 5)]
    assert compat.step(step) == [("a", "1", 5), ("b", "1", 5), ("a", "2", 3)]
    assert default.dropped == compat.dropped == 1
