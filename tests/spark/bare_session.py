"""What a new user writes: a session with no settings, two records, a join. Run by `test_bare_session`, and by itself.

``python bare_session.py (classic|connect) DIRECTORY [settings of Spark, name=value]`` notes in ``found.json`` what
it found. It imports nothing of the tests.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tablestream as ts

SCHEMAS = {"positions": "id int, ticker string", "tickers": "ticker string, price int"}
PARTITIONS = "spark.sql.shuffle.partitions"


def session(kind: str) -> SparkSession:
    """Start a session; one under Spark Connect brings its server, at a port of its own."""
    if kind == "classic":
        return SparkSession.builder.master("local[2]").getOrCreate()
    from pyspark.sql.connect.client import DefaultChannelBuilder

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.config("spark.connect.grpc.binding.port", str(port))
    return builder.remote("local[2]").getOrCreate()


def write(directory: Path, table: str, number: int, **record: object) -> None:
    """Write a change log's file of one record."""
    file = directory / table / f"{number}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record), encoding="utf-8")


def joined(spark: SparkSession, directory: Path) -> ts.Table:
    """Join positions with their tickers, with a Python function of the user's on the way."""
    shown = F.udf(lambda price: f"{price} EUR", "string")
    positions, tickers = (
        ts.table(ts.from_files(spark, directory / name, "json", schema), key, name=name)
        for (name, schema), key in zip(SCHEMAS.items(), ("id", "ticker"), strict=True)
    )
    # Key columns, however they are given, stay the key.
    priced = tickers.filter("price IS NOT NULL").select(
        "ticker", F.col("ticker"), shown("price").alias("price")
    )
    return positions.join(priced, on="ticker", how="left", name="joined")


def started(spark: SparkSession, directory: Path) -> ts.Table:
    """Start positions with the rows of a batch frame, which has no times."""
    log = ts.from_files(spark, directory / "positions", "json", f"{SCHEMAS['positions']}, at timestamp")
    rows = spark.createDataFrame([(1, "Z"), (3, "C")], SCHEMAS["positions"])
    at = F.coalesce(F.col("at"), F.lit("2024-01-01").cast("timestamp"))
    return ts.table(log, "id", columns="ticker", timestamp=at, name="started", bootstrap=rows)


def run(spark: SparkSession, directory: Path) -> None:
    """Run the query until it has read all there is."""
    work_off(joined(spark, directory).to(ts.to_files(directory / "out")), directory / "checkpoint")


def work_off(output: ts.OutputRequest, checkpoint: Path) -> None:
    """Run a query until it has read all there is."""
    query = ts.start(output, checkpoint=checkpoint)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def changes(spark: SparkSession, directory: Path) -> list[list[Any]]:
    """Read the changes in their order."""
    rows: DataFrame = spark.read.parquet(str(directory / "out")).orderBy("_order")
    return [[row.id, row.ticker, row.price] for row in rows.collect()]


def partitions(directory: Path) -> list[str]:
    """Read how many partitions each micro-batch of the query had, from Spark's log of offsets."""
    files = sorted((directory / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    logged = [json.loads(file.read_text(encoding="utf-8").splitlines()[1]) for file in files]
    return [one["conf"][PARTITIONS] for one in logged]


def refusal(table: ts.Table) -> str:
    """Say why the changes of a table cannot be had; empty if they can."""
    try:
        table.changes()
    except ts_errors().SessionSettingError as error:
        return str(error)
    return ""


def guarded(spark: SparkSession, directory: Path) -> dict[str, str]:
    """What the guards that read Spark's texts say of a plan each, which would give wrong results in silence."""
    log = ts.from_files(spark, directory / "positions", "json", SCHEMAS["positions"])
    rows = ts.table(log, "id", name="rows")
    static = spark.range(3).withColumnRenamed("id", "other")
    computed = rows.select((F.col("id") + 1), F.upper("ticker"))
    refused: dict[str, Callable[[], object]] = {
        "order mixed": lambda: ts.table(log.repartition(3), "id"),
        "order of a join": lambda: ts.table(log.join(static, F.expr("id = other")), "id"),
        "order of a subquery": lambda: ts.table(log.where("id IN (SELECT id FROM range(3))"), "id"),
        "session": lambda: rows.select(F.current_user().alias("x")),
        "clock": lambda: rows.select(F.expr("cast(concat('to', 'day') as date)").alias("x")),
        "star": lambda: rows.select(F.expr("struct(*)").alias("x")),
        "window": lambda: rows.select(F.expr("window(timestamp'1970-01-01', '1 day')").alias("x")),
    }
    found = {"texts": ", ".join(computed.columns)}
    for name, make in refused.items():
        try:
            make()
        except ts_errors().TablestreamError as error:
            found[name] = error.code
    return found


def ts_errors() -> Any:
    """The module of errors."""
    from tablestream import errors

    return errors


def ctrl_c_interrupts() -> bool:
    """Whether a signal to this process ends a call of the operating system that waits, as awaitTermination does.

    If not, the call ends when there is something to read, and Python raises `KeyboardInterrupt` only then.
    """
    reader, writer = os.pipe()
    interrupt = Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    too_late = Timer(20, os.write, (writer, b"too late"))
    interrupt.start()
    too_late.start()
    try:
        os.read(reader, 1)
    except KeyboardInterrupt:
        return too_late.is_alive()
    finally:
        too_late.cancel()
    return False


def main(kind: str, place: str, *settings: str) -> None:
    """Run the query twice, the second time in a session with other settings."""
    directory = Path(place)
    spark = session(kind)
    for name, value in (setting.split("=") for setting in settings):
        spark.conf.set(name, value)
    write(directory, "positions", 0, id=1, ticker="A")
    write(directory, "tickers", 0, ticker="A", price=10)
    before = dict(spark.conf.getAll)
    begun = time.monotonic()
    run(spark, directory)
    found: dict[str, Any] = {"seconds": time.monotonic() - begun}
    found["same settings"] = dict(spark.conf.getAll) == before
    state = ts.read_state(spark, directory / "checkpoint", "tickers_filter_select")
    found["state"] = [row.price for row in state.collect()]
    found["refusals"] = [refusal(joined(spark, directory))]
    assert ts.configure(ts.configure(spark)) is spark
    found["refusals"].append(refusal(joined(spark, directory)))
    found["set"] = {name: value for name, value in spark.conf.getAll.items() if before.get(name) != value}

    spark.conf.set(PARTITIONS, "5")
    write(directory, "positions", 1, id=2, ticker="A")
    run(spark, directory)
    found["partitions"] = partitions(directory)
    found["changes"] = changes(spark, directory)
    first = started(spark, directory).to(ts.to_files(directory / "started"))
    work_off(first, directory / "checkpoint of started")
    read = spark.read.parquet(str(directory / "started")).orderBy("_order").collect()
    found["started"] = [[row.id, row.ticker] for row in read]
    found["guards"] = guarded(spark, directory)
    found["Ctrl-C interrupts"] = ctrl_c_interrupts()
    (directory / "found.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
