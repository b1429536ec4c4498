"""The programs of the pages that need a broker: they run as they stand there, but for addresses and places."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tests.broker.postgres_server import PostgresServer
from tests.kafka.topics import Record, Topics, by_key, record
from tests.pages import DOCS, Program, examples
from tests.postgres.database import Database, needs_server
from tests.spark.change_logs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Blocks of these pages that no test runs, by their beginning, and why.
NOT_RUN = {'log = ts.from_kafka(spark, "orders"': "needs PostgreSQL's JDBC driver, and a database's password"}
#: For a machine under load.
PATIENCE_S = 300.0
POSTGRES = {"connector": "postgresql", "snapshot": "false", "ts_us": 1}
TABLES = ("orders", "customers", "products")


class Page(Program):
    """The program that the blocks of a page are, with the tests' broker."""

    def __init__(self, page: str, spark: SparkSession, topics: Topics, directory: Path) -> None:
        super().__init__(spark, directory)
        self.blocks = [
            part.code
            for part in examples((DOCS / page).read_text(encoding="utf-8"))
            if not part.code.startswith(tuple(NOT_RUN))
        ]
        self._topics = topics

    def run(self, code: str) -> str:
        """Run a block; the names of topics, after a bracket or at the start of a line, get the test's prefix."""
        topics = re.compile(r'(?<=[(,] )"(\w+)", |(?<=\()"(\w+)", (?=\*\*)')
        mine = topics.sub(lambda found: f'"{self._topics.prefix}{found[1] or found[2]}", ', code)
        mine = mine.replace("localhost:9092", self._topics.servers)
        return super().run(mine.replace('checkpoint="', f'checkpoint="{self.directory}/'))

    def finish(self) -> None:
        """Let the query of the page read all that is there, and stop it."""
        self.names["query"].processAllAvailable()
        self.names["query"].stop()

    def finish_when(self, there: Callable[[], bool]) -> None:
        """Stop the query of the page when something is there: one that looks at the clock always has more to read."""
        query, end = self.names["query"], time.monotonic() + PATIENCE_S
        while query.isActive and not there() and time.monotonic() < end:
            time.sleep(0.5)
        if query.exception() is not None:
            raise query.exception()
        query.stop()


@pytest.fixture
def reports() -> Iterator[Database]:
    """The database that a page writes to."""
    needs_server()
    with PostgresServer() as running:
        yield Database(running.conninfo)


def test_the_page_about_kafka_runs(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    held = {"ticker": "ACME", "amount": 100}
    traced = Record(b'{"position_id": 1}', record("", held).value, headers=(("trace", b"abc"),))
    for name in ("positions", "tickers", "holdings"):
        topics.make(name)
    topics.send(f"{topics.prefix}positions", [traced, record({"position_id": 2}, held)])
    topics.send(f"{topics.prefix}tickers", [record("ACME", {"price": 10.5})])
    topics.send(f"{topics.prefix}positions", [record({"position_id": 2}, None)])
    page = Page("kafka.md", spark, topics, tmp_path)
    join, header, read_again = page.blocks

    page.run(join)
    page.finish()
    written = by_key(topics.read(f"{topics.prefix}holdings"))
    assert {key: values[-1] for key, values in written.items()} == {
        b'{"position_id":1}': {**held, "price": 10.5},
        b'{"position_id":2}': None,
    }
    page.run(header)
    traces = ts.table(page.names["frame"], key="position_id", name="traces")
    page.run(read_again)
    sinks = ts.to_memory("traces"), ts.to_memory("holdings")
    run(traces.to(sinks[0]), page.names["holdings"].to(sinks[1]), checkpoint=tmp_path / "again", shards=2)
    assert [bytes(row["trace"]) for row in sinks[0].rows() if row["trace"] is not None] == [b"abc"]
    assert [row["price"] for row in sinks[1].rows() if row["position_id"] == 1][-1] == 10.5


def transaction(topics: Topics, number: int, rows: dict[str, dict[str, Any]], op: str = "c") -> None:
    """Send what Debezium writes of a transaction that writes one row to each of some tables."""
    for place, (table, row) in enumerate(rows.items(), start=1):
        of = {**POSTGRES, "sequence": f'["{number}0", "{number}{place}"]', "ts_ms": number}
        inside = {"id": f"{number}:{number}{place}", "total_order": place, "data_collection_order": 1}
        key = {"sku": row["sku"]} if table == "products" else {"id": row["id"]}
        change = {"op": op, "before": None, "after": row, "source": of, "transaction": inside}
        topics.send(f"{topics.prefix}shop.public.{table}", [record(key, change)])
    counts = [{"data_collection": f"public.{table}", "event_count": 1} for table in rows]
    end = {"status": "END", "id": f"{number}:{number}9", "ts_ms": number, "event_count": len(rows)}
    topics.send(
        f"{topics.prefix}shop.transaction", [record({"id": str(number)}, {**end, "data_collections": counts})]
    )


def test_the_page_about_databases_runs(
    spark: SparkSession, topics: Topics, reports: Database, tmp_path: Path
) -> None:
    for name in (*(f"shop.public.{table}" for table in TABLES), "shop.transaction"):
        topics.make(name)
    order = {"id": 10, "customer_id": 1, "sku": "LAMP", "quantity": 2}
    ada = {"id": 1, "name": "Ada", "email": None}
    lamp = {"sku": "LAMP", "title": "It shines", "price": "D9I="}  # 4050, scale 2
    transaction(topics, 1, {"orders": order, "customers": ada, "products": lamp})
    transaction(topics, 2, {"customers": ada | {"name": "Grace"}}, "u")
    page = Page("databases/README.md", spark, topics, tmp_path)
    (block,) = page.blocks
    page.run(block.replace("host=reports dbname=reports user=writer", reports.conninfo))
    shown = [(10, "Grace", "It shines", "40.50", 2)]
    written = "SELECT to_regclass('public.order_details')::text"
    rows = "SELECT id, name, title, price::text, quantity FROM public.order_details"
    page.finish_when(lambda: reports.rows(written) != [(None,)] and reports.rows(rows) == shown)
    assert reports.rows(rows) == shown


def test_what_is_not_run_is_there() -> None:
    texts = [
        part.code
        for page in ("kafka.md", "databases/README.md", "databases/order-and-snapshots.md")
        for part in examples((DOCS / page).read_text(encoding="utf-8"))
    ]
    assert [start for start in NOT_RUN if sum(text.startswith(start) for text in texts) != 1] == []
