"""Slices: a shard's part of a micro-batch, divided if it is large. A round works them off one after the other.

The slices follow each other in the total order, and none divides a step. So a slice can be opened and numbered by
itself, as if it were a micro-batch: only the places of the messages have to be known at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.runtime.order import number_messages
from tablestream.state.changes import ROOT, STEP, hop_columns

if TYPE_CHECKING:
    from tablestream.state.positions import Ints

#: About so many messages of one shard are processed together.
SLICE_ROWS = 250_000
#: Fewer, if they would take more than about this in memory.
SLICE_BYTES = 256 << 20
#: The order columns that tell where a message may be parted from the one before.
RECORD = (*ROOT, *hop_columns(1))

Inbox = Mapping[int, Sequence[pl.DataFrame]]
"""Per port that a round reads, frames of messages with their order columns, in any order."""


def slice_numbers(records: Sequence[pl.DataFrame], rows: int) -> list[Ints]:
    """Number the slices, from 0, of about `rows` messages each, and return the slice of each message.

    A slice ends where the record ends that caused its last message. What bootstraps caused is not divided.

    `records`: frames of the columns `RECORD`. `rows`: a slice has more only if a single record, or all bootstraps,
    caused more.

    Examples
    --------
    >>> places = {"_t": [7, 8, 8, 9], "_p": ["1", "1", "1", "1"], "_o": [0, 1, 1, 2], "_h0": [0, 0, 0, 0]}
    >>> [numbers.tolist() for numbers in slice_numbers([pl.DataFrame(places)], 2)]
    [[0, 1, 1, 2]]
    """
    steps = [ints(numbers[STEP]) for numbers in number_messages(records, RECORD[len(ROOT) :])[1]]
    running = np.cumsum(np.bincount(np.concatenate(steps)))
    ends, taken = list[int](), 0
    while taken < running[-1]:
        full = int(np.searchsorted(running, taken + rows, "right")) - 1
        ends.append(max(full, int(np.searchsorted(running, taken, "right"))))
        taken = int(running[ends[-1]])
    return [np.searchsorted(ends, step).astype(np.uint16) for step in steps]
