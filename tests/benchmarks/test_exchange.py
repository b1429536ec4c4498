"""The benchmark of the stateless stages: each stage gets what the one before it gave, and loses nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.exchange import costs, main
from benchmarks.stages import record_batches, stages
from benchmarks.workload import Workload, prepare

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = Workload(600, 100, 60, 10, micro_batches=1)


def test_stages_pass_on_what_they_get(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD, tmp_path)
    read = record_batches(folder, "items"), record_batches(folder, "customers")
    measured = {stage.name: stage for stage in stages(*read)}
    rows = {name: stage.rows for name, stage in measured.items()}
    assert rows["pack records"] == 660
    assert rows["unpack for round 1"] == 600
    assert rows["unpack for round 2"] == rows["pack what round 1 emits"] + 60
    assert rows["unpack and sort results"] == rows["pack what round 2 emits"] > 600
    assert {name: stage.run() for name, stage in measured.items()} == rows


@pytest.mark.exhaustive
def test_every_stage_has_a_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = costs(prepare(WORKLOAD, tmp_path), repeats=1)
    assert len(found) == 8
    assert all(0 < one.minimum_us <= one.median_us for one in found)
    main(["--items", "600", "--repeats", "1", "--data", str(tmp_path)])
    assert "unpack and sort results" in capsys.readouterr().out
