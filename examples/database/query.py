"""The query that maintains the join: ``python -m examples.database.query --help``.

It reads the topics of the shop and writes the table ``order_details`` of another database. It goes on until Ctrl-C, or
until it is killed; started again with the same directory, it goes on from there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import tablestream as ts
from examples.database.servers import jars_for_spark
from examples.database.shop import REPORT, order_details
from tablestream.spark.local_spark import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SHARDS = 2
_LOOK_S = 0.2


def start(spark: SparkSession, servers: str, reports: str, directory: Path) -> StreamingQuery:
    """Start the query: into a table of a database, and every change into files."""
    details = order_details(spark, servers)
    return ts.start(
        details.to(ts.to_postgres(REPORT, reports, create=True), name="report"),
        details.to(ts.to_files(directory / "changes"), name="changes"),
        checkpoint=directory / "checkpoint",
        trigger={"processingTime": "1 second"},
        name="order_details",
        shards=_SHARDS,
    )


def follow(query: StreamingQuery) -> None:
    """Say what each micro-batch took in, until the query ends; raise what ended it."""
    told = -1
    while query.isActive:
        for progress in query.recentProgress:
            if progress.batchId > told:
                told = progress.batchId
                if progress.numInputRows:
                    print(f"micro-batch {told}: {progress.numInputRows} records", flush=True)
        time.sleep(_LOOK_S)
    error = query.exception()
    if error is not None:
        raise error


def main() -> None:
    """Read the command line, make a session, run the query."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", required=True, help="Kafka's address")
    parser.add_argument("--reports", required=True, help="how to connect to the database of the report")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("tablestream-report"),
        help="for the checkpoint and the changes",
    )
    parser.add_argument("--jars", type=Path, default=Path(".jars"), help="where `make jars` put the jars")
    given = parser.parse_args()
    jars_for_spark(given.jars)
    directory: Path = given.directory.resolve()
    # What a killed process left behind.
    shutil.rmtree(directory / "scratch", ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "query.pid").write_text(f"{os.getpid()}\n", encoding="ascii")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with local_spark(directory / "scratch" / str(os.getpid()), directory / "spark.log") as spark:
            query = start(spark, given.servers, given.reports, directory)
            print("The query runs; Ctrl-C ends it.", flush=True)
            try:
                follow(query)
            finally:
                query.stop()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
