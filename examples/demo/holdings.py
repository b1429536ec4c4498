"""Positions, tickers and clients of a made-up year, told as change logs full of what makes joins race.

Positions are closed right behind being opened, move between tickers and back within seconds, and come again;
tickers change their exchange just between two moves of a position; clients get other e-mail addresses, go, and
come back. All chance comes from one seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from examples.demo.change_logs import MOMENT, ChangeLog, LogSpec
from examples.demo.hazards import hazards
from examples.demo.history import History, arriving, as_log, cut_at, cut_evenly, moved, seconds

POSITIONS = LogSpec(
    "positions",
    "position_id",
    "parquet",
    {"client": pl.String(), "ticker": pl.String(), "amount": pl.Int32()},
    pl.Int64(),
    parts=2,
)
TICKERS = LogSpec(
    "tickers", "ticker", "csv", {"exchange": pl.String(), "name": pl.String(), "founded": pl.Int32()}
)
CLIENTS = LogSpec(
    "clients", "client", "json", {"name": pl.String(), "surname": pl.String(), "email": pl.String()}
)

SPECS = (POSITIONS, TICKERS, CLIENTS)

_EXCHANGES = pl.Series(["XNYS", "XNAS", "XLON", "XETR", "XPAR", "XTKS", "XHKG", "XASX", "XTSE", "XSWX"])
_NAMES = pl.Series(["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "June"])
_SURNAMES = pl.Series(["Archer", "Baker", "Cook", "Dyer", "Ellis", "Fisher", "Gray", "Hunt", "Irving"])

_POSITIONS, _TICKERS, _CLIENTS, _FEWEST = 25_000, 250, 5_000, 20
_SECOND, _DAY, _YEAR_S = timedelta(seconds=1), timedelta(days=1), 365 * 86_400
_NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class HoldingLogs:
    """The three change logs of the demo."""

    positions: ChangeLog
    tickers: ChangeLog
    clients: ChangeLog

    @property
    def all(self) -> tuple[ChangeLog, ...]:
        """The logs in the order in which the plan names them."""
        return (self.positions, self.tickers, self.clients)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each hazard is in the logs."""
        return hazards(self.positions, self.tickers, self.clients)


def holding_logs(steps: int, *, scale: float = 1.0, seed: int = 2024) -> HoldingLogs:
    """Make up the change logs.

    Parameters
    ----------
    steps
        How many files each log is cut into (positions: times their parts), with about as many changes of positions
        in each; the same step of two logs covers the same stretch of time.
    scale
        The size: 1.0 is 25,000 positions of 5,000 clients in 250 tickers.
    seed
        What all chance is drawn from. Equal arguments give equal logs.
    """
    tickers = pl.Series([f"T{number:04}" for number in range(_scaled(_TICKERS, scale))])
    clients = pl.Series([f"C{number:05}" for number in range(_scaled(_CLIENTS, scale))])
    first = _first_positions(tickers, clients, _scaled(_POSITIONS, scale), np.random.default_rng([seed, 0]))
    positions, visits = _positions(first, np.random.default_rng([seed, 1]))
    rows, starts = cut_evenly(POSITIONS, positions, steps)
    return HoldingLogs(
        as_log(POSITIONS, rows.with_columns(changed_at="arrived_at")),
        cut_at(TICKERS, _tickers(_known(tickers), visits, np.random.default_rng([seed, 2])), starts),
        cut_at(CLIENTS, _clients(_known(clients), np.random.default_rng([seed, 3])), starts),
    )


def _first_positions(
    tickers: pl.Series, clients: pl.Series, count: int, rng: np.random.Generator
) -> pl.DataFrame:
    """Return each position once, arriving some time in the year; some tickers are held far more than others."""
    held = (tickers.len() * rng.random(count) ** 2).astype(np.int64)
    arrived_s = np.sort(rng.integers(0, _YEAR_S, count))
    return pl.DataFrame(
        {
            "position_id": pl.Series(np.arange(1, count + 1), dtype=pl.Int64),
            "client": clients.gather(rng.integers(0, clients.len(), count)),
            "ticker": tickers.gather(held),
            "amount": pl.Series(rng.integers(1, 1_000, count), dtype=pl.Int32),
        }
    ).with_columns(arrived_at=pl.lit(_NEW_YEAR, MOMENT) + seconds(arrived_s))


def _positions(first: pl.DataFrame, rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what becomes of the positions, and the short visits that some of them pay to another ticker.

    A visit lasts two seconds; returned is the second in its middle, as ``ticker`` and ``arrived_at``.
    """

    def to_ticker(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        return moved(rows, "ticker", first["ticker"], rng)

    history, soon = History(first, POSITIONS, rng), 2 * _SECOND
    history.delete(0.05, at_least=_SECOND, within=soon, returning=0.3)
    history.edit(0.1, _other_amount, within=30 * _DAY)
    history.edit(0.1, to_ticker, within=30 * _DAY)
    home = history.latest
    away = history.edit(0.1, to_ticker, within=30 * _DAY)
    history.edit(1.0, history.as_in(home), at_least=soon, within=3 * _SECOND, among=away["position_id"])
    history.edit(0.03, lambda rows, rng: moved(rows, "client", first["client"], rng), within=10 * _DAY)
    last = history.edit(0.03, to_ticker, within=20 * _DAY)
    history.delete(1.0, at_least=_SECOND, within=soon, returning=0.0, among=last["position_id"])
    history.delete(0.08, at_least=40 * _DAY, within=120 * _DAY, returning=0.6)
    history.edit(0.05, to_ticker, within=5 * _DAY)
    return history.rows(), away.select("ticker", pl.col("arrived_at") + _SECOND)


def _tickers(tickers: pl.Series, visits: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return the tickers: some come late, change exchange, go; most change it twice amid a position's visit."""
    count = tickers.len()
    first = pl.DataFrame(
        {
            "ticker": tickers,
            "exchange": _EXCHANGES.gather(rng.integers(0, _EXCHANGES.len(), count)),
            "name": pl.select(pl.format('"{}" Holdings, Inc.', tickers)).to_series(),
            "founded": pl.Series(rng.integers(1850, 2020, count), dtype=pl.Int32),
        }
    )
    history = History(_some_late(first, 0.1, rng), TICKERS, rng)
    history.edit(0.2, _listed_elsewhere, within=300 * _DAY)
    for _ in range(2):
        visit = visits[rng.permutation(visits.height)].unique("ticker", keep="first", maintain_order=True)
        visited = history.latest.drop("arrived_at").join(visit, on="ticker", maintain_order="left")
        history.tell(_listed_elsewhere(visited, rng))
    history.delete(0.05, within=200 * _DAY, returning=0.5)
    return history.rows()


def _clients(clients: pl.Series, rng: np.random.Generator) -> pl.DataFrame:
    """Return the clients: some come late, many get another e-mail address, some go, half of those come back."""
    count = clients.len()
    first = pl.DataFrame(
        {
            "client": clients,
            "name": _NAMES.gather(rng.integers(0, _NAMES.len(), count)),
            "surname": _SURNAMES.gather(rng.integers(0, _SURNAMES.len(), count)),
        }
    )
    address = pl.format("{}.{}@example.org", "name", "client").str.to_lowercase()
    history = History(_some_late(first.with_columns(email=address), 0.05, rng), CLIENTS, rng)
    history.edit(0.3, _other_address, within=300 * _DAY)
    history.edit(0.1, _other_address, within=60 * _DAY)
    history.delete(0.03, within=200 * _DAY, returning=0.5)
    return history.rows()


def _other_amount(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    return rows.with_columns(amount=pl.Series(rng.integers(1, 1_000, rows.height), dtype=pl.Int32))


def _listed_elsewhere(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    return moved(rows, "exchange", _EXCHANGES, rng)


def _other_address(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    number = pl.Series(rng.integers(10, 10_000, rows.height))
    return rows.with_columns(
        email=pl.format("{}.{}@example.net", pl.col("surname").str.to_lowercase(), number)
    )


def _some_late(rows: pl.DataFrame, share: float, rng: np.random.Generator) -> pl.DataFrame:
    """Return `rows` that arrive before the year begins, all but a `share` that arrives during it."""
    late = rng.random(rows.height) < share
    return arriving(rows, rng.integers(1, 330, rows.height) * late, _NEW_YEAR)


def _known(keys: pl.Series) -> pl.Series:
    """Return all but the last in a hundred: some positions point at what nobody ever lists."""
    return keys.head(keys.len() - max(1, keys.len() // 100))


def _scaled(count: int, scale: float) -> int:
    return max(_FEWEST, round(count * scale))
