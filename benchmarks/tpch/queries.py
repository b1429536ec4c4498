"""TPC-H's Q3, Q5 and Q10 as tables of the library, each beside its SQL, which DuckDB runs over the final tables.

The parameters are those of the specification's validation runs. `Query.limit` stands for the queries' LIMIT; rows that
tie in the query's order are ordered by their key, which TPC-H leaves open. The order of Q5's five rows is left to
whoever reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.tpch.logs import KEYS, SCHEMAS
from tablestream import functions as tf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_REVENUE = "l_extendedprice * (1 - l_discount)"


@dataclass(frozen=True)
class Logs:
    """The logs as tables, of frames that a function gives for their names."""

    frame: Callable[[str], DataFrame]

    def table(self, kind: str, *columns: str) -> ts.Table:
        """Read columns of a log as a table."""
        return ts.table(self.frame(kind), KEYS[kind], **self._said(kind, columns))

    def whole(self, kind: str) -> ts.Table:
        """Read all columns of a log that a query can name as a table."""
        names = (one.split()[0] for one in SCHEMAS[kind].split(", "))
        key = KEYS[kind]
        return self.table(kind, *(one for one in names if one not in {*key, "deleted", "changed_at"}))

    def copied(self, kind: str, *columns: str) -> ts.GlobalTable:
        """The same for a small table that many rows point to: every shard has a copy."""
        return ts.global_table(self.frame(kind), KEYS[kind], **self._said(kind, columns))

    def _said(self, kind: str, columns: tuple[str, ...]) -> dict[str, Any]:
        return {"timestamp": "changed_at", "apply_as_deletes": "deleted", "columns": columns, "name": kind}


def from_folder(spark: SparkSession, folder: Path) -> Logs:
    """Read the logs of a folder, one file of each a micro-batch."""
    return Logs(
        lambda kind: ts.from_files(spark, folder / kind, "parquet", SCHEMAS[kind], max_files_per_trigger=1)
    )


@dataclass(frozen=True)
class Query:
    """A query: its groups as a program of the library and as SQL, and which of them are its result.

    Attributes
    ----------
    groups
        The query without its LIMIT.
    sql
        The same; its columns are those to compare.
    order
        The columns that order the result, each with whether the greatest comes first.
    limit
        How many rows the result has; None: all groups.
    """

    groups: Callable[[Logs], ts.Table]
    sql: str
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None

    def result(self, groups: ts.Table) -> ts.Table:
        """Return the query's result from its groups."""
        if self.limit is None:
            return groups
        columns, descending = zip(*self.order, strict=True)
        return groups.group_by(F.lit(1).alias("one")).top(self.limit, columns, descending=descending)

    @property
    def result_sql(self) -> str:
        """The SQL of the result."""
        if self.limit is None:
            return self.sql
        order = ", ".join(f"{column} {'desc' if down else 'asc'}" for column, down in self.order)
        ranked = f"select row_number() over (order by {order}) as rank, * from ({self.sql})"
        return f"select * from ({ranked}) where rank <= {self.limit}"


def _shipping_priority(logs: Logs) -> ts.Table:
    """Orders of a market segment that are not shipped, with what they would bring."""
    customers = logs.table("customer", "c_mktsegment").filter("c_mktsegment = 'BUILDING'")
    orders = logs.table("orders", "o_custkey", "o_orderdate", "o_shippriority")
    lines = logs.table("lineitem", "l_extendedprice", "l_discount", "l_shipdate")
    waiting = orders.filter("o_orderdate < date '1995-03-15'").join(
        customers, on="o_custkey", select=lambda o, _: [o.o_orderdate, o.o_shippriority]
    )
    priced = lines.filter("l_shipdate > date '1995-03-15'").join(
        waiting,
        on="l_orderkey",
        select=lambda line, o: [_revenue(line), o.o_orderdate, o.o_shippriority],
    )
    return priced.group_by("l_orderkey", "o_orderdate", "o_shippriority").agg(revenue=tf.sum("revenue"))


def _local_suppliers(logs: Logs) -> ts.Table:
    """What suppliers of a region sold to customers of their own nation, by nation."""
    regions = logs.copied("region", "r_name").filter("r_name = 'ASIA'")
    nations = logs.table("nation", "n_name", "n_regionkey").join(
        regions, on="n_regionkey", select=lambda n, _: [n.n_name]
    )
    suppliers = logs.table("supplier", "s_nationkey").join(nations, on="s_nationkey")
    customers = logs.table("customer", "c_nationkey")
    orders = (
        logs.table("orders", "o_custkey", "o_orderdate")
        .filter("o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'")
        .join(customers, on="o_custkey", select=lambda _, c: [c.c_nationkey])
    )
    lines = logs.table("lineitem", "l_suppkey", "l_extendedprice", "l_discount")
    sold = lines.join_many(
        ts.lookup(orders, on="l_orderkey", select=lambda line, o: [*_sale(line), o.c_nationkey]),
        ts.lookup(
            suppliers,
            on="l_suppkey",
            select=lambda line, s: [line.revenue, line.c_nationkey, s.s_nationkey, s.n_name],
        ),
    )
    return sold.filter("c_nationkey = s_nationkey").group_by("n_name").agg(revenue=tf.sum("revenue"))


def _returned_items(logs: Logs) -> ts.Table:
    """Customers with what they sent back of a quarter's orders."""
    orders = logs.table("orders", "o_custkey", "o_orderdate").filter(
        "o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01'"
    )
    lines = logs.table("lineitem", "l_extendedprice", "l_discount", "l_returnflag")
    returned = lines.filter("l_returnflag = 'R'").join(
        orders, on="l_orderkey", select=lambda line, o: [_revenue(line), o.o_custkey]
    )
    lost = returned.group_by(F.col("o_custkey").alias("c_custkey")).agg(revenue=tf.sum("revenue"))
    nations = logs.copied("nation", "n_name")
    customers = logs.table("customer", *_CUSTOMER, "c_nationkey").join(
        nations, on="c_nationkey", select=lambda c, n: [*(c[name] for name in _CUSTOMER), n.n_name]
    )
    return lost.join(customers)


_CUSTOMER = ("c_name", "c_acctbal", "c_phone", "c_address", "c_comment")


def _revenue(line: ts.Row) -> Column:
    """What a line brings, with four digits after the point."""
    return (line.l_extendedprice * (1 - line.l_discount)).alias("revenue")


def _sale(line: ts.Row) -> list[Column]:
    return [_revenue(line), line.l_suppkey]


QUERIES = {
    "q3": Query(
        _shipping_priority,
        f"""
        select l_orderkey, sum({_REVENUE}) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
        and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        """,
        (("revenue", True), ("o_orderdate", False), ("l_orderkey", False)),
        10,
    ),
    "q5": Query(
        _local_suppliers,
        f"""
        select n_name, sum({_REVENUE}) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
        and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
        and r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name
        """,
    ),
    "q10": Query(
        _returned_items,
        f"""
        select c_custkey, c_name, sum({_REVENUE}) as revenue, c_acctbal, n_name, c_address, c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey
        and o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01'
        and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        """,
        (("revenue", True), ("c_custkey", False)),
        20,
    ),
}
