"""The logs that contestants read: the same for all, in one order, cut alike on both sides."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.workload import Workload, copy_log, prepare

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

WORKLOAD = Workload(
    left_changes=1_000,
    left_keys=100,
    right_changes=90,
    right_keys=10,
    micro_batches=7,
    small_micro_batches=2,
)


def read(folder: Path, side: str) -> list[pa.Table]:
    return [pq.read_table(file) for file in sorted((folder / side).iterdir())]


def test_both_logs_have_all_changes_and_keys_in_range(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD, tmp_path)
    items, customers = read(folder, "items"), read(folder, "customers")
    assert sum(map(len, items)) == 1_000
    assert sum(map(len, customers)) == 90
    assert {key for table in items for key in table["item_id"].to_pylist()} <= set(range(100))
    assert {key for table in customers for key in table["customer_id"].to_pylist()} == set(range(10))


def test_a_file_ends_before_the_next_of_either_side_begins(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD, tmp_path)
    times: list[set[datetime]] = []
    for items, customers in zip(read(folder, "items"), read(folder, "customers"), strict=True):
        assert items["ts"].to_pylist() == sorted(items["ts"].to_pylist())
        assert customers["ts"].to_pylist() == sorted(customers["ts"].to_pylist())
        both = items["ts"].to_pylist() + customers["ts"].to_pylist()
        assert len(set(both)) == len(both)
        times.append(set(both))
    for earlier, later in pairwise(times):
        assert max(earlier) < min(later)


def test_files_are_told_apart_by_modification_time_and_keep_it_when_linked(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD, tmp_path)
    copy_log(folder, tmp_path / "run")
    copy_log(folder, tmp_path / "run", prefix="small-")
    files = sorted((tmp_path / "run" / "items").iterdir())
    assert len(files) == 9
    assert [f.stat().st_mtime for f in files] == sorted({f.stat().st_mtime for f in files})


def test_a_workload_is_made_once_and_by_a_fixed_seed(tmp_path: Path) -> None:
    first = prepare(WORKLOAD, tmp_path / "a")
    made = {file: file.stat().st_ino for file in first.rglob("*.parquet")}
    assert prepare(WORKLOAD, tmp_path / "a") == first
    assert {file: file.stat().st_ino for file in first.rglob("*.parquet")} == made
    assert read(prepare(WORKLOAD, tmp_path / "b"), "items") == read(first, "items")


@pytest.mark.parametrize("changes", [10, 109, 1_090, 5_000])
def test_scaled_down_a_key_sees_as_many_changes_as_before(changes: int) -> None:
    small = WORKLOAD.scaled_down_to(changes)
    assert abs(small.changes - min(changes, WORKLOAD.changes)) <= 1
    assert small.left_changes / small.left_keys == pytest.approx(10, rel=0.1)


def test_items_of_a_scaled_down_workload_never_move(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD.scaled_down_to(500), tmp_path)
    pairs = {
        pair
        for table in read(folder, "items")
        for pair in zip(table["item_id"].to_pylist(), table["customer_id"].to_pylist(), strict=True)
    }
    assert len({item for item, _ in pairs}) == len(pairs)


def test_another_cut_gives_the_same_changes(tmp_path: Path) -> None:
    whole, cut = prepare(WORKLOAD, tmp_path), prepare(WORKLOAD.cut_into(3), tmp_path)
    for side in ("items", "customers"):
        assert pa.concat_tables(read(whole, side)) == pa.concat_tables(read(cut, side))


def test_a_small_micro_batch_is_a_hundred_item_changes_and_one_of_a_customer(tmp_path: Path) -> None:
    folder = prepare(WORKLOAD, tmp_path)
    assert [len(table) for table in read(folder, "small-items")] == [100, 100]
    assert [len(table) for table in read(folder, "small-customers")] == [1, 1]
