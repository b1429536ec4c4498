"""The soak: ``python -m benchmarks.soak``, or ``make soak``."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

import tablestream as ts
from benchmarks.processes import Watch, descendants
from benchmarks.soak.checks import check
from benchmarks.soak.load import CUSTOMERS, ITEMS
from benchmarks.soak.query import JOINED, changes_written, read_back, session, start
from benchmarks.soak.samples import Sample, Samples, flatness
from tests.broker.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parent.parent.parent
_PARTITIONS = 2
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_RESTARTS = 20


class Killer(threading.Thread):
    """Kills an executor every so many seconds."""

    def __init__(self, every_s: float, start_s: float) -> None:
        super().__init__(name="killer", daemon=True)
        self.kills_s: list[float] = []
        self._every_s, self._start_s = every_s, start_s
        self._stopped, self._rng = threading.Event(), random.Random(7)

    def run(self) -> None:
        """Kill until it is stopped."""
        while not self._stopped.wait(self._every_s):
            executors = [pid for pid in descendants(os.getpid()) if _EXECUTOR in _command(pid)]
            if executors:
                with suppress(ProcessLookupError):
                    os.kill(self._rng.choice(executors), signal.SIGKILL)
                    self.kills_s.append(time.time() - self._start_s)
                    print(f"{self.kills_s[-1]:6.0f} s: an executor is killed", flush=True)

    def stop(self) -> None:
        """Kill no more."""
        self._stopped.set()
        self.join()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> int:
    """Run the soak; 0 if nothing is lost, doubled, moved or wrong."""
    options = _parser().parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="soak-", dir=options.data))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Workers take these from the executors' environment.
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "src"))),
        "PYSPARK_PYTHON": sys.executable,
        "POLARS_MAX_THREADS": "1",
        "SPARK_LOCAL_DIRS": str(work / "spark"),
        "SPARK_WORKER_DIR": str(work / "workers"),
        "TABLESTREAM_CACHE_DIR": str(work / "cache"),
    }
    try:
        return _soak(options, work)
    except KeyboardInterrupt:
        print("interrupted; its processes have ended")
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _soak(options: argparse.Namespace, work: Path) -> int:
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(options.jars / "broker", work / "broker"))
        servers = broker.bootstrap_servers
        _make_topics(servers)
        spark = session(options.jars, work)
        stack.callback(spark.stop)
        start_s = time.time()
        samples = Samples(start_s)
        spark.streams.addListener(ts.MetricsListener(samples))
        load = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak.load", servers, str(options.seconds), str(options.rate)],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(load.kill)
        watch, killer = Watch(os.getpid()), Killer(options.kill_every, start_s)
        watch.start()
        stack.callback(watch.stop)
        killer.start()
        stack.callback(killer.stop)
        restarts, last = _run(spark, servers, work, load, killer)
        samples.wait_for(last)
        watch.stop()
        behind_s, _ = load.communicate()
        if load.returncode:
            raise SystemExit("The load failed: nothing can be said of the query.")
        made = samples.all
        print(f"The load ended {behind_s.strip()} s late; the query was restarted {restarts} times.")
        print("Reading the topic back ...", flush=True)
        changes = changes_written(spark, servers)
        records, repeated = read_back(spark, servers, work)
    verdict = check(records, options.seconds, options.rate, changes)
    _report(made, watch, killer)
    print(f"{repeated:,} repeats were left out. {verdict}")
    if options.plot:
        from benchmarks.soak.plot import plot

        plot(options.plot, made, watch.samples, killer.kills_s, start_s)
        print(f"plot: {options.plot}")
    return 0 if verdict.ok else 1


def _make_topics(servers: str) -> None:
    topics = [NewTopic(topic, _PARTITIONS) for topic in (ITEMS, CUSTOMERS, JOINED)]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(topics).values():
        made.result(60)


def _run(
    spark: SparkSession, servers: str, work: Path, load: subprocess.Popen[str], killer: Killer
) -> tuple[int, int]:
    """Run the query, and start it again when it fails, until all of the load is worked off.

    Returns
    -------
    int, int
        How often it was started again, and the number of its last micro-batch.
    """
    restarts = 0
    while True:
        try:
            query = start(spark, servers, work)
            while load.poll() is None and query.isActive:
                time.sleep(0.5)
            if query.isActive:
                killer.stop()
                query.processAllAvailable()
                query.stop()
                progress = query.lastProgress
                return restarts, 0 if progress is None else progress.batchId
            query.awaitTermination()
        except Exception as error:
            restarts += 1
            print(f"the query ended: {str(error).splitlines()[0]}", flush=True)
            if restarts > _RESTARTS:
                raise


def _report(made: list[Sample], watch: Watch, killer: Killer) -> None:
    print(
        f"{len(made)} micro-batches, {sum(one.rows_in for one in made):,} changes in,"
        f" {sum(one.changes_out for one in made):,} out, as the query counted;"
        f" {len(killer.kills_s)} executors killed"
    )
    figures = {
        "seconds of a micro-batch": [one.seconds for one in made],
        "rows in the state": [float(one.state_rows) for one in made if one.state_rows is not None],
        "bytes of the state": [float(one.state_bytes) for one in made if one.state_bytes is not None],
    }
    # An executor that was killed starts again from nothing: of memory the peaks can be compared.
    memory = {
        "private memory of the Python workers, MiB": [one.workers_private_mib for one in watch.samples],
        "memory of the JVMs, MiB": [one.jvm_mib for one in watch.samples],
    }
    for kind, of, compared in (("median", median, figures), ("peak", max, memory)):
        for name, values in compared.items():
            flat = flatness(values, of)
            if flat is not None:
                print(f"{name:44} {kind} {of(values):16,.1f}   last third / second {flat:5.2f}   flat is 1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description="A foreign-key join from topics to a topic under a steady load, while executors are killed.",
    )
    parser.add_argument("--seconds", type=int, default=600, help="how long the load lasts; 600 by default")
    parser.add_argument("--rate", type=int, default=10_000, help="changes a second; 10,000 by default")
    parser.add_argument(
        "--kill-every", type=float, default=60.0, metavar="S", help="seconds between kills; 60 by default"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the run into an SVG file")
    parser.add_argument(
        "--jars", type=Path, default=_ROOT / ".jars", metavar="DIR", help="jars of `make jars`"
    )
    parser.add_argument(
        "--data", type=Path, default=_ROOT / "build" / "soak", metavar="DIR", help="where to work"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
