"""States of earlier versions are read, and queries go on from them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.planner.catalogue import decode
from tablestream.state.sealed import unseal
from tests.simulation.plans import CASES, CLASSES
from tests.state.golden_states import FOLDER, read
from tests.state.tables import faults

if TYPE_CHECKING:
    from pathlib import Path

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
