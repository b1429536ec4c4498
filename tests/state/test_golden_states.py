"""States of earlier versions are read, and queries go on from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.planner.catalogue import decode
from tablestream.state.sealed import unseal
from tests.plans.comparing import by_step_and_key, sources_of
from tests.plans.evolving import evolves, kept_rows
from tests.simulation.plans import CASES, CLASSES
from tests.state.golden_states import FOLDER, read
from tests.state.tables import faults

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plans.engine import Engine
    from tests.state.golden_states import GoldenState

FILES = sorted(FOLDER.glob("*.jsonl.gz"))


#: `make check` runs one plan of each class of operators.
QUICK = {next(iter(cases)) for cases in CLASSES.values()}


def states() -> list[GoldenState]:
    return [state for file in FILES for state in read(file)]


def cases() -> list[Any]:
    return [
        pytest.param(
            state,
            id=f"{file.name[:3]}-{state.plan}-{'compat' if state.compat else 'default'}",
            marks=[] if state.plan in QUICK and not state.compat else [pytest.mark.slow],
        )
        for file in FILES
        for state in read(file)
    ]


@pytest.mark.parametrize("state", cases())
def test_a_query_goes_on_from_a_stored_state(state: GoldenState) -> None:
    """What it emits is what a query emits that has run from the start."""
    whole, restored = state.engine(), state.restored()
    state.run(whole, state.first_half)
    assert state.run(restored, state.second_half) == state.run(whole, state.second_half)


def can_evolve(state: GoldenState) -> bool:
    """Whether the rows of its sources, which it has whole, say all that the plan remembers."""
    case, plan = CASES[state.plan], state.engine().plan
    nodes = [output.node for output in case.outputs()]
    whole = {one.name for one in plan.whole} >= {one.name for one in sources_of(nodes)}
    return evolves(nodes) and whole and not state.compat and case.align is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_query_evolves_from_a_stored_state(file: Path) -> None:
    """After an upgrade: with more shards, it emits what a query emits that has run from the start, but for times."""
    states = [state for state in read(file) if can_evolve(state)]
    assert len(states) > 3
    for state in states:
        whole, restored = state.engine(), state.restored()
        state.run(whole, state.first_half)
        evolved = replace(state.engine(), shards=3, position=restored.position)
        rows = kept_rows(restored, sources_of([one.node for one in evolved.outputs]))
        evolved.steps([], bootstrap=rows)
        assert told(state, evolved) == told(state, whole), state.plan


def told(state: GoldenState, engine: Engine) -> list[Any]:
    """What is emitted of the second half."""
    return [
        [(one.number, one.change.key, one.change.value) for one in by_step_and_key(steps)]
        for outputs in state.run(engine, state.second_half)
        for steps in outputs
    ]


def test_every_stored_state_is_whole() -> None:
    stores = [store for state in states() for store in state.restored().stores.values()]
    assert sum(len(store.chunks) for store in stores) > len(states())
    assert [fault for store in stores for fault in faults(store)] == []


def test_the_tables_of_every_stored_state_can_be_read() -> None:
    found = [
        decode(unseal(store["tables"], "tables"))
        for state in states()
        for store in state.stores.values()
        if store["tables"] is not None
    ]
    assert len(found) > len(states())
    assert any(one.tables for one in found)


@pytest.mark.slow
def test_the_stored_states_have_something_to_forget() -> None:
    """An engine without the state emits something else, for nearly every plan."""
    forgotten = Counter(
        state.run(state.engine(), state.second_half) == state.run(state.restored(), state.second_half)
        for state in states()
    )
    assert forgotten[True] <= len(states()) // 5


@pytest.mark.parametrize("file", FILES[-1:], ids=lambda file: file.name)
def test_the_newest_file_has_every_plan_of_the_simulator(file: Path) -> None:
    assert {(state.plan, state.compat) for state in read(file)} == {
        (name, compat) for name, case in CASES.items() for compat in case.modes
    }
