"""``tablestream demo`` maintains a small join and shows its changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import typer
from pyspark.sql import DataFrame, SparkSession

from tablestream.cli.display import console, json_lines, polars_rows, print_rows
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.files.source import from_files
from tablestream.sources import table
from tablestream.spark.runner import start
from tablestream.tables import Table

_LOGS = {
    "positions": """\
{"id": 1, "ticker": "ACME", "amount": 100, "op": "u", "at": "2024-01-02T09:00:00Z"}
{"id": 2, "ticker": "ACME", "amount": 50, "op": "u", "at": "2024-01-02T09:02:00Z"}
{"id": 2, "ticker": "BOLT", "amount": 60, "op": "u", "at": "2024-01-02T09:03:00Z"}
{"id": 1, "op": "d", "at": "2024-01-02T09:06:00Z"}
""",
    "tickers": """\
{"ticker": "ACME", "price": 10.5, "at": "2024-01-02T09:01:00Z"}
{"ticker": "BOLT", "price": 4.0, "at": "2024-01-02T09:04:00Z"}
{"ticker": "ACME", "price": 11.0, "at": "2024-01-02T09:05:00Z"}
""",
}
_BEFORE = "Two changelogs: positions that open, move and close, and prices of tickers.\n"
_AFTER = """\
  id             the key: the join has one row for each position
  ticker, amount the position's, now; a position may move to another ticker
  price          the ticker's, now; empty until the ticker has one
  _change_type   upsert: this is the new row of the key; delete: it has no row
  _timestamp     the time of the later of the two records

Each change of either table gave the changes of the join that it causes, in
order. `tablestream run module:object` runs a table of your own. A clone of the
repository has large demos that check their results: make run.
"""


def demo(as_json: Json = False, debug: Debug = False) -> None:
    """Maintain the join of two small changelogs, and show its changes. It takes some seconds, and leaves nothing."""
    with (
        clear_errors(debug=debug, as_json=as_json),
        tempfile.TemporaryDirectory(prefix="tablestream-demo-") as place,
        sessions() as session,
    ):
        changes = _changes(session(), Path(place))
        if as_json:
            for line in json_lines(changes):
                typer.echo(line)
            return
        typer.echo(_BEFORE)
        rows = polars_rows(changes).with_columns(pl.col("_timestamp").dt.strftime("%H:%M:%S"))
        print_rows(console(), 'positions.join(tickers, on="ticker", how="left")', rows)
        typer.echo(_AFTER)


def _changes(spark: SparkSession, place: Path) -> DataFrame:
    """Run the join over the logs, and return its changes in order."""
    for name, lines in _LOGS.items():
        (place / name).mkdir()
        (place / name / "0.json").write_text(lines, encoding="utf-8")
    log = str(place / "changes")
    output = _join(spark, place).to(to_files(log))
    start(output, checkpoint=place / "checkpoint", trigger={"availableNow": True}).awaitTermination()
    return spark.read.parquet(log).orderBy("_order").drop("_order", "micro_batch")


def _join(spark: SparkSession, place: Path) -> Table:
    position = "id int, ticker string, amount int, op string, at timestamp"
    log = from_files(spark, str(place / "positions"), "json", position)
    positions = table(log, "id", timestamp="at", apply_as_deletes="op = 'd'", name="positions")
    log = from_files(spark, str(place / "tickers"), "json", "ticker string, price double, at timestamp")
    tickers = table(log, "ticker", timestamp="at", name="tickers")
    return positions.join(tickers, on="ticker", how="left", select=lambda p, t: [p.ticker, p.amount, t.price])
