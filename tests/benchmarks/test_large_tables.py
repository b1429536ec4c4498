"""Logs with many left rows, and the contestants that read them, at a tiny size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.contestants import load
from benchmarks.contestants.fan_out import reached_every_row
from benchmarks.contestants.growth import answered_once
from benchmarks.large_tables import FanOut, Growing, prepare_fan_out, prepare_growing
from benchmarks.launch import Task
from benchmarks.results import OBSERVATION, MicroBatch
from tests.benchmarks.through_driver import read

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_all_items_point_at_the_customer_that_changes(tmp_path: Path) -> None:
    folder = prepare_fan_out(FanOut(1_000, 3, 2), tmp_path)
    items = pa.concat_tables(read(folder, "items"))
    assert len(read(folder, "items")) == 3
    assert items["item_id"].to_pylist() == list(range(1_000))
    assert set(items["customer_id"].to_pylist()) == {0}
    (first,), later = read(folder, "customers"), read(folder, "small-customers")
    assert [log["score"].to_pylist() for log in (first, *later)] == [[0.0], [1.0], [2.0]]
    times = [first["ts"][0].as_py(), *items["ts"].to_pylist(), *(log["ts"][0].as_py() for log in later)]
    assert times == sorted(set(times))


def test_a_growing_table_has_new_items_and_moves_of_earlier_ones_in_equal_parts(tmp_path: Path) -> None:
    logs = read(prepare_growing(Growing(1_000, 4), tmp_path), "items")
    assert [len(log) for log in logs] == [250] * 4
    seen: set[int] = set()
    for log in logs:
        keys = log["item_id"].to_pylist()
        new = [key for key in dict.fromkeys(keys) if key not in seen]
        assert 220 <= len(new) <= 230
        seen.update(keys)
    assert seen == set(range(900))
    (customers,) = read(tmp_path / "growth-1000-4", "customers")
    assert set(pa.concat_tables(logs)["customer_id"].to_pylist()) <= set(customers["customer_id"].to_pylist())
    assert pc.max(customers["ts"]).as_py() < pc.min(logs[0]["ts"]).as_py()


@pytest.mark.exhaustive
def test_a_fan_out_reaches_every_left_row_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = prepare_fan_out(FanOut(400, 1, 1), tmp_path)
    run = load("fan-out")(spark, Task("fan-out", str(folder), str(tmp_path / "run"), "", 1))
    assert run.facts == {
        "left rows of the right row": 400,
        "each change reached every left row once": "yes",
    }
    assert [one.changes_out for one in run.small_micro_batches] == [400]


@pytest.mark.exhaustive
def test_every_change_of_a_growing_table_is_answered_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = prepare_growing(Growing(400, 2), tmp_path)
    run = load("growth")(spark, Task("growth", str(folder), str(tmp_path / "run"), "", 2))
    assert run.facts == {"rows of the left table": 360, "every change is answered once": "yes"}
    assert [one.changes_out for one in run.micro_batches] == [200, 200]


def micro_batch(changes_out: int, rows_in: int = 5, **observed: object) -> MicroBatch:
    return MicroBatch(1, 0.0, 1.0, rows_in, changes_out, observed={OBSERVATION: observed})


@pytest.mark.parametrize(
    ("changes_out", "items", "lowest", "highest"),
    [(4, 10, 2.0, 2.0), (5, 11, 2.0, 2.0), (5, 10, 1.0, 2.0), (5, 10, 1.0, 1.0), (5, 10, None, None)],
)
def test_a_fan_out_that_misses_a_row_is_found(
    changes_out: int, items: int, lowest: float | None, highest: float | None
) -> None:
    assert reached_every_row(micro_batch(5, items=10, lowest=2.0, highest=2.0), 5, 2)
    assert not reached_every_row(micro_batch(changes_out, items=items, lowest=lowest, highest=highest), 5, 2)


@pytest.mark.parametrize(("changes_out", "matched"), [(5, 4), (4, 4), (6, 6)])
def test_a_growing_table_that_misses_an_answer_is_found(changes_out: int, matched: int) -> None:
    assert answered_once(micro_batch(5, matched=5), 0)
    assert answered_once(micro_batch(5, rows_in=8, matched=5), 3)
    assert not answered_once(micro_batch(changes_out, matched=matched), 0)
