"""Logs for joins with many left rows: all of them under one right row, or more with every micro-batch.

The columns are those of `benchmarks.workload`; every change has a time of its own, items at even microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.columns import numbered
from benchmarks.workload import drawn, made_once, timestamps, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Numbers

FANNED_OUT = 0
"""The customer that all items of a fan-out point at."""
MOVED_ONE_IN = 10
"""In a growing table one change in so many moves an earlier item to another customer; the others bring a new item."""
ROWS_EACH = 20
"""Customers of a growing table have so many items, once it has its full size."""


@dataclass(frozen=True)
class FanOut:
    """So many left rows point at one right row, which then changes once in each of some small micro-batches."""

    items: int
    micro_batches: int
    fan_outs: int


def prepare_fan_out(fan_out: FanOut, directory: Path) -> Path:
    """Make the logs under ``directory`` unless they are there, and return the folder that holds them."""
    names = fan_out.items, fan_out.micro_batches, fan_out.fan_outs
    return made_once(directory / "-".join(["fan-out", *map(str, names)]), partial(_write_fan_out, fan_out))


def _write_fan_out(fan_out: FanOut, folder: Path) -> None:
    count = fan_out.items
    items = _items(np.arange(count), np.full(count, FANNED_OUT), np.arange(count))
    for number, (start, end) in enumerate(pairwise(_cuts(count, fan_out.micro_batches))):
        write_file(_made(folder / "items"), number, items[start:end])
    write_file(_made(folder / "customers"), 0, _customers(np.array([FANNED_OUT]), np.zeros(1, np.int64), 0))
    for number in range(1, fan_out.fan_outs + 1):
        changed = _customers(np.array([FANNED_OUT]), np.array([count + number]), number)
        write_file(_made(folder / "small-customers"), fan_out.micro_batches + number, changed)
    _made(folder / "small-items")


@dataclass(frozen=True)
class Growing:
    """A left table with so many changes in micro-batches of equal size, and a right table that is there before."""

    changes: int
    micro_batches: int


def prepare_growing(growing: Growing, directory: Path) -> Path:
    """Make the logs under ``directory`` unless they are there, and return the folder that holds them."""
    folder = directory / f"growth-{growing.changes}-{growing.micro_batches}"
    return made_once(folder, partial(_write_growing, growing))


def _write_growing(growing: Growing, folder: Path) -> None:
    customers = max(1, growing.changes // ROWS_EACH)
    log = _customers(np.arange(customers), np.zeros(customers, np.int64), 0)
    write_file(_made(folder / "customers"), 0, log)
    number = np.arange(growing.changes)
    moves = number % MOVED_ONE_IN == MOVED_ONE_IN - 1
    brought = number - number // MOVED_ONE_IN
    earlier = (drawn(80).random(growing.changes) * brought).astype(np.int64)
    pointed_at = drawn(81).integers(0, customers, growing.changes)
    items = _items(np.where(moves, earlier, brought), pointed_at, number)
    for at, (start, end) in enumerate(pairwise(_cuts(growing.changes, growing.micro_batches))):
        write_file(_made(folder / "items"), at, items[start:end])


def _items(items: Numbers, customers: Numbers, times: Numbers) -> pa.Table:
    return pa.table(
        {
            "item_id": items,
            "customer_id": customers,
            "item": numbered("item-", times),
            "amount": drawn(82).random(len(items)) * 100,
            "ts": timestamps(2 * times + 2),
        }
    )


def _customers(customers: Numbers, times: Numbers, score: int) -> pa.Table:
    return pa.table(
        {
            "customer_id": customers,
            "customer": numbered("customer-", customers),
            "score": np.full(len(customers), float(score)),
            "ts": timestamps(2 * times + 1),
        }
    )


def _cuts(count: int, parts: int) -> list[int]:
    return [number * count // parts for number in range(parts + 1)]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
