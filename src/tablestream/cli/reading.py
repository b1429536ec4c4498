"""Reads the rows of a Spark frame: for people as a Polars frame, for programs as JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import polars as pl
from pyspark.sql import functions as F

from tablestream.base.data_text import visible_json
from tablestream.base.time_zones import in_utc
from tablestream.connectors.json_text import json_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


def polars_rows(rows: DataFrame) -> pl.DataFrame:
    """Return all rows at once."""
    return cast("pl.DataFrame", pl.from_arrow(in_utc(rows.toArrow(), keep_known=True)))


def json_lines(rows: DataFrame) -> Iterator[str]:
    """Yield each row as a JSON object, in the order of the rows; the driver never holds all of them."""
    for (line,) in rows.select(F.to_json(F.struct("*"), json_options())).toLocalIterator():
        yield visible_json(str(line))
