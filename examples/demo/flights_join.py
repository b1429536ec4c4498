"""The flights' result: each flight with its plane, airline and both airports, maintained and by a batch join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.demo.change_logs import final_table
from examples.demo.flights import AIRLINES, AIRPORTS, FLIGHTS, PLANES, SPECS, flight_logs
from examples.demo.pipeline import table
from examples.demo.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl
    from pyspark.sql import Column, SparkSession

    import tablestream as ts

_PLANE = {
    "built": "year",
    "manufacturer": "manufacturer",
    "model": "model",
    "engine": "engine",
    "seats": "seats",
}
_AIRLINE = {"airline": "name"}
_ORIGIN = {"origin_name": "name", "origin_tzone": "tzone"}
_DESTINATION = {"dest_name": "name", "dest_lat": "lat", "dest_lon": "lon", "dest_alt": "alt"}


def joined_flights(spark: SparkSession, directory: Path) -> ts.Table:
    """Return every flight with its plane, airline, origin and destination, as far as they are known.

    Parameters
    ----------
    spark
        The session to read with.
    directory
        Where the four change logs lie, each in a directory of its table's name.
    """
    flights, planes, airlines, airports = (table(spark, spec, directory) for spec in SPECS)
    joined, columns = flights, list(FLIGHTS.values)
    for name, other, foreign_key, added in (
        ("with_plane", planes, "tailnum", _PLANE),
        ("with_airline", airlines, "carrier", _AIRLINE),
        ("with_origin", airports, "origin", _ORIGIN),
        ("with_destination", airports, "dest", _DESTINATION),
    ):
        select = _adding(columns, added)
        joined = joined.join(other, on=foreign_key, how="left", select=select, name=name)
        columns = [*columns, *added]
    return joined


def joined_by_polars(directory: Path) -> pl.DataFrame:
    """Return the batch join of the final tables below `directory`, sorted by flight."""
    flights, planes, airlines, airports = (
        final_table(spec, directory / spec.name) for spec in (FLIGHTS, PLANES, AIRLINES, AIRPORTS)
    )
    origins = airports.select(origin="faa", origin_name="name", origin_tzone="tzone")
    destinations = airports.select(
        dest="faa", dest_name="name", dest_lat="lat", dest_lon="lon", dest_alt="alt"
    )
    return (
        flights.join(planes.rename({"year": "built"}), on="tailnum", how="left")
        .join(airlines.rename({"name": "airline"}), on="carrier", how="left")
        .join(origins, on="origin", how="left")
        .join(destinations, on="dest", how="left")
        .sort(FLIGHTS.key)
    )


def _adding(columns: Sequence[str], added: Mapping[str, str]) -> Callable[[Any, Any], list[Column]]:
    """Return a `select` that keeps the left `columns` and adds right ones under new names."""
    return lambda left, right: [
        *(left[name] for name in columns),
        *(right[name].alias(new) for new, name in added.items()),
    ]


FLIGHTS_JOIN = Scenario(
    name="flights",
    rows="joined flights",
    key=(FLIGHTS.key,),
    shown=(
        "flight_id",
        "airline",
        "flight",
        "tailnum",
        "manufacturer",
        "model",
        "origin_name",
        "dest_name",
        "arr_delay",
    ),
    logs=lambda steps, scale: flight_logs(steps, scale=scale),
    outputs=lambda spark, directory: {"flights": joined_flights(spark, directory)},
    batch=joined_by_polars,
)
