"""The holdings demo through Kafka: topics in, a topic out, and a repeat on the way that nobody sees behind it.

``make demo-kafka``, or ``python -m examples.demo.holdings_kafka``. Three queries run one after the other, on a
broker of their own: the change logs become topics; the mailing list is kept from these and leaves to a topic; and that
topic is read again. Between the last two, the last micro-batch of the second is repeated, as after a crash: what it
wrote stands in the topic twice.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tablestream as ts
from examples.demo.change_logs import write_log
from examples.demo.compare import compare, table_of_changes
from examples.demo.display import TextDisplay
from examples.demo.holdings import SPECS, holding_logs
from examples.demo.holdings_list import HOLDINGS_LIST, mailing_list, mailing_list_by_polars
from examples.demo.pipeline import SHARDS, table
from examples.demo.run import DemoOptions, prepare
from tablestream.errors import TablestreamError
from tablestream.spark.local_spark import local_spark
from tests.broker.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.demo.change_logs import LogSpec
    from examples.demo.display import Display

PARTITIONS = 4
_MAILING = "mailing"
_RECORDS_PER_TRIGGER = 10_000


def run(spark: SparkSession, servers: str, options: DemoOptions, display: Display, prefix: str = "") -> bool:
    """Run the demo.

    Parameters
    ----------
    spark
        The session, with Spark's Kafka connector.
    servers
        The broker's address; topics that do not exist are made by it, or are there.
    options
        How much, and where.
    display
        Whom to tell.
    prefix
        Begins the names of the topics.

    Returns
    -------
    bool
        Whether the table read from the topic is what the batch computation gives, and repeats were dropped.
    """
    logs = holding_logs(options.micro_batches, scale=options.scale)
    for log in logs.all:
        write_log(log, options.inputs / log.spec.name, options.micro_batches)
    kafka: dict[str, Any] = {"bootstrap_servers": servers}
    topics = [
        table(spark, spec, options.inputs).to(ts.to_kafka(prefix + spec.name, **kafka), name=spec.name)
        for spec in SPECS
    ]
    counts = _finish(options, "topics", *topics)
    display.say(
        f"{counts['changes']:,} changes are in the topics {', '.join(prefix + spec.name for spec in SPECS)}."
    )
    mailing = mailing_list(*(_table(spark, spec, prefix, kafka) for spec in SPECS))
    to_mailing = mailing.to(ts.to_kafka(prefix + _MAILING, **kafka), name=_MAILING)
    counts = _finish(options, _MAILING, to_mailing)
    display.say(f"{counts['changes']:,} changes of the mailing list are in the topic {prefix}{_MAILING}.")
    _forget_the_last_micro_batch(options.checkpoint / _MAILING)
    again = _finish(options, _MAILING, to_mailing)["changes"]
    display.say(f"{again:,} of them, of the last micro-batch, are there twice now, as after a crash.")
    read_back = ts.from_kafka(
        spark,
        prefix + _MAILING,
        key="client string, exchange string",
        value="positions bigint, amount bigint, name string, surname string, email string",
        deduplicate=True,
        **kafka,
    )
    back = ts.table(read_back, HOLDINGS_LIST.key, name=_MAILING)
    counts = _finish(options, "read back", back.to(ts.to_files(options.changes / _MAILING)))
    repeated = counts[f"{_MAILING}/deduplicated: repeated"]
    display.say(f"{counts['changes']:,} changes are read back, and {repeated:,} repeats left out.")
    found = table_of_changes(options.changes / _MAILING, *HOLDINGS_LIST.key)
    found.write_parquet(options.table)
    result = compare(found, mailing_list_by_polars(options.inputs), *HOLDINGS_LIST.key)
    display.rows("The mailing list", found.head(5))
    display.say(
        f"The table read from the topic and the batch computation: {result.equal:,} rows are equal,"
        f" {result.differing:,} differ, {result.only_found + result.only_expected:,} are only in one of them."
    )
    return result.ok and repeated == again > 0


def _table(spark: SparkSession, spec: LogSpec, prefix: str, kafka: dict[str, Any]) -> ts.Table:
    """The table of a topic that `ts.to_kafka` wrote of a change log."""
    key, *columns = spec.ddl.split(", ")
    value = ", ".join(column for column in columns if column.split()[0] in spec.values)
    limit = {"maxOffsetsPerTrigger": _RECORDS_PER_TRIGGER}
    frame = ts.from_kafka(spark, prefix + spec.name, key=key, value=value, options=limit, **kafka)
    return ts.table(frame, spec.key, name=spec.name)


def _finish(options: DemoOptions, name: str, *outputs: Any) -> Counter[str]:
    """Run a query over all that there is; return what it counted."""
    checkpoint = options.checkpoint / name
    query = ts.start(
        *outputs, checkpoint=checkpoint, trigger={"availableNow": True}, name=name, shards=SHARDS
    )
    query.awaitTermination()
    counts: Counter[str] = Counter()
    for progress in query.recentProgress:
        counts.update(progress.observedMetrics["tablestream"].asDict())
    return counts


def _forget_the_last_micro_batch(checkpoint: Path) -> None:
    """Do as if a query had died when its last micro-batch was written, and not yet noted as done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)


def main() -> int:
    """Read the command line, start a broker and Spark, run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=0.2, help="the share of the data to use (0.2)")
    parser.add_argument("--output", type=Path, default=Path("tablestream-demo-kafka"), help="where to write")
    parser.add_argument("--jars", type=Path, default=Path(".jars"), help="where `make jars` put the jars")
    given = parser.parse_args()
    options, display = DemoOptions(given.output, micro_batches=2, scale=given.scale), TextDisplay()
    jars = ",".join(str(jar) for jar in sorted(given.jars.glob("*.jar")))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
    try:
        prepare(options)
        display.say("Starting Kafka and Spark on this machine ...")
        with (
            KafkaBroker(given.jars / "broker", settings={"num.partitions": str(PARTITIONS)}) as broker,
            local_spark(options.scratch, options.log) as spark,
        ):
            same = run(spark, broker.bootstrap_servers, options, display)
    except TablestreamError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
