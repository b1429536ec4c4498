"""The departures' join as of their times, in SQL and by loops, and what may wait at the end."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from examples.demo.change_logs import MOMENT, ChangeLog, write_log
from examples.demo.weather import DEPARTURES, GRACE, WEATHER, WeatherLogs, weather_logs
from examples.demo.weather_join import joined_by_duckdb, within_grace_of_the_end

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2013, 1, 1, tzinfo=UTC)


STEPS = 3


def written(logs: WeatherLogs, directory: Path) -> Path:
    for log in logs.all:
        write_log(log, directory / log.spec.name, STEPS)
    return directory


def by_loops(logs: WeatherLogs) -> list[dict[str, Any]]:
    """Join every departure with the last reading at or before it, as the log at its end has it."""
    versions: dict[str, dict[datetime, dict[str, Any]]] = {}
    for row in logs.weather.rows.iter_rows(named=True):
        versions.setdefault(row["origin"], {})[row["changed_at"]] = {
            name: row[name] for name in WEATHER.values
        }
    times = {origin: sorted(read) for origin, read in versions.items()}
    nothing = dict.fromkeys(WEATHER.values)
    joined = []
    for row in logs.departures.rows.sort("flight_id").iter_rows(named=True):
        origin = row["origin"]
        at = bisect_right(times[origin], row["scheduled_at"])
        weather = versions[origin][times[origin][at - 1]] if at else nothing
        joined.append({name: row[name] for name in (DEPARTURES.key, *DEPARTURES.values)} | weather)
    return joined


def test_duckdb_finds_what_loops_find(tmp_path: Path) -> None:
    logs = weather_logs(STEPS, scale=0.05)
    found = joined_by_duckdb(written(logs, tmp_path))
    assert found.to_dicts() == by_loops(logs)
    assert found.height > 16_000
    # Readings that were withdrawn, and hours without one, of which the reading before is valid.
    assert 0 < found["read_at"].null_count() < 0.05 * found.height
    older = found.filter(pl.col("scheduled_at") - pl.col("read_at") >= timedelta(hours=1))
    assert 0 < older.height < 0.05 * found.height


def log_of(log: ChangeLog, moment: str, *rows: tuple[str, int]) -> ChangeLog:
    """Take rows of a log, and give them another airport and another time, in seconds since the start."""
    moments = pl.Series([START + timedelta(seconds=at) for _, at in rows], dtype=MOMENT)
    origins = pl.Series([origin for origin, _ in rows])
    return replace(log, rows=log.rows.head(len(rows)).with_columns(moments.alias(moment), origin=origins))


def test_those_may_wait_that_nothing_follows_by_the_grace_at_their_airport(tmp_path: Path) -> None:
    made, grace_s = weather_logs(STEPS, scale=0.001), int(GRACE.total_seconds())
    flights = [("EWR", 20_000 - grace_s), ("EWR", 20_001 - grace_s), ("JFK", 20_001 - grace_s), ("LGA", 5)]
    departures = log_of(made.departures, "scheduled_at", *flights)
    weather = log_of(made.weather, "changed_at", ("EWR", 20_000), ("JFK", 30_000))
    waiting = within_grace_of_the_end(
        written(replace(made, departures=departures, weather=weather), tmp_path)
    )
    wanted = departures.rows["flight_id"].gather([1, 3])
    assert waiting["flight_id"].sort().equals(wanted.sort())
