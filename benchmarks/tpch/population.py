"""Which of TPC-H's orders, customers and suppliers there are, and which of them a micro-batch changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.workload import drawn

if TYPE_CHECKING:
    from benchmarks.workload import Numbers

CUSTOMERS, SUPPLIERS, PARTS, ORDERS_EACH = 150_000, 10_000, 200_000, 10
"""Rows at scale factor 1, and orders a customer; an order has one to seven lines."""
FIRST_DAY, LAST_DAY = 8035, 8035 + 2405
"""The orders' dates, as days since 1970: 1992-01-01 to 1998-08-02."""


@dataclass(frozen=True)
class Scale:
    """How much there is of what.

    Attributes
    ----------
    factor
        TPC-H's scale factor: 1 has 1,500,000 orders with about 6,000,000 lines.
    refreshed
        The share of the orders that a refresh inserts, as many as it changes and deletes; also the share of customers
        and suppliers that it changes.
    micro_batches
        The first is the load.
    """

    factor: float
    refreshed: float
    micro_batches: int

    @property
    def customers(self) -> int:
        """Number of customers, which stays."""
        return max(3, round(CUSTOMERS * self.factor))

    @property
    def suppliers(self) -> int:
        """Number of suppliers, which stays; small scales have enough for each nation to have some."""
        return max(100, round(SUPPLIERS * self.factor))

    @property
    def parts(self) -> int:
        """Number of parts that lines name."""
        return max(100, round(PARTS * self.factor))

    @property
    def orders(self) -> int:
        """Number of orders of the load."""
        return ORDERS_EACH * self.customers

    @property
    def refreshed_orders(self) -> int:
        """How many orders a refresh inserts, changes and deletes: each as many."""
        return max(1, round(self.orders * self.refreshed))

    @property
    def all_orders(self) -> int:
        """Number of orders that ever exist."""
        return self.orders + (self.micro_batches - 1) * self.refreshed_orders


@dataclass(frozen=True)
class Some:
    """Which rows of a table change, and in which slots of time."""

    rows: Numbers
    slots: Numbers


@dataclass(frozen=True)
class Step:
    """What changes in a micro-batch: orders with their lines, customers and suppliers."""

    orders: Some
    deleted: Some
    customers: Some
    suppliers: Some


class Population:
    """Which orders there are, and what of them never changes: the date and the number of lines."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.random = drawn(60)
        self.dates = drawn(61).integers(FIRST_DAY, LAST_DAY + 1, scale.all_orders)
        self.customers = drawn(62).integers(0, scale.customers * 2 // 3, scale.all_orders)
        self.lines = drawn(63).integers(1, 8, scale.all_orders)
        self._alive = np.zeros(scale.all_orders, bool)
        self._orders = self._slots = 0

    def load(self) -> Step:
        """Bring the first orders, and all customers and suppliers."""
        everyone = np.arange(self.scale.customers), np.arange(self.scale.suppliers)
        return self._step(self._new(self.scale.orders), np.arange(0), *everyone)

    def refresh(self) -> Step:
        """Bring new orders, change others, delete others; an order can be changed and deleted."""
        count, alive = self.scale.refreshed_orders, np.flatnonzero(self._alive)
        changed, deleted = (self.random.choice(alive, count, replace=False) for _ in range(2))
        return self._step(
            np.concatenate([self._new(count), changed]),
            deleted,
            self._share_of(self.scale.customers),
            self._share_of(self.scale.suppliers),
        )

    def _new(self, count: int) -> Numbers:
        self._orders += count
        return np.arange(self._orders - count, self._orders)

    def _share_of(self, rows: int) -> Numbers:
        return self.random.choice(rows, max(1, round(rows * self.scale.refreshed)), replace=False)

    def _step(self, *changed: Numbers) -> Step:
        """Give the changes their slots, and keep track of which orders there are afterwards."""
        slots = self._slots + self.random.permutation(sum(map(len, changed)))
        self._slots += len(slots)
        cuts = np.cumsum([len(one) for one in changed])[:-1]
        step = Step(*(Some(rows, at) for rows, at in zip(changed, np.split(slots, cuts), strict=True)))
        last = np.full(self.scale.all_orders, -1)
        last[step.orders.rows] = step.orders.slots
        self._alive[step.orders.rows] = True
        self._alive[step.deleted.rows] = last[step.deleted.rows] > step.deleted.slots
        return step
