"""Random plans whose tables start with random bootstraps: the engine against its twin of reference operators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Node, Suppress
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import stable_hash
from tests.plans.tables import Record
from tests.properties.test_plans import KEYS, Case, cases


@st.composite
def bootstraps(draw: st.DrawFn, nodes: tuple[Node, ...]) -> list[Record]:
    """Draw rows of each table, one of a key; tombstones are rows that do not exist.

    What suppress lets through depends on the order of times, and the twin has no order in a step: rows of plans with
    it have one time.
    """
    held = any(isinstance(node, Suppress) for node in ancestors(*nodes))
    pointers = st.lists(st.sampled_from(KEYS), max_size=2)
    value = st.builds(lambda letter, to: "|".join([letter, *to]), st.sampled_from("ab"), pointers)
    times = st.just(0) if held else st.integers(0, 40)
    rows = []
    for table in sources_of(nodes):
        if not table.records:
            key = st.tuples(*(st.sampled_from(KEYS) for _ in table.key))
            row = st.builds(Record, st.just(table), key, st.one_of(value, value, st.none()), times)
            rows += draw(st.lists(row, max_size=6, unique_by=lambda one: one.key))
    return rows


@given(data=st.data(), case=cases(ordered=False))
def test_random_plans_start_with_bootstraps(data: st.DataObject, case: Case) -> None:
    """As if all rows were one transaction ahead of the log: cut, and restarted after each cut."""
    hasher = (lambda parts: 7) if case.colliding else stable_hash  # noqa: ARG005 - every key collides
    rows = data.draw(bootstraps(case.nodes))
    assert_like_twin(
        case.nodes, case.pieces, shards=case.shards, hasher=hasher, restarts=True, bootstrap=rows
    )
