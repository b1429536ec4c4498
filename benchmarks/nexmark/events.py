"""Nexmark's events, made by a fixed seed: persons, auctions and bids, each a log with one Parquet file a micro-batch.

The figures are the published defaults of https://github.com/nexmark/nexmark (``NexmarkConfiguration`` and the
generators), which follow Apache Beam's Nexmark. The code is our own, and so are the texts. What differs: a bid has a
``bid_id``, and no ``channel`` and ``url``, which none of the queries here needs.

Of fifty events in a row the first is a person, three are auctions and the others are bids. Ten events share a
millisecond, so bids can tie. A bid may name an auction, and an auction a seller, that comes later, or never.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.columns import texts
from benchmarks.workload import drawn, made_once, timestamps, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Numbers

PERSONS, AUCTIONS, BIDS = 1, 3, 46
BLOCK = PERSONS + AUCTIONS + BIDS
EVENTS_A_SECOND = 10_000
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""Mean sizes of a record; its ``extra`` fills what its other columns leave."""
HOT_OTHERS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4
"""One in so many bids is for an auction that is not hot; of sellers and bidders likewise."""
HOT_EACH = 100
"""One in so many auctions, and persons, is hot."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1000, 10
"""Bids are for the last auctions, by the last persons, and for so many that are yet to come."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

SCHEMAS = {
    "persons": (
        "id bigint, name string, email string, credit_card string, city string, state string,"
        " date_time timestamp, extra string"
    ),
    "auctions": (
        "id bigint, item_name string, description string, initial_bid bigint, reserve bigint,"
        " date_time timestamp, expires timestamp, seller bigint, category bigint, extra string"
    ),
    "bids": ("bid_id bigint, auction bigint, bidder bigint, price bigint, date_time timestamp, extra string"),
}
LONGEST_MS = 2 * IN_FLIGHT * BLOCK * 1000 // (AUCTIONS * EVENTS_A_SECOND)
"""The longest auction: twice the time in which as many auctions begin as are in flight."""


@dataclass(frozen=True)
class Events:
    """How many events there are, in whole blocks, and in how many micro-batches: at least a block for each."""

    events: int
    micro_batches: int

    @property
    def blocks(self) -> int:
        """Number of blocks of one person, three auctions and 46 bids."""
        return self.events // BLOCK


def prepare_events(events: Events, directory: Path) -> Path:
    """Make the logs under ``directory`` unless they are there, and return the folder that holds them."""
    folder = directory / f"nexmark-{events.blocks}-{events.micro_batches}"
    return made_once(folder, partial(_write_logs, events))


def _write_logs(events: Events, folder: Path) -> None:
    """Write the logs, all cut between the same blocks: no millisecond is in two files of one log."""
    logs = {
        "persons": (_persons(events.blocks), PERSONS),
        "auctions": (_auctions(events.blocks), AUCTIONS),
        "bids": (_bids(events.blocks), BIDS),
    }
    cuts = [number * events.blocks // events.micro_batches for number in range(events.micro_batches + 1)]
    for kind, (rows, each) in logs.items():
        (folder / kind).mkdir(parents=True)
        for number, (start, end) in enumerate(pairwise(cuts)):
            write_file(folder / kind, number, rows[start * each : end * each])


def _persons(blocks: int) -> pa.Table:
    ids = np.arange(blocks)
    states = drawn(18).integers(0, len(STATES), blocks)
    columns = {
        "id": FIRST_ID + ids,
        "name": _texts(10, _between(11, 8, 16, blocks)),
        "email": _texts(12, _between(13, 14, 18, blocks)),
        "credit_card": _texts(14, np.full(blocks, 19)),
        "city": _texts(16, _between(17, 4, 13, blocks)),
        "state": pa.array(STATES).take(pa.array(states)),
        "date_time": timestamps(_time_us(ids * BLOCK)),
    }
    return _with_extra(columns, PERSON_BYTES, 1, 19)


def _auctions(blocks: int) -> pa.Table:
    ids = np.arange(blocks * AUCTIONS)
    block, count = ids // AUCTIONS, len(ids)
    times_us = _time_us(block * BLOCK + PERSONS + ids % AUCTIONS)
    initial_bid = _prices(30, count)
    columns = {
        "id": FIRST_ID + ids,
        "item_name": _texts(31, _between(32, 3, 19, count)),
        "description": _texts(33, _between(34, 3, 99, count)),
        "initial_bid": initial_bid,
        "reserve": initial_bid + _prices(35, count),
        "date_time": timestamps(times_us),
        "expires": timestamps(times_us + 1000 * _between(36, 1, LONGEST_MS, count)),
        "seller": _persons_at(37, block, HOT_SELLERS, 0),
        "category": FIRST_CATEGORY + drawn(39).integers(0, CATEGORIES, count),
    }
    return _with_extra(columns, AUCTION_BYTES, 6, 40)


def _bids(blocks: int) -> pa.Table:
    ids = np.arange(blocks * BIDS)
    block = ids // BIDS
    columns = {
        "bid_id": ids,
        "auction": _auctions_at(50, block),
        "bidder": _persons_at(52, block, HOT_BIDDERS, 1),
        "price": _prices(54, len(ids)),
        "date_time": timestamps(_time_us(block * BLOCK + PERSONS + AUCTIONS + ids % BIDS)),
    }
    return _with_extra(columns, BID_BYTES, 4, 55)


def _time_us(number: Numbers) -> Numbers:
    """When an event comes, in whole milliseconds."""
    return number * 1000 // EVENTS_A_SECOND * 1000


def _persons_at(column: int, block: Numbers, others: int, place: int) -> Numbers:
    """Sellers or bidders: mostly the hot person at a place in its hundred, else one of the active persons."""
    active = np.minimum(block + 1, ACTIVE)
    anyone = block + 1 - active + _below(column, active + LEAD)
    return FIRST_ID + _mostly(column + 1, others, block // HOT_EACH * HOT_EACH + place, anyone)


def _auctions_at(column: int, block: Numbers) -> Numbers:
    """What bids are for: the hot auction, or as often one of those in flight."""
    last = block * AUCTIONS + AUCTIONS - 1
    first = np.maximum(last - IN_FLIGHT, 0)
    anyone = first + _below(column, last - first + 1 + LEAD)
    return FIRST_ID + _mostly(column + 1, HOT_OTHERS, last // HOT_EACH * HOT_EACH, anyone)


def _mostly(column: int, others: int, hot: Numbers, other: Numbers) -> Numbers:
    """One in `others` is the other, the rest are hot."""
    return np.where(drawn(column).integers(0, others, len(hot)) > 0, hot, other)


def _below(column: int, limit: Numbers) -> Numbers:
    return (drawn(column).random(len(limit)) * limit).astype(np.int64)


def _between(column: int, least: int, most: int, count: int) -> Numbers:
    return drawn(column).integers(least, most + 1, count)


def _prices(column: int, count: int) -> Numbers:
    """In cents, from 1 to a million, their logarithms spread evenly."""
    return np.round(10.0 ** (drawn(column).random(count) * 6) * 100).astype(np.int64)


def _with_extra(columns: dict[str, Any], mean_bytes: int, numbers: int, column: int) -> pa.Table:
    """Add the `extra` of so many numbers and all texts: what fills the mean size, give or take a fifth."""
    texts = [one for one in columns.values() if isinstance(one, pa.StringArray)]
    rest = mean_bytes - 8 * numbers - sum(pc.binary_length(one).to_numpy() for one in texts)
    count = len(columns["date_time"])
    filled = rest * (0.8 + 0.4 * drawn(column).random(count))
    return pa.table(columns | {"extra": _texts(column + 1, np.maximum(filled, 0).astype(np.int64))})


def _texts(column: int, lengths: Numbers) -> pa.StringArray:
    return texts(drawn(column), lengths)
