"""The shop: three tables with foreign keys, their join in SQL, and the same join as a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tablestream as ts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The connector's name, which begins the names of its topics.
PREFIX = "shop"
TABLES = ("public.customers", "public.products", "public.orders")
REPORT = "public.order_details"

SCHEMA = """
CREATE TABLE customers (
  customer_id bigint PRIMARY KEY,
  name text NOT NULL,
  email text);
CREATE TABLE products (
  sku text PRIMARY KEY,
  price numeric(12,2) NOT NULL,
  description text);
-- Out of line and not compressed: an update that does not touch it does not write it.
ALTER TABLE products ALTER COLUMN description SET STORAGE EXTERNAL;
CREATE TABLE orders (
  order_id bigint PRIMARY KEY,
  customer_id bigint REFERENCES customers ON UPDATE CASCADE ON DELETE SET NULL,
  sku text NOT NULL REFERENCES products ON UPDATE CASCADE ON DELETE CASCADE,
  quantity int NOT NULL);
CREATE INDEX ON orders (customer_id);
CREATE INDEX ON orders (sku);
"""

#: The database's own join, which the maintained table must be.
JOIN = """
SELECT order_id, customer_id, sku, quantity, name, email, price, description
FROM orders LEFT JOIN customers USING (customer_id) LEFT JOIN products USING (sku)
"""


def order_details(spark: SparkSession, servers: str) -> ts.Table:
    """Each order with its customer and its product, by whole transactions.

    Parameters
    ----------
    spark
        The session, with Spark's Kafka connector.
    servers
        Kafka's addresses.
    """
    limit = {"maxOffsetsPerTrigger": 200}  # of each topic, so micro-batches end in the middle of transactions
    shop = ts.from_debezium(spark, PREFIX, bootstrap_servers=servers, transactions=True, options=limit)
    orders = shop.table(
        "public.orders",
        key="order_id",
        columns="order_id bigint, customer_id bigint, sku string, quantity int",
    )
    customers = shop.table(
        "public.customers", key="customer_id", columns="customer_id bigint, name string, email string"
    )
    products = shop.table(
        "public.products", key="sku", columns="sku string, price decimal(12,2), description string"
    )
    with_names = orders.join(customers, on="customer_id", how="left")
    return with_names.join(products, on="sku", how="left")
