"""Topologies of many kinds over four sources, for a driver and for a query, and the records of some micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SCHEMAS = {
    "positions": "id int, ticker string, amount int, at bigint",
    "tickers": "ticker string, price decimal(10,2), tags array<string>, at bigint",
    "trades": "ticker string, volume bigint, at bigint",
    "rates": "ticker string, rate double, at bigint",
}
START = 1_700_000_000


def topologies(read: Callable[[str], DataFrame]) -> dict[str, ts.Table | ts.Stream]:
    """Return the outputs by name; `read` gives the frame of a source."""
    said: dict[str, Any] = {"timestamp": F.timestamp_seconds("at"), "except_columns": "at"}
    positions = ts.table(read("positions"), "id", apply_as_deletes="amount is null", name="positions", **said)
    tickers = ts.table(read("tickers"), "ticker", apply_as_deletes="price is null", name="tickers", **said)
    trades = ts.stream(read("trades"), "ticker", name="trades", **said)
    rates = ts.table(read("rates"), "ticker", history="1 minute", name="rates", **said)
    worth = positions.join(
        tickers,
        on="ticker",
        how="left",
        select=lambda p, t: [p.ticker, t.tags, (p.amount * t.price).alias("worth")],
        name="worth",
    )
    groups = positions.filter("amount > 0").group_by("ticker")
    return {
        "worth": worth,
        "totals": groups.agg(n=tf.count(), total=tf.sum("amount"), most=tf.max("amount"), name="totals"),
        "best": groups.top(1, "amount", name="best"),
        "worst": worth.filter("worth > 100").group_by("ticker").count(name="worst"),
        "held": tickers.suppress("5 seconds", name="held"),
        "of now": trades.join(
            tickers,
            how="left",
            select=lambda s, t: [s.volume, (s.volume * t.price).alias("value")],
            name="of now",
        ),
        "of then": trades.join(
            rates, how="left", grace="3 seconds", select=lambda s, r: [s.volume, r.rate], name="of then"
        ),
        "spelled": groups.aggregate(
            lambda: "",
            lambda _, row, text: f"{text}+{row.amount}",
            lambda _, row, text: f"{text}-{row.amount}",
            "text string",
            name="spelled",
        ),
        "rates": rates,
    }


def position(number: int | None, ticker: str | None, amount: int | None, at: int) -> dict[str, Any]:
    return {"id": number, "ticker": ticker, "amount": amount, "at": START + at}


def ticker(name: str, price: str | None, at: int, *tags: str) -> dict[str, Any]:
    return {"ticker": name, "price": price, "tags": list(tags), "at": START + at}


def trade(name: str | None, volume: int, at: int) -> dict[str, Any]:
    return {"ticker": name, "volume": volume, "at": START + at}


def rate(name: str, value: float, at: int) -> dict[str, Any]:
    return {"ticker": name, "rate": value, "at": START + at}


#: By micro-batch, the records of each source.
MICRO_BATCHES: list[dict[str, list[dict[str, Any]]]] = [
    {
        "positions": [position(1, "A", 10, 0), position(2, "A", 20, 3), position(None, "A", 1, 3)],
        "tickers": [ticker("A", "10.50", 1, "tech"), ticker("A", "11.00", 2), ticker("B", "2.25", 4)],
        "trades": [trade("A", 5, 2), trade("C", 7, 3), trade(None, 1, 3)],
        "rates": [rate("A", 1.5, 0), rate("A", 1.75, 4)],
    },
    {
        "positions": [position(1, "B", 10, 5), position(2, None, 20, 6), position(3, "B", -4, 7)],
        "tickers": [ticker("B", None, 6), ticker("A", "9.00", 8)],
        "trades": [trade("A", 6, 5), trade("B", 2, 6), trade("A", 9, 1)],
        "rates": [rate("A", 1.6, 3), rate("A", 2.5, 7)],
    },
    {
        "positions": [position(2, "A", 30, 9), position(1, "B", None, 10), position(3, "A", 5, 11)],
        "tickers": [ticker("B", "3.00", 15, "food", "drink"), ticker("A", "12.00", 16)],
        "trades": [trade("A", 8, 12), trade("B", 3, 20)],
        "rates": [rate("B", 0.5, 12), rate("A", 9.0, -70)],
    },
]
