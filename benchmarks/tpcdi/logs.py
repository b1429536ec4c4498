"""Trades, accounts, customers and securities as change logs, made by a fixed seed, in the manner of TPC-DI.

A trade is submitted, and later completed or cancelled. Accounts, customers and securities change over time
(dimensions of type 2). An account can pass to another customer, and can be closed. A third of the changes of accounts
and customers arrive late, after trades of their time; the logs of securities and trades are in order. The code and the
texts are our own, and the proportions are chosen so that every kind of change is frequent.

``changed_at`` is when a change happened: no trade is submitted when another row changes, and no row changes twice at
one time. The files are cut, and their rows ordered, by arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.columns import decimals, numbered, one_of
from benchmarks.workload import drawn, made_once, timestamps, write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.workload import Numbers

SPAN_US = 1_000_000_000
"""From the first trade to the last one, however many there are."""
LATE_US = SPAN_US // 20
"""How late a change of an account or a customer can arrive: as long as an account waits for its next trade."""
OPEN_US = SPAN_US // 20
"""How long a trade waits to be completed or cancelled, at most."""
_START_US = 10_000_000
"""The first versions come in the seconds before the first trade."""
LATE_SHARE, CLOSED_SHARE, CANCELLED_SHARE = 1 / 3, 0.05, 0.1
TRADES_EACH = {"customer": 40, "account": 20, "security": 100}
"""Trades for each of the others."""
CHANGES_EACH = {"customer": 3, "account": 4, "security": 3}
"""Versions for each row after its first one."""
_PLACE = {"customer": 1, "account": 2, "security": 3}
"""Their changes are at these microseconds of ten, so that no two logs share a time; trades come at whole tens."""

_CHANGE = ", deleted boolean, changed_at timestamp"
SCHEMAS = {
    "customer": "c_id bigint, c_name string, c_tier int, c_net_worth decimal(12,2)" + _CHANGE,
    "account": "ca_id bigint, ca_c_id bigint, ca_name string, ca_status string" + _CHANGE,
    "security": "s_symbol string, s_name string, s_company string, s_dividend decimal(10,2)" + _CHANGE,
    "trade": (
        "t_id bigint, t_status string, t_ca_id bigint, t_symbol string, t_quantity int,"
        " t_price decimal(8,2), t_fee decimal(10,2)"
    )
    + _CHANGE,
}
KEYS = {kind: tuple(schema.split()[0:1]) for kind, schema in SCHEMAS.items()}


@dataclass(frozen=True)
class Trades:
    """How many trades there are, and in how many micro-batches."""

    trades: int
    micro_batches: int

    def rows(self, kind: str) -> int:
        """Number of customers, accounts or securities."""
        return max(2, self.trades // TRADES_EACH[kind])

    @property
    def pace_us(self) -> int:
        """The time between two trades, a multiple of ten."""
        return SPAN_US // self.trades // 10 * 10


def prepare_trades(trades: Trades, directory: Path) -> Path:
    """Make the logs under ``directory`` unless they are there, and return the folder that holds them."""
    folder = directory / f"tpcdi-{trades.trades}-{trades.micro_batches}"
    return made_once(folder, partial(_write_logs, trades))


@dataclass(frozen=True)
class _Versions:
    """The rows of a log, their times, and when they arrive."""

    ids: Numbers
    times_us: Numbers
    arrive_us: Numbers
    deleted: np.ndarray[tuple[int], np.dtype[np.bool_]]


def _write_logs(trades: Trades, folder: Path) -> None:
    logs: dict[str, tuple[Callable[[_Versions], dict[str, pa.Array]], _Versions]] = {
        "customer": (_customers, _versions(trades, "customer", drawn(90))),
        "account": (partial(_accounts, trades), _versions(trades, "account", drawn(91))),
        "security": (_securities, _versions(trades, "security", drawn(92))),
        "trade": (partial(_trades, trades), _states(trades)),
    }
    cuts = np.arange(1, trades.micro_batches) * SPAN_US // trades.micro_batches
    for kind, (columns, versions) in logs.items():
        change = {
            "deleted": pa.array(versions.deleted),
            "changed_at": timestamps(_START_US + versions.times_us),
        }
        log = pa.table(columns(versions) | change).take(
            pa.array(np.argsort(versions.arrive_us, kind="stable"))
        )
        arrived = np.sort(versions.arrive_us)
        bounds = np.concatenate([[0], np.searchsorted(arrived, cuts), [len(arrived)]]).tolist()
        (folder / kind).mkdir(parents=True)
        for number in range(trades.micro_batches):
            write_file(folder / kind, number, log[bounds[number] : bounds[number + 1]])


def _versions(trades: Trades, kind: str, random: np.random.Generator) -> _Versions:
    """The first version of each row, in time or after the first trades, and later ones."""
    rows, place = trades.rows(kind), _PLACE[kind]
    count = rows * CHANGES_EACH[kind]
    ticks = random.choice(SPAN_US // 10, rows // 10 + count, replace=False) * 10
    late_rows, changes = ticks[: rows // 10], ticks[rows // 10 :]
    first = np.arange(rows) * 10 - _START_US
    first[rows - len(late_rows) :] = late_rows
    ids = np.concatenate([np.arange(rows), random.integers(0, rows, count)])
    times = np.concatenate([first, changes]) + place
    late = (random.random(len(ids)) < LATE_SHARE) & (kind != "security")
    arrive = times + late * random.integers(0, LATE_US, len(ids))
    closed = (random.random(len(ids)) < CLOSED_SHARE) & (kind == "account")
    return _Versions(ids, times, arrive, closed)


def _states(trades: Trades) -> _Versions:
    """Each trade twice: submitted, and in its last state."""
    submitted = np.arange(trades.trades) * trades.pace_us
    waits = drawn(93).integers(1, max(2, OPEN_US // trades.pace_us), trades.trades)
    ended = submitted + waits * trades.pace_us + 5
    times = np.concatenate([submitted, ended])
    return _Versions(np.tile(np.arange(trades.trades), 2), times, times, np.zeros(len(times), bool))


def _customers(versions: _Versions) -> dict[str, pa.Array]:
    random, count = drawn(94), len(versions.ids)
    return {
        "c_id": pa.array(versions.ids),
        "c_name": numbered("Customer#", versions.ids),
        "c_tier": pa.array(random.integers(1, 4, count).astype(np.int32)),
        "c_net_worth": decimals(random.integers(-10_000_000, 100_000_000, count), 12, 2),
    }


def _accounts(trades: Trades, versions: _Versions) -> dict[str, pa.Array]:
    random, count = drawn(95), len(versions.ids)
    return {
        "ca_id": pa.array(versions.ids),
        "ca_c_id": _unless_closed(versions, random.integers(0, trades.rows("customer"), count)),
        "ca_name": _unless_closed(versions, numbered("Account#", random.integers(0, 1_000_000, count))),
        "ca_status": _unless_closed(versions, one_of(random, ("ACTV", "INAC"), count)),
    }


def _unless_closed(versions: _Versions, values: Numbers | pa.Array) -> pa.Array:
    """A row that is deleted has no values."""
    return (
        pa.array(values, mask=versions.deleted)
        if isinstance(values, np.ndarray)
        else _masked(values, versions)
    )


def _masked(values: pa.Array, versions: _Versions) -> pa.Array:
    rows = np.arange(len(values))
    return values.take(pa.array(rows, mask=versions.deleted))


def _securities(versions: _Versions) -> dict[str, pa.Array]:
    random, count = drawn(96), len(versions.ids)
    return {
        "s_symbol": numbered("S", versions.ids),
        "s_name": numbered("Security#", random.integers(0, 1_000_000, count)),
        "s_company": numbered("Company#", random.integers(0, 1_000, count)),
        "s_dividend": decimals(random.integers(0, 10_000, count), 10, 2),
    }


def _trades(trades: Trades, versions: _Versions) -> dict[str, pa.Array]:
    """What is traded stays; the price and the fee are those of the state."""
    random, count = drawn(97), trades.trades
    cancelled = random.random(count) < CANCELLED_SHARE
    states = np.concatenate([np.full(count, "SBMT"), np.where(cancelled, "CNCL", "CMPT")])
    return {
        "t_id": pa.array(versions.ids),
        "t_status": pa.array(states),
        "t_ca_id": pa.array(np.tile(random.integers(0, trades.rows("account"), count), 2)),
        "t_symbol": numbered("S", np.tile(random.integers(0, trades.rows("security"), count), 2)),
        "t_quantity": pa.array(np.tile(random.integers(1, 1_000, count), 2).astype(np.int32)),
        "t_price": decimals(random.integers(100, 100_000, 2 * count), 8, 2),
        "t_fee": decimals(random.integers(0, 10_000, 2 * count), 10, 2),
    }
