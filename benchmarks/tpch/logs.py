"""TPC-H's tables as change logs, made by a fixed seed: a load, then a refresh for each further micro-batch.

Proportions, keys, types and ranges follow chapter 4 of the TPC-H specification; the code and the texts are our own. The
tables ``part`` and ``partsupp`` are left out, because none of the queries here reads them. TPC-H's refresh functions
insert orders with their lines and delete others. Ours also change prices, states and dates of orders and lines, and let
orders move to another customer, lines to another supplier, customers and suppliers to another nation.

Every change has a time of its own. In a refresh the order of changes is random: an order can come before its lines or
after them, and an order that is changed and deleted ends with whichever comes last.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.tpch.population import Population, Scale, Step
from benchmarks.tpch.rows import customers, deletions, nations, orders_with_lines, regions, suppliers
from benchmarks.workload import made_once, write_file

if TYPE_CHECKING:
    from pathlib import Path

_CHANGE = ", deleted boolean, changed_at timestamp"
SCHEMAS = {
    "region": "r_regionkey int, r_name string, r_comment string" + _CHANGE,
    "nation": "n_nationkey int, n_name string, n_regionkey int, n_comment string" + _CHANGE,
    "supplier": (
        "s_suppkey bigint, s_name string, s_address string, s_nationkey int, s_phone string,"
        " s_acctbal decimal(15,2), s_comment string"
    )
    + _CHANGE,
    "customer": (
        "c_custkey bigint, c_name string, c_address string, c_nationkey int, c_phone string,"
        " c_acctbal decimal(15,2), c_mktsegment string, c_comment string"
    )
    + _CHANGE,
    "orders": (
        "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2),"
        " o_orderdate date, o_orderpriority string, o_clerk string, o_shippriority int, o_comment string"
    )
    + _CHANGE,
    "lineitem": (
        "l_orderkey bigint, l_linenumber int, l_partkey bigint, l_suppkey bigint, l_quantity decimal(15,2),"
        " l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string,"
        " l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,"
        " l_shipmode string, l_comment string"
    )
    + _CHANGE,
}
KEYS = {kind: tuple(schema.split()[0:1]) for kind, schema in SCHEMAS.items()} | {
    "lineitem": ("l_orderkey", "l_linenumber")
}


def prepare_logs(scale: Scale, directory: Path) -> Path:
    """Make the logs under ``directory`` unless they are there, and return the folder that holds them."""
    folder = directory / f"tpch-{scale.factor:g}-{scale.refreshed:g}-{scale.micro_batches}"
    return made_once(folder, partial(_write_logs, scale))


def _write_logs(scale: Scale, folder: Path) -> None:
    population = Population(scale)
    for number in range(scale.micro_batches):
        rows = _rows_of(population, population.refresh() if number else population.load())
        if not number:
            rows |= {"region": [regions()], "nation": [nations()]}
        for kind, parts in rows.items():
            (folder / kind).mkdir(parents=True, exist_ok=True)
            log = pa.concat_tables(parts, promote_options="default")
            write_file(folder / kind, number, log.sort_by("changed_at"))


def _rows_of(population: Population, step: Step) -> dict[str, list[pa.Table]]:
    """Return what a micro-batch changes, by the name of the table."""
    orders, lines = orders_with_lines(population, step.orders)
    deleted, deleted_lines = deletions(population, step.deleted)
    return {
        "supplier": [suppliers(population, step.suppliers)],
        "customer": [customers(population, step.customers)],
        "orders": [orders, deleted],
        "lineitem": [lines, deleted_lines],
    }
