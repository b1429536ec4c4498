"""Random logs whose tombstones lack random columns, cut at random: the table is what a dictionary is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.planner.physical_plan import Output
from tablestream.runtime.rounds import BY_PARTITION
from tablestream.topology.nodes import Field, Node, SequenceBy
from tests.plans.packed import PackedEngine, Raw
from tests.plans.tables import LONG, VALUE, materialized, reordered, source
from tests.properties.strategies import cuts

if TYPE_CHECKING:
    from collections.abc import Callable

#: The keys of each partition.
PARTITIONS = ("ab", "cd")


def log(*, ordered: bool = False) -> Any:
    return replace(source("A"), lacks_times=BY_PARTITION, ordered_by=LONG if ordered else None)


def sequenced(parent: Node) -> SequenceBy:
    return SequenceBy("A_sequenced", "", parent.key, VALUE, parent, Field("_sq", LONG), "n", None)


PLANS: dict[str, Callable[[], Node]] = {
    "alone": log,
    "kept": lambda: materialized(log()),
    "versions": lambda: materialized(log(), 1000),
    "reordered versions": lambda: materialized(reordered(log(), 0), 1000),
    "ordered": lambda: materialized(log(ordered=True)),
    "sequenced": lambda: sequenced(log()),
    "ordered and sequenced": lambda: materialized(sequenced(log(ordered=True))),
}


@st.composite
def logs(draw: st.DrawFn) -> list[Raw]:
    """Draw records of two partitions, whose times and orders rise in each; tombstones lack some of what rows have."""
    records: list[Raw] = []
    at = [draw(st.integers(1, 50)) for _ in PARTITIONS]
    for position in range(draw(st.integers(1, 12))):
        partition = draw(st.integers(0, 1))
        key, value = (
            draw(st.sampled_from(PARTITIONS[partition])),
            draw(st.sampled_from([str(position), None])),
        )
        at[partition] += draw(st.integers(0, 5))
        said = [at[partition], at[partition] * 2, draw(st.integers(0, 5))]
        if value is None:
            said = [one if draw(st.booleans()) else None for one in said]  # type: ignore[misc]
        records.append(Raw(partition, position, key, value, draw(st.integers(0, 9999)), *said))
    return records


def as_dictionary(records: list[Raw], *, sequenced: bool) -> dict[str, str]:
    rows: dict[str, str] = {}
    known: dict[str, int] = {}
    for one in records:
        if sequenced and one.sequence is not None:
            if one.sequence < known.get(one.key, 0):
                continue
            known[one.key] = one.sequence
        if one.value is None:
            rows.pop(one.key, None)
        else:
            rows[one.key] = one.value
    return rows


@pytest.mark.parametrize("name", PLANS)
@given(data=st.data())
def test_a_tombstone_deletes_whatever_it_lacks(name: str, data: st.DataObject) -> None:
    records = data.draw(logs())
    node, shards = PLANS[name](), data.draw(st.sampled_from([1, 3]))
    rows: dict[Any, Any] = {}
    engine = PackedEngine([Output(node)], shards=shards)
    for piece in data.draw(cuts(records)):
        engine = engine.restarted()
        for change in engine.feed(piece):
            rows[change.key[0]] = change.value
    found = {key: value for key, value in rows.items() if value is not None}
    assert found == as_dictionary(records, sequenced="sequenced" in name)
    assert not any("null" in f"{operator} {reason}" for operator, reason in engine.dropped)


@given(data=st.data())
def test_the_time_of_a_tombstone_does_not_depend_on_cuts(data: st.DataObject) -> None:
    """Of one partition, in all plans with an operator."""
    records = [one for one in data.draw(logs()) if not one.partition]
    for name in set(PLANS) - {"alone"}:
        found = []
        for pieces in ([records], data.draw(cuts(records))):
            engine = PackedEngine([Output(PLANS[name]())])
            found.append([change for piece in pieces for change in engine.feed(piece)])
        by_key = [sorted(changes, key=lambda one: one.key) for changes in found]
        assert by_key[0] == by_key[1], name
