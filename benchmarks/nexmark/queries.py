"""Four queries of Nexmark as tables of the library, each beside the same query as batch SQL over the whole logs.

The SQL follows https://github.com/nexmark/nexmark (``queries/q3.sql`` and so on). A bid that is as high as another one
of its auction wins if it came first; in the same millisecond the smaller ``bid_id`` wins, which the original leaves
open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.nexmark.events import SCHEMAS
from tablestream import functions as tf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TAKES_PART = "bid_time between date_time and expires"
_LOCAL = "state in ('OR', 'ID', 'CA')"


@dataclass(frozen=True)
class Logs:
    """The three logs as a streaming query reads them, one file of each a micro-batch."""

    spark: SparkSession
    folder: Path

    def table(self, kind: str, *columns: str) -> ts.Table:
        """Read columns of a log as a table."""
        return ts.table(self._read(kind), _key(kind), timestamp="date_time", columns=columns, name=kind)

    def stream(self, kind: str, *columns: str) -> ts.Stream:
        """Read columns of a log as records."""
        return ts.stream(self._read(kind), _key(kind), timestamp="date_time", columns=columns, name=kind)

    def _read(self, kind: str) -> DataFrame:
        path = self.folder / kind
        return ts.from_files(self.spark, path, "parquet", SCHEMAS[kind], max_files_per_trigger=1)


@dataclass(frozen=True)
class Query:
    """A query as a program of the library and as SQL; the columns of the SQL are those to compare."""

    program: Callable[[Logs], ts.Table | ts.Stream]
    sql: str


def _key(kind: str) -> str:
    return SCHEMAS[kind].split()[0]


def _local_items(logs: Logs) -> ts.Table:
    """Who sells in three states in category 10, and in which auctions."""
    persons = logs.table("persons", "name", "city", "state").filter(_LOCAL)
    auctions = logs.table("auctions", "seller", "category").filter("category = 10")
    return auctions.join(persons, on="seller", select=lambda _, p: [p.name, p.city, p.state])


def _average_prices(logs: Logs) -> ts.Table:
    """The mean of the winning prices of each category."""

    def priced(bid: ts.Row, auction: ts.Row) -> list[Column]:
        times = [bid.date_time.alias("bid_time"), auction.date_time, auction.expires]
        return [bid.auction, bid.price, auction.category, *times]

    auctions = logs.table("auctions", "category", "date_time", "expires")
    bids = logs.table("bids", "auction", "price", "date_time")
    part = bids.join(auctions, on="auction", select=priced).filter(_TAKES_PART)
    winning = part.group_by("auction", "category").agg(final=tf.max("price"))
    return winning.group_by("category").agg(final=tf.avg("final"))


def _winning_bids(logs: Logs) -> ts.Table:
    """Each auction with its highest bid."""
    auctions = logs.table("auctions", *_AUCTION)
    bids = logs.table("bids", *_BID)
    part = bids.join(auctions, on="auction", select=_expanded).filter(_TAKES_PART)
    return part.group_by("auction").top(
        1, ["price", "bid_time", "bid_id"], descending=[True, False, False], name="winning"
    )


def _expanded_bids(logs: Logs) -> ts.Table:
    """Each bid in category 10 with its auction, also if the auction comes later: both sides are tables."""
    auctions = logs.table("auctions", *_AUCTION).filter("category = 10")
    return logs.table("bids", *_BID).join(auctions, on="auction", select=_expanded)


def _expanded_records(logs: Logs) -> ts.Stream:
    """The same with bids as a stream, which looks up auctions that are there: bids that come before are left out."""
    # Declared first, an auction is there for the bids of its own millisecond.
    auctions = logs.table("auctions", *_AUCTION).filter("category = 10")
    return logs.stream("bids", *_BID).join(auctions, on="auction", select=_expanded)


_BID = ("auction", "bidder", "price", "date_time", "extra")
_AUCTION = tuple(column.split()[0] for column in SCHEMAS["auctions"].split(", ")[1:])


def _expanded(bid: ts.Row, auction: ts.Row) -> list[Column]:
    own = [bid.auction, bid.bidder, bid.price, bid.date_time.alias("bid_time"), bid.extra.alias("bid_extra")]
    return own + [auction[name] for name in _AUCTION]


_EXPANDED_SQL = f"""
    bid_id, auction, bidder, price, b.date_time as bid_time, b.extra as bid_extra,
    {", ".join(f"a.{name}" for name in _AUCTION)}
    from bids b join auctions a on a.id = b.auction
"""

QUERIES = {
    "q3": Query(
        _local_items,
        f"select a.id, name, city, state from auctions a join persons p on a.seller = p.id"
        f" where category = 10 and {_LOCAL}",
    ),
    "q4": Query(
        _average_prices,
        """
        select category, avg(final) as final from (
            select category, max(price) as final from bids b join auctions a on a.id = b.auction
            where b.date_time between a.date_time and expires group by a.id, category
        ) group by category
        """,
    ),
    "q9": Query(
        _winning_bids,
        f"""
        select * except (place) from (
            select row_number() over (partition by a.id order by price desc, b.date_time, bid_id) as place,
            {_EXPANDED_SQL} where b.date_time between a.date_time and expires
        ) where place = 1
        """,
    ),
    "q20": Query(_expanded_bids, f"select {_EXPANDED_SQL} where category = 10"),
    "q20-stream": Query(
        _expanded_records, f"select {_EXPANDED_SQL} where category = 10 and a.date_time <= b.date_time"
    ),
}


def batch_result(spark: SparkSession, folder: Path, query: Query) -> DataFrame:
    """Compute a query over the whole logs at once."""
    for kind, schema in SCHEMAS.items():
        spark.read.schema(schema).parquet(str(folder / kind)).createOrReplaceTempView(kind)
    return spark.sql(query.sql)


def final_rows(changes: DataFrame, key: list[str]) -> DataFrame:
    """Return what is left of a log of changes: the last row of each key, if it is not deleted."""
    last = F.max_by(F.struct(*changes.columns), "_order").alias("last")
    return changes.groupBy(*key).agg(last).select("last.*").where("_change_type = 'upsert'")


def differing_rows(found: DataFrame, expected: DataFrame) -> int:
    """Count the rows that one frame has more often than the other, in the columns of the expected one."""
    columns = expected.columns
    sides = found.select(*columns, F.lit(1).alias("side")).union(expected.select("*", F.lit(-1)))
    surplus = sides.groupBy(*columns).agg(F.abs(F.sum("side")).alias("rows"))
    (counted,) = surplus.agg(F.coalesce(F.sum("rows"), F.lit(0))).collect()
    return int(counted[0])
