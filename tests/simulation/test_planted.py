"""The simulator finds faults that are planted in the code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.marks import quick_first
from tests.simulation.__main__ import main
from tests.simulation.planted import PLANTED, Planted
from tests.simulation.run import described, run_world, shrunk
from tests.simulation.world import Kind, World


def shows(planted: Planted, world: World) -> bool:
    """Whether a world that holds fails with the fault, for the reason that the fault names."""
    sound = run_world(world)
    assert sound.problem is None, described(world, sound)
    with planted.plant():
        found = run_world(world).problem is not None
        return found and (run_world(replace(world, faults=())).problem is None) is planted.needs_faults


@pytest.mark.parametrize("name", quick_first(PLANTED, 3))
def test_a_planted_fault_is_found(name: str) -> None:
    planted = PLANTED[name]
    assert any(shows(planted, world) for world in planted.worlds())


@pytest.mark.slow
def test_a_failing_world_becomes_small() -> None:
    planted = PLANTED["a mark is written before the data"]
    with planted.plant():
        world = shrunk(next(planted.worlds()))
        result = run_world(world)
    assert result.problem is not None
    (fault,) = world.faults
    assert fault.kind in {Kind.SINK_FAILS_IN_DATA, Kind.SINK_FAILS_BEFORE_MARK}
    assert not world.tunings
    assert sum(map(len, world.micro_batches)) <= 2
    text = described(world, result)
    assert f"Fault: {fault.kind}" in text
    assert f"restart at micro-batch {fault.micro_batch}" in text


@pytest.mark.slow
def test_a_failing_seed_prints_how_to_replay_it(capsys: pytest.CaptureFixture[str]) -> None:
    with PLANTED["a repeated micro-batch is merged twice"].plant():
        assert main(["--seeds", "1", "--first", "1"]) == 1
    printed = capsys.readouterr().out
    assert "Seed 1 fails: " in printed
    assert "Replay it: python -m tests.simulation --seed 1" in printed
    assert "Smallest world:" in printed
    assert "Failed: 1" in printed
