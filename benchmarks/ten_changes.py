"""A query, and ten changes of its plan: one thing each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import tablestream as ts
from tablestream import functions as tf

if TYPE_CHECKING:
    from pathlib import Path

#: The columns of each log.
SCHEMAS: Mapping[str, str] = {
    "orders": "id long, customer long, item long, amount long, gone boolean",
    "customers": "customer long, name string, city long, gone boolean",
    "items": "item long, title string, gone boolean",
    "cities": "city long, place string, gone boolean",
}
KEYS = {"orders": "id", "customers": "customer", "items": "item", "cities": "city"}

#: Tables by the names of the outputs that they are.
Outputs: TypeAlias = dict[str, ts.Table]


@dataclass(frozen=True)
class Tables:
    """The four tables of the query."""

    orders: ts.Table
    customers: ts.Table
    items: ts.Table
    cities: ts.Table

    def named(self) -> ts.Table:
        """Orders with the names of their customers."""
        return self.orders.join(self.customers.select("name"), on="customer", how="left", name="named")

    def large(self, least: int = 50) -> ts.Table:
        """Orders of some size."""
        return self.orders.filter(f"amount >= {least}")

    def placed(self) -> ts.Table:
        """Customers with the places of their cities."""
        return self.customers.join(self.cities, on="city", how="left", name="placed")

    def sums(self) -> ts.Table:
        """Orders by customer."""
        return self.orders.group_by("customer").agg(n=tf.count(), total=tf.sum("amount"), name="sums")


def first_plan(tables: Tables) -> Outputs:
    """Return the outputs of the query as it starts: it does not read the items."""
    return {
        "named": tables.named(),
        "large": tables.large(),
        "placed": tables.placed(),
        "sums": tables.sums(),
    }


def _output_added(tables: Tables) -> Outputs:
    return {"by_city": tables.customers.group_by("city").agg(n=tf.count(), name="by_city")}


def _filter_changed(tables: Tables) -> Outputs:
    return {"large": tables.large(least=80)}


def _column_added(tables: Tables) -> Outputs:
    customers = tables.customers.select("name", "city")
    return {"named": tables.orders.join(customers, on="customer", how="left", name="named")}


def _column_removed(tables: Tables) -> Outputs:
    orders, customers = tables.orders.select("customer", "item"), tables.customers.select("name")
    return {"named": orders.join(customers, on="customer", how="left", name="named")}


def _group_changed(tables: Tables) -> Outputs:
    least = tables.orders.group_by("customer").agg(n=tf.count(), total=tf.min("amount"), name="sums")
    return {"sums": least}


def _join_added(tables: Tables) -> Outputs:
    named = tables.large().join(tables.customers.select("city"), on="customer", name="large with cities")
    return {"large": named}


def _source_added(tables: Tables) -> Outputs:
    return {"titled": tables.orders.join(tables.items, on="item", how="left", name="titled")}


def _source_removed(tables: Tables) -> Outputs:
    return {"placed": tables.customers}


def _nothing(_: Tables) -> Outputs:
    return {}


@dataclass(frozen=True)
class Change:
    """A change of a plan.

    `outputs`: those that are new, or another table than before. `fates`: what becomes of each source and output that
    does not go on as before, if a log follows it, and of the sums a maintained table.
    """

    outputs: Callable[[Tables], Outputs]
    fates: Mapping[str, str]
    shards: int | None = None

    def of(self, tables: Tables, plan: Outputs) -> Outputs:
        """Change a plan."""
        changed = plan | self.outputs(tables)
        return {name: table for name, table in changed.items() if self.fates.get(name) != "removed"}

    def plan(self, tables: Tables) -> Outputs:
        """Change the first plan."""
        return self.of(tables, first_plan(tables))


CHANGES: Mapping[str, Change] = {
    "an output added": Change(_output_added, {"by_city": "new"}),
    "an output removed": Change(_nothing, {"large": "removed"}),
    "a filter changed": Change(_filter_changed, {"large": "told anew"}),
    "a column added": Change(_column_added, {"named": "told anew"}),
    "a column removed": Change(_column_removed, {"named": "told anew"}),
    "a group changed": Change(_group_changed, {"sums": "brought over"}),
    "a join added": Change(_join_added, {"large": "told anew"}),
    "a source added": Change(_source_added, {"items": "new", "titled": "new"}),
    "a source removed": Change(_source_removed, {"cities": "removed", "placed": "told anew"}),
    "other shards": Change(_nothing, {}, shards=32),
}


def requests(outputs: Outputs, place: Path) -> list[ts.OutputRequest]:
    """Return a plan's outputs: logs of files, and the sums as a maintained table."""
    return [
        table.to(ts.to_delta(place / name) if name == "sums" else ts.to_files(place / name), name=name)
        for name, table in outputs.items()
    ]


def fates(evolution: ts.Evolution) -> dict[str, str]:
    """Return what becomes of each source and output that does not go on as before."""
    return {
        one.name: one.fate
        for one in evolution.parts
        if one.part != "operator" and one.fate not in {"kept", "silent"}
    }
