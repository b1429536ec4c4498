"""Whether the topic has everything once and in order, held to the load, which is made again for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.soak.load import CUSTOMERS, changes_of_second

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Verdict:
    """What was compared, and in how many places it differs.

    Attributes
    ----------
    records, changes
        Records that were read back without repeats, and changes in the topic by their headers: as many.
    lost, moved
        Items of which a change is missing, or stands in another place.
    wrong_rows
        Rows of the final table that are not those of a join of what was sent.
    rows
        Rows of the final table.
    """

    records: int
    changes: int
    lost: int
    moved: int
    wrong_rows: int
    rows: int

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, moved or wrong."""
        return self.records == self.changes and not (self.lost or self.moved or self.wrong_rows)

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.records:,} records of {self.changes:,} changes. Items with lost changes: {self.lost:,}, with"
            f" changes in another order: {self.moved:,}; of {self.rows:,} rows at the end {self.wrong_rows:,} are"
            " wrong."
        )


def check(records: Path, seconds: int, per_s: int, changes_out: int) -> Verdict:
    """Hold the records that were read back to the load.

    Parameters
    ----------
    records
        Where they are.
    seconds, per_s
        The load.
    changes_out
        How many changes the topic has.
    """
    items, customers = _sent(seconds, per_s)
    told = (
        pl.scan_parquet(records / "micro_batch=*" / "*.parquet")
        .sort("_order")
        .select("key", "customer", "number", "name")
        .collect()
    )
    # Every version of an item is told of at once, and again whenever its customer changes.
    versions = told.drop_nulls("number").filter(
        pl.col("number").ne_missing(pl.col("number").shift().over("key"))
    )
    got = versions.group_by("key", maintain_order=True).agg("number")
    wanted = items.drop_nulls("number").group_by("key", maintain_order=True).agg("number")
    compared = wanted.join(got, on="key", how="full", coalesce=True, suffix="_told")
    differing = compared.filter(pl.col("number").ne_missing(pl.col("number_told")))
    lost = differing.filter(
        pl.col("number_told").is_null() | (pl.col("number").list.set_difference("number_told").list.len() > 0)
    )
    last = told.unique("key", keep="last").drop_nulls("number")
    names = customers.unique("customer", keep="last")
    expected = items.unique("key", keep="last").drop_nulls("number").join(names, on="customer", how="left")
    columns = ["key", "customer", "number", "name"]
    wrong = (
        last.select(columns).join(expected.select(columns), on=columns, how="anti", nulls_equal=True).height
        + expected.join(last, on=columns, how="anti", nulls_equal=True).height
    )
    return Verdict(
        records=told.height,
        changes=changes_out,
        lost=lost.height,
        moved=differing.height - lost.height,
        wrong_rows=wrong,
        rows=expected.height,
    )


def _sent(seconds: int, per_s: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The versions of items and of customers, in their order."""
    schema = {"topic": pl.String, "key": pl.String, "number": pl.Int64, "customer": pl.String}
    sent = pl.concat(
        pl.DataFrame(changes_of_second(second, per_s), schema=schema, orient="row")
        for second in range(seconds)
    )
    is_customer = pl.col("topic") == CUSTOMERS
    customers = sent.filter(is_customer).select(
        pl.col("key").alias("customer"), pl.concat_str(pl.lit("name "), pl.col("number")).alias("name")
    )
    there = pl.col("customer").is_not_null()
    items = sent.filter(~is_customer).select("key", "customer", pl.when(there).then("number").alias("number"))
    return items, customers
