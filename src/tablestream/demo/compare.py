"""The proof of the demo: the maintained table against a batch join of the final tables.

Two ways to the same rows that share no code but the reading of Parquet: the table that the query maintained,
taken from its change log, and Polars joins over what each input log comes to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tablestream.demo.change_logs import MOMENT, final_table
from tablestream.demo.flights import AIRLINES, AIRPORTS, FLIGHTS, PLANES

if TYPE_CHECKING:
    from pathlib import Path

_ORDER = "_order"
_CHANGE = "_change_type"
_SHOWN = 5


@dataclass(frozen=True)
class Comparison:
    """What the comparison of two tables found.

    Parameters
    ----------
    equal
        Rows that are the same in both.
    differing
        Keys with another row in each.
    only_found, only_expected
        Keys that only one of them has.
    examples
        A line for each of the first rows that are not the same: what was found, and what was expected.
    """

    equal: int
    differing: int
    only_found: int
    only_expected: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the two tables are the same."""
        return not (self.differing or self.only_found or self.only_expected)


def table_of_changes(directory: Path, key: str) -> pl.DataFrame:
    """Return the table that a change log in Parquet files comes to.

    That is per key its last change, unless it is a delete. The library's own columns are left out, and the
    rows sorted by `key`.
    """
    log = pl.read_parquet(directory / "**" / "*.parquet", hive_partitioning=False)
    order = log.select(pl.col(_ORDER).struct.unnest()).columns
    ordered = log.with_columns(pl.col(_ORDER).struct.field(name).alias(f"{_ORDER}.{name}") for name in order)
    last = ordered.sort(f"{_ORDER}.{name}" for name in order).unique(subset=key, keep="last")
    living = last.filter(pl.col(_CHANGE) != "delete")
    values = living.select(name for name in log.columns if not name.startswith("_")).sort(key)
    return values.with_columns(
        _as_moment(name) for name, dtype in values.schema.items() if isinstance(dtype, pl.Datetime)
    )


def _as_moment(name: str) -> pl.Expr:
    """Read a timestamp as what it is: Spark's Parquet has it without a zone, and in nanoseconds."""
    return pl.col(name).dt.replace_time_zone("UTC").cast(MOMENT)


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


def compare(found: pl.DataFrame, expected: pl.DataFrame, key: str) -> Comparison:
    """Compare two tables row by row; nulls equal nulls, and the order of columns and rows does not count.

    Examples
    --------
    >>> found = pl.DataFrame({"k": [1, 2, 3], "v": ["a", None, "c"]})
    >>> expected = pl.DataFrame({"k": [1, 2, 4], "v": ["a", None, "d"]})
    >>> result = compare(found, expected, "k")
    >>> result.ok, result.equal, result.differing, result.only_found, result.only_expected
    (False, 2, 0, 1, 1)
    >>> result.examples
    ('k 3: only in the maintained table', 'k 4: only in the batch join')
    """
    values = [name for name in expected.columns if name != key]
    if sorted(found.columns) != sorted(expected.columns):
        raise ValueError(f"the tables have different columns: {found.columns} and {expected.columns}")
    ours = found.select(key, pl.struct(values).alias("found"))
    theirs = expected.select(key, pl.struct(values).alias("expected"))
    both = ours.join(theirs, on=key, how="full", coalesce=True, nulls_equal=True)
    here = pl.col("found").is_not_null()
    there = pl.col("expected").is_not_null()
    same = here & there & pl.all_horizontal(_field_equal(name) for name in values)
    unequal = both.filter(~same)
    return Comparison(
        equal=both.filter(same).height,
        differing=both.filter(here & there & ~same).height,
        only_found=both.filter(here & ~there).height,
        only_expected=both.filter(there & ~here).height,
        examples=_examples(unequal, key),
    )


def _field_equal(name: str) -> pl.Expr:
    return pl.col("found").struct.field(name).eq_missing(pl.col("expected").struct.field(name))


def _examples(unequal: pl.DataFrame, key: str) -> tuple[str, ...]:
    return tuple(_example(key, row) for row in unequal.sort(key).head(_SHOWN).iter_rows(named=True))


def _example(key: str, row: dict[str, Any]) -> str:
    found, expected = row["found"], row["expected"]
    if expected is None:
        return f"{key} {row[key]}: only in the maintained table"
    if found is None:
        return f"{key} {row[key]}: only in the batch join"
    differing = [name for name in expected if found[name] != expected[name]]
    parts = (f"{name} is {found[name]!r}, expected {expected[name]!r}" for name in differing)
    return f"{key} {row[key]}: {'; '.join(parts)}"
