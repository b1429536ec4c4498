"""The change logs that every contestant reads: made once, by a fixed seed, one Parquet file a micro-batch.

Items point at customers by foreign key. Every change has a time of its own (items at even, customers at odd
microseconds), both logs are ordered by it, and file ``n`` of both covers the same span of time. So the order
of changes is the same for whoever reads them, and so is the number of result changes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

    from pyspark.sql import DataFrame, SparkSession

SEED = 20_240_801
START_US = 1_700_000_000_000_000
SMALL_ITEM_CHANGES = 100
"""A small micro-batch: so many item changes, and one customer change that fans out."""
HOT_CUSTOMER = 0
"""The customer that many items point at, if a workload is skewed."""
ROW_GROUP_ROWS = 131_072
"""Small enough that Spark reads one file in two tasks."""

ITEM_SCHEMA = "item_id bigint, customer_id bigint, item string, amount double, ts timestamp"
CUSTOMER_SCHEMA = "customer_id bigint, customer string, score double, ts timestamp"


@dataclass(frozen=True)
class Workload:
    """How much there is of what; its fields name its directory.

    Where items do not move, an item points at the same customer in all its changes. `hot_percent` of all item changes
    point at one customer.
    """

    left_changes: int
    left_keys: int
    right_changes: int
    right_keys: int
    micro_batches: int
    small_micro_batches: int = 0
    items_move: bool = True
    hot_percent: int = 0

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
    return made_once(folder, partial(_write_logs, workload))


def made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Let a function fill a folder unless it is there, so that no unfinished one is ever read; return it."""
    if not folder.exists():
        unfinished = folder.with_suffix(f".{os.getpid()}")
        write(unfinished)
        unfinished.rename(folder)
    return folder


def _write_logs(w: Workload, folder: Path) -> None:
    """Write both logs, cut at the same moments; how they are cut changes nothing in them."""
    full = [number * w.left_changes // w.micro_batches for number in range(w.micro_batches)]
    small = [w.left_changes + number * SMALL_ITEM_CHANGES for number in range(w.small_micro_batches + 1)]
    item_cuts = np.array(full + small)
    customer_times = _customer_times(w)
    logs = {
        "items": (_items(w, np.arange(item_cuts[-1])), item_cuts),
        "customers": (_customers(w, customer_times), np.searchsorted(customer_times, item_cuts)),
    }
    for side, (log, cuts) in logs.items():
        for prefix in ("", "small-"):
            (folder / f"{prefix}{side}").mkdir(parents=True)
        for number, (start, end) in enumerate(pairwise(cuts.tolist())):
            prefix = "small-" if number >= w.micro_batches else ""
            write_file(folder / f"{prefix}{side}", number, log[start:end])


def write_file(folder: Path, number: int, rows: pa.Table) -> None:
    """Write the rows of a log's micro-batch."""
    file = folder / f"{number:04d}.parquet"
    pq.write_table(rows, file, row_group_size=ROW_GROUP_ROWS, compression="snappy")
    time_s = START_US // 1_000_000 + number  # the order in which Spark reads files
    os.utime(file, (time_s, time_s))


def _customer_times(w: Workload) -> Numbers:
    """Return after which item change each customer change comes: evenly, one in each small micro-batch."""
    even = np.arange(w.right_changes) * w.left_changes // w.right_changes
    middle = w.left_changes + SMALL_ITEM_CHANGES // 2
    return np.concatenate([even, middle + SMALL_ITEM_CHANGES * np.arange(w.small_micro_batches)])


def _items(w: Workload, times: Numbers) -> pa.Table:
    item_ids = drawn(0).integers(0, w.left_keys, len(times))
    customer_ids = drawn(1).integers(0, w.right_keys, len(times))
    customer_ids[drawn(5).integers(0, 100, len(times)) < w.hot_percent] = HOT_CUSTOMER
    return pa.table(
        {
            "item_id": item_ids,
            "customer_id": customer_ids if w.items_move else item_ids % w.right_keys,
            "item": _numbered("item-", len(times)),
            "amount": drawn(2).random(len(times)) * 100,
            "ts": timestamps(2 * times),
        }
    )


def _customers(w: Workload, times: Numbers) -> pa.Table:
    return pa.table(
        {
            "customer_id": drawn(3).integers(0, w.right_keys, len(times)),
            "customer": _numbered("customer-", len(times)),
            "score": drawn(4).random(len(times)) * 100,
            "ts": timestamps(2 * times + 1),
        }
    )


def drawn(column: int) -> np.random.Generator:
    """Return the randomness of one column; a longer log begins with the rows of a shorter one."""
    return np.random.default_rng((SEED, column))


def _numbered(prefix: str, count: int) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(np.arange(count)), pa.string()), "")


def timestamps(offsets_us: Numbers) -> pa.Array:
    """Return the times so many microseconds after the start."""
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
