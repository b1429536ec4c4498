"""Which clients hold something on an exchange, how much, and whom to e-mail: what races by hand, and not here.

``python examples/holdings.py [DIRECTORY]`` writes three small change logs, maintains the mailing list from them in
eight micro-batches, prints its changes, and compares the end with a batch computation. It needs Java 17 or newer.
Without a directory it works in a temporary one. docs/tutorial-holdings.md explains it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf

# A line is a record: its table, u (upsert) or d (delete), its time, its key, its values.
# What stands under one title is read as one micro-batch.
STORY = """
# Positions come before their tickers, tickers before the clients
positions,u,09:00:00.000,1,ann,ACME,100
positions,u,09:00:00.001,2,ann,BOLT,50
positions,u,09:00:00.002,3,bob,ACME,70
tickers,u,09:00:01.000,ACME,XNYS,Acme Works,1949
tickers,u,09:00:01.001,BOLT,XNAS,Bolt and Sons,1987
tickers,u,09:00:01.002,CORE,XNAS,Core Energy,2003
clients,u,09:00:02.000,ann,Ann,Archer,ann@work.example
clients,u,09:00:02.001,bob,Bob,Baker,bob@mail.example

# A delete right behind its insert; and one with another insert right behind
positions,u,09:01:00.000,4,bob,CORE,10
positions,d,09:01:00.001,4,,,
positions,u,09:01:00.002,5,bob,CORE,20
positions,d,09:01:00.003,5,,,
positions,u,09:01:00.004,5,bob,CORE,30

# Position 1 moves from ACME to BOLT, position 2 from BOLT to ACME and back
positions,u,09:02:00.000,1,ann,BOLT,100
positions,u,09:02:00.001,2,ann,ACME,50
positions,u,09:02:00.002,2,ann,BOLT,50

# BOLT changes its exchange between the coming and the going of position 3
positions,u,09:03:00.000,3,bob,BOLT,70
tickers,u,09:03:00.001,BOLT,XLON,Bolt and Sons,1987
positions,u,09:03:00.002,3,bob,ACME,70

# Positions 1 and 3 are deleted in one micro-batch
positions,d,09:04:00.000,1,,,
positions,d,09:04:00.001,3,,,

# They are inserted again in the next, elsewhere
positions,u,09:05:00.000,1,ann,CORE,80
positions,u,09:05:00.001,3,bob,BOLT,75

# Ann gets another address
clients,u,09:06:00.000,ann,Ann,Archer,ann@home.example

# Many things in one millisecond, and some undone in the next
positions,u,09:07:00.000,1,bob,ACME,80
positions,u,09:07:00.000,2,ann,CORE,55
positions,d,09:07:00.000,5,,,
positions,u,09:07:00.000,6,ann,ACME,5
tickers,u,09:07:00.000,CORE,XLON,Core Energy,2003
tickers,d,09:07:00.000,ACME,,,
clients,u,09:07:00.000,bob,Bob,Baker,bob@home.example
positions,u,09:07:00.001,1,ann,CORE,80
tickers,u,09:07:00.001,ACME,XNAS,Acme Works,1949
positions,u,09:07:00.001,5,bob,CORE,35
"""

SCHEMAS = {
    "positions": "op string, at string, position_id int, client string, ticker string, amount int",
    "tickers": "op string, at string, ticker string, exchange string, name string, founded int",
    "clients": "op string, at string, client string, name string, surname string, email string",
}
KEYS = {"positions": "position_id", "tickers": "ticker", "clients": "client"}

ACTS = [act.strip().splitlines() for act in STORY.split("# ")[1:]]


def write_logs(directory: Path) -> None:
    """Write a file per table and micro-batch; files are read in the order of their modification times."""
    for number, (_, *records) in enumerate(ACTS):
        for name in SCHEMAS:
            file = directory / "logs" / name / f"{number}.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = [line.removeprefix(f"{name},") for line in records if line.startswith(f"{name},")]
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def read_log(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    """Read a log as a stream, a file per micro-batch."""
    return ts.from_files(spark, directory / "logs" / name, "csv", SCHEMAS[name], max_files_per_trigger=1)


def mailing_lists(logs: Mapping[str, DataFrame]) -> list[ts.Table]:
    """Return the mailing list twice: with a distributed join to the tickers, and with a global table."""
    at = F.to_timestamp(F.concat(F.lit("2024-01-02 "), "at"))
    how: dict[str, Any] = {"timestamp": at, "apply_as_deletes": "op = 'd'", "except_columns": ["op", "at"]}
    positions = ts.table(logs["positions"], "position_id", name="positions", **how)
    tickers = ts.table(logs["tickers"], "ticker", name="tickers", **how)
    everywhere = ts.global_table(logs["tickers"], "ticker", name="tickers everywhere", **how)
    clients = ts.table(logs["clients"], "client", name="clients", **how)

    def mailing_list(tickers: ts.Table) -> ts.Table:
        listed = positions.join(tickers, on="ticker", select=lambda p, t: [p.client, t.exchange, p.amount])
        held = listed.group_by("client", "exchange").agg(positions=tf.count(), amount=tf.sum("amount"))
        return held.join(
            clients, on="client", select=lambda h, c: [h.positions, h.amount, c.name, c.surname, c.email]
        )

    return [mailing_list(tickers), mailing_list(everywhere)]


def batch_computation(spark: SparkSession, directory: Path) -> DataFrame:
    """Compute the mailing list from the final tables, in plain SQL that knows no streams."""
    for name, key in KEYS.items():
        rows = spark.read.schema(SCHEMAS[name]).csv(str(directory / "logs" / name))
        latest_of(rows, [key], "at").where("op = 'u'").createOrReplaceTempView(name)
    return spark.sql("""
        SELECT client, exchange, count(*) AS positions, sum(amount) AS amount,
               first(c.name) AS name, first(surname) AS surname, first(email) AS email
        FROM positions JOIN tickers USING (ticker) JOIN clients AS c USING (client)
        GROUP BY client, exchange
    """)


def latest_of(rows: DataFrame, key: list[str], order: str) -> DataFrame:
    """Return the last row of each key."""
    return rows.groupBy(*key).agg(F.max_by(F.struct("*"), order).alias("last")).select("last.*")


def run(spark: SparkSession, directory: Path) -> bool:
    """Maintain the mailing list, show what it does, and say whether it comes to what it should."""
    write_logs(directory)
    outputs = [directory / "out" / name for name in ("distributed", "global")]
    lists = mailing_lists({name: read_log(spark, directory, name) for name in SCHEMAS})
    query = ts.start(
        *(each.to(ts.to_files(str(out)), name=out.name) for each, out in zip(lists, outputs, strict=True)),
        checkpoint=str(directory / "checkpoint"),
        trigger={"availableNow": True},
        shards=2,
    )
    query.awaitTermination()

    distributed, copied = (spark.read.parquet(str(out)).orderBy("_order") for out in outputs)
    shown = ("client", "exchange", "positions", "amount", "email", "_change_type")
    for number, (title, *_) in enumerate(ACTS):
        print(title)
        distributed.where(F.col("micro_batch") == number).select(*shown).show(truncate=False)

    by_key = [F.col("client"), F.col("exchange"), F.col("_order")]
    ours, theirs = (log.orderBy(by_key).drop("_order").collect() for log in (distributed, copied))
    living = latest_of(distributed, ["client", "exchange"], "_order").where("_change_type = 'upsert'")
    batch = batch_computation(spark, directory)
    end, expected = (sorted(each.select(batch.columns).collect()) for each in (living, batch))
    print(f"The list at the end: {len(end)} lines; the batch computation's are equal: {end == expected}")
    print(f"Its changes: {len(ours)}; those with the global table are equal: {ours == theirs}")
    return end == expected and ours == theirs


def main() -> None:
    """Run in a directory of its own."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="holdings-")).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        sys.exit(f"{directory} is not empty: give a directory of its own, or none.")
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    same = run(spark, directory)
    spark.stop()
    print(f"Logs and changes lie in {directory}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
