"""The proof of a demo: the maintained table against a batch computation from the final tables.

Two ways to the same rows that share no code but the reading of Parquet: the table that the query maintained,
taken from its change log, and Polars over what each input log comes to. Where a query has several outputs that
are to be the same, their change logs are compared, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from examples.demo.change_logs import MOMENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_ORDER = "_order"
_CHANGE = "_change_type"
_NUMBER = "change"
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


def table_of_changes(directory: Path, *key: str) -> pl.DataFrame:
    """Return the table that a change log in Parquet files comes to.

    That is per key its last change, unless it is a delete. The library's own columns are left out, and the
    rows sorted by `key`.
    """
    log = _in_order(directory)
    living = log.unique(subset=key, keep="last").filter(pl.col(_CHANGE) != "delete")
    values = living.select(name for name in log.columns if not name.startswith("_")).sort(key)
    return values.with_columns(
        _as_moment(name) for name, dtype in values.schema.items() if isinstance(dtype, pl.Datetime)
    )


def _in_order(directory: Path) -> pl.DataFrame:
    """Read a change log and sort it by the place of each change, which is left out."""
    log = pl.read_parquet(directory / "**" / "*.parquet", hive_partitioning=False)
    return log.sort(pl.col(_ORDER).struct.unnest()).drop(_ORDER)


def _as_moment(name: str) -> pl.Expr:
    """Read a timestamp as what it is: Spark's Parquet has it without a zone, and in nanoseconds."""
    return pl.col(name).dt.replace_time_zone("UTC").cast(MOMENT)


def compare(
    found: pl.DataFrame,
    expected: pl.DataFrame,
    *key: str,
    names: tuple[str, str] = ("the maintained table", "the batch computation"),
) -> Comparison:
    """Compare two tables row by row; nulls equal nulls, and the order of columns and rows does not count.

    The examples call the two tables by `names`.

    Examples
    --------
    >>> found = pl.DataFrame({"k": [1, 2, 3], "v": ["a", None, "c"]})
    >>> expected = pl.DataFrame({"k": [1, 2, 4], "v": ["a", None, "d"]})
    >>> result = compare(found, expected, "k")
    >>> result.ok, result.equal, result.differing, result.only_found, result.only_expected
    (False, 2, 0, 1, 1)
    >>> result.examples
    ('k 3: only in the maintained table', 'k 4: only in the batch computation')
    """
    values = [name for name in expected.columns if name not in key]
    if sorted(found.columns) != sorted(expected.columns):
        raise ValueError(f"the tables have different columns: {found.columns} and {expected.columns}")
    ours = found.select(*key, pl.struct(values).alias("found"))
    theirs = expected.select(*key, pl.struct(values).alias("expected"))
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
        examples=tuple(
            _example(key, row, names) for row in unequal.sort(key).head(_SHOWN).iter_rows(named=True)
        ),
    )


def _field_equal(name: str) -> pl.Expr:
    return pl.col("found").struct.field(name).eq_missing(pl.col("expected").struct.field(name))


def compare_changes(found: Path, expected: Path, *key: str, names: tuple[str, str]) -> Comparison:
    """Compare two change logs: per key the same changes, in the same order, at the same times."""
    number = pl.int_range(pl.len()).over(key).alias(_NUMBER)
    ours, theirs = (_in_order(directory).with_columns(number) for directory in (found, expected))
    return compare(ours, theirs, *key, _NUMBER, names=names)


def _example(key: Sequence[str], row: dict[str, Any], names: tuple[str, str]) -> str:
    found, expected = row["found"], row["expected"]
    shown = ", ".join(f"{name} {row[name]}" for name in key)
    if expected is None:
        return f"{shown}: only in {names[0]}"
    if found is None:
        return f"{shown}: only in {names[1]}"
    differing = [name for name in expected if found[name] != expected[name]]
    parts = (f"{name} is {found[name]!r}, expected {expected[name]!r}" for name in differing)
    return f"{shown}: {'; '.join(parts)}"
