"""The demo's plan: flights joined to their plane, airline and both airports, each by a foreign key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tablestream as ts
from tablestream.demo.flights import AIRLINES, AIRPORTS, FLIGHT_PARTS, FLIGHTS, PLANES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tablestream.demo.change_logs import LogSpec

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

SHARDS = 8
"""Enough for the cores of one computer; every shard costs its share of a micro-batch's time."""

# An airport's name may hold quotes, and CSV writers double them; Spark expects a backslash unless told.
_READ_OPTIONS: Mapping[str, Mapping[str, str]] = {"csv": {"header": "true", "escape": '"'}}


def joined_flights(spark: SparkSession, directory: Path) -> ts.Table:
    """Return every flight with its plane, airline, origin and destination, as far as they are known.

    Parameters
    ----------
    spark
        The session to read with.
    directory
        Where the four change logs lie, each in a directory of its table's name.
    """
    flights, planes = _table(spark, FLIGHTS, directory), _table(spark, PLANES, directory)
    airlines, airports = _table(spark, AIRLINES, directory), _table(spark, AIRPORTS, directory)
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


def start(joined: ts.Table, changes: Path, checkpoint: Path) -> StreamingQuery:
    """Start the query that reads all there is, writes every change as Parquet files, and ends."""
    return ts.start(
        joined.to(ts.files(str(changes), format="parquet")),
        checkpoint=str(checkpoint),
        trigger={"availableNow": True},
        name="flights",
        shards=SHARDS,
    )


def _table(spark: SparkSession, spec: LogSpec, directory: Path) -> ts.Table:
    rows = ts.read_files(
        spark,
        str(directory / spec.name),
        spec.format,
        spec.ddl,
        options=_READ_OPTIONS.get(spec.format, {}),
        max_files_per_trigger=FLIGHT_PARTS if spec is FLIGHTS else 1,
    )
    return ts.table(
        rows,
        spec.key,
        timestamp="changed_at",
        apply_as_deletes="op = 'd'",
        except_columns=["op", "changed_at"],
        name=spec.name,
    )


def _adding(columns: Sequence[str], added: Mapping[str, str]) -> Callable[[Any, Any], list[Column]]:
    """Return a `select` that keeps the left `columns` and adds right ones under new names."""
    return lambda left, right: [
        *(left[name] for name in columns),
        *(right[name].alias(new) for new, name in added.items()),
    ]
