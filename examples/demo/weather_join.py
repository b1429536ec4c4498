"""The departures' result: each with the weather that was read last before its time, maintained and by DuckDB.

The table's key is the airport, and its versions are the readings, each valid from its hour until that of the next. So a
departure finds the last reading at or before its scheduled time; one that was withdrawn counts as a reading that nobody
knows. With (airport, hour) as the key there would be one version per key, and a departure in an hour without a reading
would find nothing.

Departures wait for readings that are late. Later readings let them go as later departures do (``table_advances``), so
that they are joined at night, too, while their readings are within the history.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from examples.demo.change_logs import final_table, final_versions
from examples.demo.pipeline import stream, table
from examples.demo.scenario import Scenario
from examples.demo.weather import DEPARTURES, GRACE, WEATHER, weather_logs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import tablestream as ts

HISTORY = timedelta(days=2)
"""A flight of 2013 left 22 hours late: it still finds the reading of its time."""

_NAME = "departures_with_weather"

_AS_OF = """
    SELECT departures.*, weather.* EXCLUDE (origin, changed_at)
    FROM departures ASOF LEFT JOIN weather
    ON departures.origin = weather.origin AND departures.scheduled_at >= weather.changed_at
    ORDER BY flight_id
"""


def departures_with_weather(spark: SparkSession, directory: Path) -> ts.Stream:
    """Return every departure with the weather at its airport at its scheduled time.

    Parameters
    ----------
    spark
        The session to read with.
    directory
        Where the two logs lie, each in a directory of its name.
    """
    weather = table(spark, WEATHER, directory, history=HISTORY)
    departures = stream(spark, DEPARTURES, directory)
    return departures.join(weather, on=WEATHER.key, how="left", grace=GRACE, table_advances=True, name=_NAME)


def joined_by_duckdb(directory: Path) -> pl.DataFrame:
    """Return the same by an ``ASOF JOIN`` with the final versions of all readings, sorted by flight."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("departures", final_table(DEPARTURES, directory / DEPARTURES.name))
        database.register("weather", final_versions(WEATHER, directory / WEATHER.name))
        joined: pl.DataFrame = database.sql(_AS_OF).pl()
    return joined


def within_grace_of_the_end(directory: Path) -> pl.DataFrame:
    """Return the flights that may wait when the logs end: nothing is later by the grace at their airport."""
    departures = final_table(DEPARTURES, directory / DEPARTURES.name)
    weather = final_versions(WEATHER, directory / WEATHER.name)
    times = pl.concat(
        [departures.select("origin", at="scheduled_at"), weather.select("origin", at="changed_at")]
    )
    last = times.group_by("origin").agg(pl.col("at").max())
    return (
        departures.join(last, on="origin")
        .filter(pl.col("scheduled_at") > pl.col("at") - GRACE)
        .select(DEPARTURES.key)
    )


WEATHER_JOIN = Scenario(
    name="weather",
    rows="departures with their weather",
    key=(DEPARTURES.key,),
    shown=(
        "flight_id",
        "carrier",
        "flight",
        "origin",
        "scheduled_at",
        "read_at",
        "temp",
        "wind_speed",
        "visib",
    ),
    logs=lambda steps, scale: weather_logs(steps, scale=scale),
    outputs=lambda spark, directory: {"weather": departures_with_weather(spark, directory)},
    batch=joined_by_duckdb,
    held=within_grace_of_the_end,
    counted={
        f"{_NAME}: late": "departures came too late to wait for late readings, and were joined at once",
        f"{WEATHER.name}/versions: expired": "readings came later than the history, and were left out",
    },
)
