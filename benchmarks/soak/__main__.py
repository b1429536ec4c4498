"""The soak: ``python -m benchmarks.soak``, or ``make soak``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.processes import Watch
from benchmarks.soak.checks import check
from benchmarks.soak.faults import Faults, kinds
from benchmarks.soak.load import CUSTOMERS, ITEMS
from benchmarks.soak.query import JOINED, done, over, samples_of, session
from benchmarks.soak.reading import changes_written, read_back
from benchmarks.soak.samples import Sample, flatness, read_samples
from tests.broker.kafka_broker import KafkaBroker
from tests.broker.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).resolve().parent.parent.parent
_PARTITIONS = 2
#: The query is given up when it ends so often without a micro-batch in between.
_STARTS_WITHOUT_PROGRESS = 5
#: And when it says nothing of a micro-batch for so long.
_PATIENCE_S = 900.0


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
        query = Kept("The query", work, work / "query.log")
        stack.callback(query.kill)
        program = (sys.executable, "-m", "benchmarks.soak.query", str(work), servers, str(options.jars))
        query.start(program)
        start_s = time.time()
        load = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak.load", servers, str(options.seconds), str(options.rate)],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(load.wait)
        stack.callback(load.kill)
        watch = Watch(os.getpid())
        faults = Faults(options.fault_every, start_s, kinds(broker, work / "cache"))
        watch.start()
        stack.callback(watch.stop)
        faults.start()
        stack.callback(faults.stop)
        restarts = _run(query, program, work, load, faults)
        watch.stop()
        behind_s, _ = load.communicate()
        if load.returncode:
            raise SystemExit("The load failed: nothing can be said of the query.")
        made = read_samples(samples_of(work))
        print(f"The load ended {behind_s.strip()} s late; the query was started again {restarts} times.")
        print("Reading the topic back ...", flush=True)
        spark = session(options.jars, work)
        stack.callback(spark.stop)
        changes = changes_written(spark, servers)
        records, repeated = read_back(spark, servers, work)
    verdict = check(records, options.seconds, options.rate, changes)
    _report(made, watch, faults)
    print(f"{repeated:,} repeats were left out. {verdict}")
    if options.plot:
        from benchmarks.soak.plot import plot

        plot(options.plot, made, watch.samples, faults.done, start_s)
        print(f"plot: {options.plot}")
    return 0 if verdict.ok else 1


def _make_topics(servers: str) -> None:
    topics = [NewTopic(topic, _PARTITIONS) for topic in (ITEMS, CUSTOMERS, JOINED)]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(topics).values():
        made.result(60)


def _run(query: Kept, program: Sequence[str], work: Path, load: subprocess.Popen[str], faults: Faults) -> int:
    """Start the query again whenever it ends, until all of the load is worked off; return how often.

    Executors of a driver that was killed may work on for a while, beside the next ones, and so may a driver whose query
    failed: a supervisor on another machine would not wait for them either.
    """
    restarts, in_vain, micro_batches = 0, 0, 0
    while True:
        while query.runs:
            time.sleep(0.5)
            faults.check()
            _check_progress(query, work)
            if load.poll() is not None and not over(work).exists():
                faults.stop()
                over(work).touch()
        if done(work).exists():
            return restarts
        before, micro_batches = micro_batches, len(read_samples(samples_of(work)))
        in_vain = in_vain + 1 if micro_batches == before else 0
        print(
            f"{(query.said().strip() or 'the query ended').splitlines()[-1][:200]}; it starts again",
            flush=True,
        )
        if in_vain == _STARTS_WITHOUT_PROGRESS:
            raise SystemExit(
                f"The query ended {in_vain} times without a micro-batch in between:\n{query.said()}"
            )
        query.stop()
        query.start(program)
        restarts += 1


def _check_progress(query: Kept, work: Path) -> None:
    """End the soak if the query hangs."""
    last_s = max(
        (path.stat().st_mtime for path in (samples_of(work), work / "query.log") if path.exists()),
        default=0.0,
    )
    if time.time() - last_s > _PATIENCE_S:
        raise SystemExit(f"The query has said nothing for {_PATIENCE_S:.0f} seconds:\n{query.said()}")


def _report(made: list[Sample], watch: Watch, faults: Faults) -> None:
    print(
        f"{len(made)} micro-batches, {sum(one.rows_in for one in made):,} changes in,"
        f" {sum(one.changes_out for one in made):,} out, as the query counted"
    )
    print(faults)
    figures = {
        "seconds of a micro-batch": [one.seconds for one in made],
        "rows in the state": [float(one.state_rows) for one in made if one.state_rows is not None],
        "bytes of the state": [float(one.state_bytes) for one in made if one.state_bytes is not None],
    }
    # A process that was killed starts again from nothing: of memory the peaks can be compared.
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
        description="A foreign-key join from topics to a topic under a steady load. Executors, the driver and the"
        " broker are killed meanwhile, and files of the cache deleted.",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=int, default=600, help="how long the load lasts; 600 by default")
    length.add_argument(
        "--hours", type=_seconds_of_hours, dest="seconds", metavar="H", help="the same in hours"
    )
    parser.add_argument("--rate", type=int, default=4_000, help="changes a second; 4,000 by default")
    parser.add_argument(
        "--fault-every", type=float, default=17.0, metavar="S", help="seconds between faults; 17 by default"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the run into an SVG file")
    parser.add_argument(
        "--jars", type=Path, default=_ROOT / ".jars", metavar="DIR", help="jars of `make jars`"
    )
    parser.add_argument(
        "--data", type=Path, default=_ROOT / "build" / "soak", metavar="DIR", help="where to work"
    )
    return parser


def _seconds_of_hours(text: str) -> int:
    return round(float(text) * 3600)


if __name__ == "__main__":
    sys.exit(main())
