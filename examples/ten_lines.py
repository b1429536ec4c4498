"""A first program: change logs in files become a joined table, and every change of it comes out.

``python examples/ten_lines.py [DIRECTORY]`` writes two small logs, maintains their join until they are read,
and prints the plan and the changes. It needs Java 17 or newer.
Without a directory it works in a temporary one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tablestream as ts

POSITIONS = """
{"position_id": 1, "ticker": "ACME", "amount": 100, "op": "u", "at": "2024-01-02T09:00:00Z"}
{"position_id": 2, "ticker": "ACME", "amount": 50, "op": "u", "at": "2024-01-02T09:02:00Z"}
{"position_id": 2, "ticker": "BOLT", "amount": 60, "op": "u", "at": "2024-01-02T09:03:00Z"}
{"position_id": 1, "op": "d", "at": "2024-01-02T09:06:00Z"}
"""
TICKERS = """
{"ticker": "ACME", "price": 10.5, "at": "2024-01-02T09:01:00Z"}
{"ticker": "BOLT", "price": 4.0, "at": "2024-01-02T09:04:00Z"}
{"ticker": "ACME", "price": 11.0, "at": "2024-01-02T09:05:00Z"}
"""


def write_log(name: str, lines: str) -> None:
    """Write a change log of one file."""
    file = Path("logs", name, "0.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(lines.lstrip(), encoding="utf-8")


def main() -> None:
    """Write the logs, maintain the join, show its changes."""
    # Relative paths are Spark's from the directory in which it starts.
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="ten-lines-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        sys.exit(f"{directory} is not empty: give a directory of its own, or none.")
    os.chdir(directory)
    write_log("positions", POSITIONS)
    write_log("tickers", TICKERS)
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # the zone in which the README shows times

    # The README shows the lines from here to `awaitTermination`.
    position = "position_id int, ticker string, amount int, op string, at timestamp"
    log = ts.from_files(spark, "logs/positions", "json", position)
    positions = ts.table(log, "position_id", timestamp="at", apply_as_deletes="op = 'd'", name="positions")
    log = ts.from_files(spark, "logs/tickers", "json", "ticker string, price double, at timestamp")
    tickers = ts.table(log, "ticker", timestamp="at", name="tickers")
    holdings = positions.join(
        tickers,
        on="ticker",  # a foreign key: many positions, one ticker
        how="left",
        select=lambda p, t: [p.ticker, p.amount, t.price, (p.amount * t.price).alias("worth")],
    )
    outputs = holdings.to(ts.to_files("out/holdings"))
    query = ts.start(outputs, checkpoint="out/checkpoint", trigger={"availableNow": True})
    query.awaitTermination()

    holdings.explain()
    changes = spark.read.parquet("out/holdings").orderBy("_order")
    changes.drop("_order", "micro_batch").show(truncate=False)
    print(f"The changes lie in {Path('out/holdings').resolve()}")
    spark.stop()


if __name__ == "__main__":
    main()
