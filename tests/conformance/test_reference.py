"""The record-at-a-time reference against what Kafka Streams did, and against the examples of the KIPs."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.vectors import Event, Sequence, foreign_key, joined, replay, sequences
from tests.reference import (
    Filter,
    ForeignKeyJoin,
    KeyJoin,
    MapValues,
    Output,
    Reference,
    TableSource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def unversioned(family: str, *ops: str) -> list[Any]:
    found = [s for s in sequences(family) if s.op in ops and not s.versioned]
    return [pytest.param(sequence, id=str(sequence)) for sequence in found]


def over_sources(
    operator: Reference, roles: Mapping[str, tuple[int, ...]]
) -> tuple[list[TableSource], Callable[[Event], list[Output]]]:
    """Read each topic as a table and pass every change to the ports that the topic is read at."""
    sources = {topic: TableSource(compat=operator.compat) for topic in roles}

    def answer(event: Event) -> list[Output]:
        forwarded = sources[event.topic].change(0, event.key, event.value, event.ts)
        return operator.step([(port, *out) for out in forwarded for port in roles[event.topic]])

    return list(sources.values()), answer


def reproduces(sequence: Sequence, operator: Reference, roles: Mapping[str, tuple[int, ...]]) -> None:
    sources, answer = over_sources(operator, roles)
    replay(sequence, answer)
    assert operator.dropped + sum(source.dropped for source in sources) == sequence.dropped


# What was recorded.


def test_all_recorded_families_are_there() -> None:
    families = [
        "pk_join",
        "fk_join",
        "table_ops",
        "groupby_aggregate",
        "stream_table_join",
        "stream_global_table_join",
    ]
    assert [len(sequences(family)) for family in families] == [81, 60, 63, 27, 54, 6]
    assert len(unversioned("pk_join", "pk_join")) == 9
    assert len(unversioned("fk_join", "fk_join")) == 6
    assert len(unversioned("fk_join", "fk_self_join")) == 6


@pytest.mark.parametrize("sequence", unversioned("pk_join", "pk_join"))
def test_key_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    join = KeyJoin(sequence.params["join"], joiner=joined, compat=True)
    reproduces(sequence, join, {"L": (0,), "R": (1,)})


@pytest.mark.parametrize("sequence", unversioned("fk_join", "fk_join"))
def test_foreign_key_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    join = ForeignKeyJoin(foreign_key, sequence.params["join"], joiner=joined, compat=True)
    reproduces(sequence, join, {"L": (0,), "R": (1,)})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("sequence", unversioned("fk_join", "fk_self_join"))
def test_foreign_key_self_join_gives_the_recorded_outputs(sequence: Sequence, order: tuple[int, int]) -> None:
    join = ForeignKeyJoin(
        foreign_key, sequence.params["join"], joiner=joined, store_ids=["T", "T"], compat=True
    )
    topic = sequence.events[0].topic
    reproduces(sequence, join, {topic: order})


@pytest.mark.parametrize(
    "sequence",
    unversioned("table_ops", "table_to_stream", "filter_y", "filter_not_y", "map_values_n2_to_null"),
)
def test_stateless_operators_give_the_recorded_outputs(sequence: Sequence) -> None:
    materialized = sequence.params["source_materialized"]
    operator: Reference = {
        "table_to_stream": MapValues(lambda value: value, compat=True),
        "filter_y": Filter(lambda value: value[0] == "y", old_values=materialized, compat=True),
        "filter_not_y": Filter(lambda value: value[0] != "y", old_values=materialized, compat=True),
        "map_values_n2_to_null": MapValues(lambda value: None if value == "n2" else value + "!", compat=True),
    }[sequence.op]
    reproduces(sequence, operator, {"T": (0,)})


# Sources.


def test_source_forwards_everything_but_null_keys() -> None:
    table = TableSource(compat=True)
    records = [("a", 1, 5), ("a", 1, 5), ("a", 2, 3), ("a", None, 1), ("a", None, 2), (None, "x", 9)]
    assert table.step([(0, *record) for record in records]) == records[:-1]
    assert table.dropped == 1
    assert table.rows() == {}


def test_source_keeps_what_arrived_last() -> None:
    table = TableSource()
    table.step([(0, "a", 1, 5), (0, "a", 2, 3)])
    assert table.rows() == {"a": (2, 3)}


def test_source_refuses_negative_timestamps_in_compat() -> None:
    assert TableSource().change(0, "a", 1, -1) == [("a", 1, -1)]
    with pytest.raises(ValueError, match="negative timestamp -1"):
        TableSource(compat=True).change(0, "a", 1, -1)


# Filters.


def filter_trace(operator: Reference) -> list[Output]:
    changes = zip(["n", "y", "y", "n", "n", None, None], range(1, 8), strict=True)
    return list(chain.from_iterable(operator.change(0, "k", value, ts) for value, ts in changes))


def test_filter_knows_what_it_filtered_out() -> None:
    wanted = [("k", "y", 2), ("k", "y", 3), ("k", None, 4)]
    assert filter_trace(Filter("y".__eq__)) == wanted
    assert filter_trace(Filter("y".__eq__, old_values=True, compat=True)) == wanted


def test_filter_of_a_bare_source_repeats_tombstones_in_compat() -> None:
    outputs = filter_trace(Filter("y".__eq__, compat=True))
    assert [(out.value, out.ts) for out in outputs] == [
        (None, 1), ("y", 2), ("y", 3), (None, 4), (None, 5), (None, 6), (None, 7),
    ]  # fmt: skip


def test_filter_emits_a_key_once_a_step() -> None:
    step = [(0, "k", "y", 1), (0, "k", "n", 2)]
    assert Filter("y".__eq__).step(step) == []
    assert Filter("y".__eq__, compat=True).step(step) == [("k", "y", 1), ("k", None, 2)]


def test_map_values_never_sees_a_tombstone_and_may_make_one() -> None:
    mapper = MapValues(lambda value: None if value == "drop" else value.upper())
    assert mapper.change(0, "k", None, 1) == [("k", None, 1)]
    assert mapper.change(0, "k", "drop", 2) == [("k", None, 2)]
    assert mapper.change(0, "k", "a", 0) == [("k", "A", 0)]
