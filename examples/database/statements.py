"""The statements of the load: what a customer, a product or an order goes through, chosen at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, LiteralString

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
_LONG = 6000


class Statements:
    """The statements of one connection.

    Parameters
    ----------
    connection
        Where they run.
    chance
        Decides which ones, and their values.
    numbers
        Numbers that nothing had before.
    """

    def __init__(self, connection: Connection, chance: random.Random, numbers: itertools.count[int]) -> None:
        self.connection = connection
        self._chance, self._numbers = chance, numbers
        kinds: dict[Callable[[], None], int] = {
            self.new_order: 14,
            self.change_order: 9,
            self.order_to_customer: 8,
            self.order_to_product: 8,
            self.delete_order: 7,
            self.move_order: 4,
            self.new_customer: 3,
            self.rename_customer: 7,
            self.delete_customer: 2,
            self.move_customer: 3,
            self.new_product: 3,
            self.price_product: 12,
            self.describe_product: 4,
            self.delete_product: 1,
            self.move_product: 4,
            self.replace_product: 2,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def any(self) -> str:
        """Run one of them; return its name."""
        kind = self._chance.choices(self._kinds, self._weights)[0]
        kind()
        return kind.__name__.replace("_", " ")

    def new_customer(self) -> None:
        """A customer, some without an address."""
        number = next(self._numbers)
        email = self._chance.choice([f"c{number}@example.org", None])
        self._run("INSERT INTO customers VALUES (%s, %s, %s)", number, f"Customer {number}", email)

    def rename_customer(self) -> None:
        """A new name: every order of the customer shows it."""
        self._run(
            "UPDATE customers SET name = %s WHERE customer_id = %s", f"Name {self._value()}", self._customer()
        )

    def delete_customer(self) -> None:
        """A customer goes; the database takes it off its orders."""
        self._run("DELETE FROM customers WHERE customer_id = %s", self._customer())

    def move_customer(self) -> None:
        """A customer gets another key; the database gives it to its orders."""
        self._run(
            "UPDATE customers SET customer_id = %s WHERE customer_id = %s",
            next(self._numbers),
            self._customer(),
        )

    def new_product(self) -> None:
        """A product; most have a long description."""
        sku = f"SKU-{next(self._numbers)}"
        self._run("INSERT INTO products VALUES (%s, %s, %s)", sku, self._price(), self._description())

    def price_product(self) -> None:
        """A new price. The description is not written, so the change does not have it."""
        self._run("UPDATE products SET price = %s WHERE sku = %s", self._price(), self._product())

    def describe_product(self) -> None:
        """A new description, or none."""
        self._run("UPDATE products SET description = %s WHERE sku = %s", self._description(), self._product())

    def delete_product(self) -> None:
        """A product goes, and its orders with it."""
        self._run("DELETE FROM products WHERE sku = %s", self._product())

    def move_product(self) -> None:
        """A product gets another key, and with it its orders; the description is not written."""
        sku = f"SKU-{next(self._numbers)}"
        self._run("UPDATE products SET sku = %s WHERE sku = %s", sku, self._product())

    def replace_product(self) -> None:
        """A product goes and comes back under its key in one transaction."""
        sku = self._product()
        self._run("DELETE FROM products WHERE sku = %s", sku)
        if sku is not None:
            self._run("INSERT INTO products VALUES (%s, %s, %s)", sku, self._price(), self._description())

    def new_order(self) -> None:
        """An order; some are of nobody."""
        sku = self._product()
        if sku is not None:
            customer = self._chance.choice([self._customer(), self._customer(), None])
            values = (next(self._numbers), customer, sku, self._chance.randrange(1, 100))
            self._run("INSERT INTO orders VALUES (%s, %s, %s, %s)", *values)

    def change_order(self) -> None:
        """Another quantity."""
        self._run(
            "UPDATE orders SET quantity = %s WHERE order_id = %s", self._chance.randrange(100), self._order()
        )

    def order_to_customer(self) -> None:
        """An order of another customer, or of nobody."""
        customer = self._chance.choice([self._customer(), self._customer(), None])
        self._run("UPDATE orders SET customer_id = %s WHERE order_id = %s", customer, self._order())

    def order_to_product(self) -> None:
        """An order of another product."""
        sku = self._product()
        if sku is not None:
            self._run("UPDATE orders SET sku = %s WHERE order_id = %s", sku, self._order())

    def delete_order(self) -> None:
        """An order goes."""
        self._run("DELETE FROM orders WHERE order_id = %s", self._order())

    def move_order(self) -> None:
        """An order gets another key."""
        self._run("UPDATE orders SET order_id = %s WHERE order_id = %s", next(self._numbers), self._order())

    def last_order(self, order: int) -> None:
        """The order with which a load ends."""
        self._run("INSERT INTO orders SELECT %s, NULL, min(sku), 1 FROM products", order)

    def _run(self, statement: LiteralString, *values: object) -> None:
        self.connection.execute(statement, values)

    def _pick(self, query: LiteralString) -> Any:
        """A key of a table, as this transaction sees it; None if the table is empty."""
        keys = [key for (key,) in self.connection.execute(query).fetchall()]
        return self._chance.choice(keys) if keys else None

    def _customer(self) -> int | None:
        found: int | None = self._pick("SELECT customer_id FROM customers ORDER BY 1")
        return found

    def _product(self) -> str | None:
        found: str | None = self._pick('SELECT sku FROM products ORDER BY sku COLLATE "C"')
        return found

    def _order(self) -> int | None:
        found: int | None = self._pick("SELECT order_id FROM orders ORDER BY 1")
        return found

    def _value(self) -> str:
        return f"{self._chance.randrange(10**6):06d}"

    def _price(self) -> Decimal:
        return Decimal(self._chance.randrange(1, 10**6)) / 100

    def _description(self) -> str | None:
        sentence = f"Version {self._value()} of what there is to say. "
        long = sentence * (_LONG // len(sentence))
        return self._chance.choice([long, long, long, "short", None])
