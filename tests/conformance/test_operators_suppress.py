"""The columnar suppress, in whole plans without Spark: against Kafka Streams, and the reference in both modes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.errors import BufferFullError
from tests.conformance.test_operators import every_run, unversioned
from tests.conformance.test_reference_suppress import NEVER
from tests.conformance.vectors import Sequence
from tests.marks import quick_first
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import Change, Record, filtered, key_join, source, suppressed
from tests.reference import Suppress as Twin

if TYPE_CHECKING:
    from tests.plans.engine import Hasher

EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "aa", "c"]), st.none() | st.sampled_from("xyz"), st.integers(0, 30)),
    max_size=30,
)


def json_bytes(key: str, value: str | None) -> int:
    """The size of a row as the operator sees it."""
    row = {"_k0": key, "v": None if value is None else {"c0": value}}
    return len(json.dumps(row, separators=(",", ":")).encode())


@every_run
@pytest.mark.parametrize(
    "sequence", unversioned("table_ops", "suppress_until_time_limit", "suppress_max_records_emit_early")
)
def test_suppress_gives_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    table = source("T")
    limit, most = sequence.params.get("limit_ms", NEVER), sequence.params.get("max_records")
    records = [Record(table, event.key, event.value, event.ts) for event in sequence.events]
    pieces = [records] if seed is None else random_cuts(records, seed, 4)
    output = Output(suppressed(table, limit, max_records=most))
    engine = Engine([output], compat=True, shards=1, hasher=hasher)  # buffers and times are a shard's own
    got: list[Step] = []
    for piece in pieces:
        got += engine.steps(piece)[0]
        engine = engine.restarted()
    assert got == [
        Step(number, Change((out.key,), out.value, out.ts))
        for number, event in enumerate(sequence.events, start=1)
        for out in event.outputs
    ]
    assert sum(engine.dropped.values()) == sequence.dropped
    assert shards


@pytest.mark.parametrize("compat", [False, True])
@given(
    events=EVENTS,
    until=st.integers(0, 12),
    most=st.none() | st.integers(1, 3),
    most_bytes=st.none() | st.integers(20, 120),
    seed=st.integers(0, 99),
)
def test_suppress_is_its_reference_however_it_is_cut(
    events: list[tuple[str, str | None, int]],
    until: int,
    most: int | None,
    most_bytes: int | None,
    seed: int,
    *,
    compat: bool,
) -> None:
    table = source("T")
    twin = Twin(until, max_records=most, max_bytes=most_bytes, size=json_bytes, compat=compat)
    held = suppressed(table, until, max_records=most, max_bytes=most_bytes)
    engine = Engine([Output(held)], compat=compat, shards=1)
    got: list[Change] = []
    for piece in random_cuts([Record(table, *event) for event in events], seed, 4):
        got += engine.run(piece)[0]
        engine = engine.restarted()
    expected = [out for event in events for out in twin.change(0, *event)]
    assert got == [Change((out.key,), out.value, out.ts) for out in expected]


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("seed", quick_first(range(6)))
def test_suppress_is_its_reference_over_many_micro_batches(seed: int, *, compat: bool) -> None:
    """Keys come and go again, some of them out of order, large ones make room, and few leave at a time."""
    rng, table = random.Random(seed), source("T")
    until, most, most_bytes = 15 * (seed % 3) + 5, (None, 6)[seed % 2], (None, 300, 150)[seed % 3]
    twin = Twin(until, max_records=most, max_bytes=most_bytes, size=json_bytes, compat=compat)
    events = [
        (
            rng.choice("abcdefghijkl"),
            rng.choice([None, "x" * rng.choice([1, 1, 1, 90])]),
            max(0, at - rng.randrange(9)),
        )
        for at in range(240)
    ]
    held = suppressed(table, until, max_records=most, max_bytes=most_bytes)
    engine, got = Engine([Output(held)], compat=compat, shards=1), list[Change]()
    for piece in random_cuts([Record(table, *event) for event in events], seed, 80):
        got += engine.run(piece)[0]
        engine = engine.restarted()
    expected = [out for event in events for out in twin.change(0, *event)]
    assert got == [Change((out.key,), out.value, out.ts) for out in expected]
    assert len(got) > 40


def test_a_step_is_held_as_a_whole_by_default() -> None:
    """A table joined to itself changes once, and what waits since then leaves once."""
    table = source("T")
    joined = suppressed(key_join(table, table, "inner"), 5)
    engine = Engine([Output(joined)], shards=1)
    (changes,) = engine.run(
        [Record(table, "k", "x", 1), Record(table, "k", "y", 2), Record(table, "l", "z", 6)]
    )
    assert [(change.key, change.ts) for change in changes] == [(("k",), 2)]


def test_what_is_held_is_read_by_the_next_operator_only_when_it_leaves() -> None:
    left, right = source("L"), source("R")
    engine = Engine([Output(key_join(suppressed(left, 5), right, "inner"))], shards=1)
    assert engine.run([Record(right, "k", "r", 1), Record(left, "k", "x", 2)]) == [[]]
    (changes,) = engine.run([Record(left, "k", "y", 3), Record(left, "other", "z", 7)])
    assert [change.ts for change in changes] == [3]


@pytest.mark.parametrize("compat", [False, True])
def test_a_row_that_a_filter_never_let_through_is_not_held(*, compat: bool) -> None:
    """Nor does it let time pass, nor count where records are limited."""
    table = source("T")
    held = suppressed(filtered(table, lambda value: value == "y"), 5, max_records=1)
    engine, got = Engine([Output(held)], compat=compat, shards=1), []
    for key, value, ts in [("a", "n", 0), ("b", "y", 1), ("a", "n", 9), ("a", None, 9), ("b", "n", 6)]:
        got += engine.run([Record(table, key, value, ts)])[0]
        engine = engine.restarted()
    assert got == [Change(("b",), None, 6)]


def test_bytes_are_limited() -> None:
    table = source("T")
    engine = Engine([Output(suppressed(table, 1000, max_bytes=60))], shards=1)
    (changes,) = engine.run([Record(table, key, "x" * 10, number) for number, key in enumerate("abc")])
    assert [change.key for change in changes] == [("a",), ("b",)]


def test_a_large_row_makes_as_many_leave_as_it_needs() -> None:
    table = source("T")
    engine = Engine([Output(suppressed(table, 1000, max_bytes=400))], shards=1)
    for number, key in enumerate("abcdefghij"):
        assert engine.run([Record(table, key, "x", number)]) == [[]]
    engine = engine.restarted()
    (changes,) = engine.run([Record(table, "k", "x" * 200, 20)])
    assert [change.key[0] for change in changes] == list("abcd")
    engine = engine.restarted()
    (changes,) = engine.run([Record(table, "l", "x" * 400, 5)])
    assert [change.key[0] for change in changes] == list("efl")


def test_holding_too_much_can_be_an_error() -> None:
    table = source("T")
    engine = Engine([Output(suppressed(table, 1000, max_records=1, fail_when_full=True))], shards=1)
    engine.run([Record(table, "a", "x", 1), Record(table, "a", "y", 2)])
    with pytest.raises(BufferFullError, match="2 records"):
        engine.run([Record(table, "b", "x", 3)])
