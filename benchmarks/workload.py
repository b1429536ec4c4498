"""The change logs that every contestant reads: made once, by a fixed seed, one Parquet file a micro-batch.

Items point at customers by foreign key. Every change has a time of its own (items at even, customers at odd
microseconds), both logs are ordered by it, and file ``n`` of both covers the same span of time. So the order
of changes is the same for whoever reads them, and so is the number of result changes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SEED = 20_240_801
START_US = 1_700_000_000_000_000
SMALL_ITEM_CHANGES = 100
"""A small micro-batch: so many item changes, and one customer change that fans out."""
ROW_GROUP_ROWS = 131_072
"""Small enough that Spark reads one file in two tasks."""

ITEM_SCHEMA = "item_id bigint, customer_id bigint, item string, amount double, ts timestamp"
CUSTOMER_SCHEMA = "customer_id bigint, customer string, score double, ts timestamp"


@dataclass(frozen=True)
class Workload:
    """How much there is of what; its fields name its directory.

    Where items do not move, an item points at the same customer in all its changes.
    """

    left_changes: int
    left_keys: int
    right_changes: int
    right_keys: int
    micro_batches: int
    small_micro_batches: int = 0
    items_move: bool = True

    @property
    def changes(self) -> int:
        """Number of changes of both logs, without the small micro-batches."""
        return self.left_changes + self.right_changes

    def scaled_down_to(self, changes: int) -> Workload:
        """Return the same workload with fewer changes and, in proportion, fewer keys, and no item that moves.

        A key sees as many changes, and a customer has as many items at a time, as before.
        """
        part = min(1.0, changes / self.changes)
        return replace(
            self,
            left_changes=max(1, round(self.left_changes * part)),
            left_keys=max(1, round(self.left_keys * part)),
            right_changes=max(1, round(self.right_changes * part)),
            right_keys=max(1, round(self.right_keys * part)),
            small_micro_batches=0,
            items_move=False,
        )

    def cut_into(self, micro_batches: int) -> Workload:
        """Return the same changes in another number of micro-batches."""
        return replace(self, micro_batches=micro_batches, small_micro_batches=0)


def prepare(workload: Workload, directory: Path) -> Path:
    """Make the files of a workload under ``directory`` unless they are there, and return their folder.

    Returns
    -------
    Path
        The folder that holds ``items``, ``customers``, ``small-items`` and ``small-customers``.
    """
    folder = directory / "-".join(str(int(n)) for n in asdict(workload).values())
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(f".{os.getpid()}")
    writer = _Writer(workload, unfinished)
    for number in range(workload.micro_batches):
        writer.write_full(number)
    for number in range(workload.small_micro_batches):
        writer.write_small(number)
    unfinished.rename(folder)
    return folder


class _Writer:
    """Writes the files in the order of their time; a file's modification time says its place."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self._workload = workload
        self._folder = folder
        self._random = np.random.default_rng(SEED)
        for name in ("items", "customers", "small-items", "small-customers"):
            (folder / name).mkdir(parents=True)

    def write_full(self, number: int) -> None:
        """Write one of the equal parts of both logs."""
        w = self._workload
        items = _part(w.left_changes, w.micro_batches, number)
        customers = _part(w.right_changes, w.micro_batches, number)
        customer_times = items[0] + np.arange(len(customers)) * len(items) // len(customers)
        self._write("items", number, number, self._items(items))
        self._write("customers", number, number, self._customers(customers, customer_times))

    def write_small(self, number: int) -> None:
        """Write the files of one small micro-batch, later than everything before."""
        w = self._workload
        first = w.left_changes + number * SMALL_ITEM_CHANGES
        items = np.arange(first, first + SMALL_ITEM_CHANGES)
        customers = np.array([w.right_changes + number])
        customer_times = np.array([first + SMALL_ITEM_CHANGES // 2])
        place = w.micro_batches + number
        self._write("small-items", number, place, self._items(items))
        self._write("small-customers", number, place, self._customers(customers, customer_times))

    def _items(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
        w = self._workload
        item_ids = self._random.integers(0, w.left_keys, len(ids))
        drawn = self._random.integers(0, w.right_keys, len(ids))
        return pa.table(
            {
                "item_id": item_ids,
                "customer_id": drawn if w.items_move else item_ids % w.right_keys,
                "item": _numbered("item-", ids),
                "amount": self._random.random(len(ids)) * 100,
                "ts": _timestamps(2 * ids),
            }
        )

    def _customers(
        self,
        ids: np.ndarray[tuple[int], np.dtype[np.int64]],
        times: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> pa.Table:
        return pa.table(
            {
                "customer_id": self._random.integers(0, self._workload.right_keys, len(ids)),
                "customer": _numbered("customer-", ids),
                "score": self._random.random(len(ids)) * 100,
                "ts": _timestamps(2 * times + 1),
            }
        )

    def _write(self, side: str, number: int, place: int, table: pa.Table) -> None:
        file = self._folder / side / f"{place:04d}-{number:04d}.parquet"
        pq.write_table(table, file, row_group_size=ROW_GROUP_ROWS, compression="snappy")
        time_s = START_US // 1_000_000 + place
        os.utime(file, (time_s, time_s))


def _part(total: int, parts: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(number * total // parts, (number + 1) * total // parts)


def _numbered(prefix: str, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(ids), pa.string()), "")


def _timestamps(offsets_us: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.cast(pa.array(START_US + offsets_us), pa.timestamp("us", tz="UTC"))


def copy_log(folder: Path, run: Path, *, prefix: str = "") -> None:
    """Link both logs' files into a run's own folders; ``prefix="small-"`` adds the small micro-batches."""
    for side in ("items", "customers"):
        target = run / side
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted((folder / f"{prefix}{side}").iterdir()):
            _link(file, target / file.name)


def _link(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except OSError:  # a file system without hard links
        shutil.copy2(file, target)


def read_stream(spark: SparkSession, run: Path, side: str) -> DataFrame:
    """Return one log as a plain streaming DataFrame, one file a micro-batch."""
    schema = ITEM_SCHEMA if side == "items" else CUSTOMER_SCHEMA
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(run / side))
