"""The query under test, as a program: ``python -m benchmarks.soak.query WORK SERVERS JARS``.

It goes on from the checkpoint in ``WORK``, adds a line to ``WORK/samples.jsonl`` for every micro-batch, and ends when
there is a file ``WORK/over`` and all is worked off; then it makes ``WORK/done``. Whoever kills it starts it again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import tablestream as ts
from benchmarks.soak.load import CUSTOMERS, ITEMS
from benchmarks.soak.samples import SampleFile
from benchmarks.spark_session import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

JOINED = "joined"
#: After a failure the next micro-batches are not larger than that.
_RECORDS_PER_TRIGGER = 150_000
_SETTINGS = {
    # Executors are killed for as long as the soak lasts.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "20",
    "spark.executor.memory": "1g",
    "spark.driver.memory": "2g",
}


def session(jars: Path, work: Path) -> SparkSession:
    """Start Spark with two executors, each a process of its own."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("soak")
    settings = SETTINGS | _SETTINGS
    settings["spark.jars"] = ",".join(map(str, sorted(jars.glob("*.jar"))))
    settings["spark.sql.warehouse.dir"] = str(work / "warehouse")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def over(work: Path) -> Path:
    """The file that says that the load is over."""
    return work / "over"


def done(work: Path) -> Path:
    """The file that says that all is worked off."""
    return work / "done"


def samples_of(work: Path) -> Path:
    """The file that has a line for every micro-batch."""
    return work / "samples.jsonl"


def main() -> int:
    """Run the query until the load is over; 1 if it ended before."""
    work, servers, jars = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    try:
        _run(session(jars, work), work, servers)
    except Exception as error:  # noqa: BLE001 - whoever started this reads why, and starts it again
        print(f"the query ended: {str(error).splitlines()[0]}", flush=True)
        return 1
    return 0


def _run(spark: SparkSession, work: Path, servers: str) -> None:
    samples = SampleFile(samples_of(work))
    spark.streams.addListener(ts.MetricsListener(samples))
    query = _start(spark, servers, work)
    while query.isActive and not over(work).exists():
        time.sleep(0.5)
    if not query.isActive:
        query.awaitTermination()
        raise RuntimeError("it was stopped")
    query.processAllAvailable()
    query.stop()
    progress = query.lastProgress
    if progress is not None:
        samples.wait_for(progress.batchId)
    done(work).touch()
    spark.stop()


def _start(spark: SparkSession, servers: str, work: Path) -> StreamingQuery:
    """Start the join, from where its checkpoint has it."""
    kafka: dict[str, Any] = {
        "bootstrap_servers": servers,
        "options": {"maxOffsetsPerTrigger": _RECORDS_PER_TRIGGER},
    }
    items, customers = (
        ts.table(ts.from_kafka(spark, topic, key="string", value=value, **kafka), "key", name=topic)
        for topic, value in ((ITEMS, "customer string, number bigint"), (CUSTOMERS, "name string"))
    )
    joined = items.join(customers, on="customer", how="left", name=JOINED)
    sink = ts.to_kafka(JOINED, bootstrap_servers=servers, key="string", value="json")
    return ts.start(joined.to(sink), checkpoint=work / "checkpoint", name=JOINED)


if __name__ == "__main__":
    sys.exit(main())
