"""The demo from beginning to end: start everything, put load on the database, kill parts on the way, compare."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from examples.database.driver import Driver
from examples.database.load import CONNECTIONS, Load
from examples.database.servers import Servers
from examples.database.states import Replay, compare, replay
from examples.demo.display import TextDisplay
from tablestream.errors import TablestreamError
from tests.broker.connect_worker import ConnectWorker
from tests.broker.kafka_broker import KafkaBroker

_LOOK_S = 0.5
_TOLD_EVERY_S = 10.0
#: How long a part stays away.
_AWAY_S = 2.0
_RESTARTS = 3
#: After which share of the commits what is killed; the load goes on while it is away.
KILLS = ((0.25, "connector"), (0.5, "broker"), (0.75, "query"))
_KILLED = {
    "connector": "Killed: the connector (kill -9).",
    "broker": "Killed: the Kafka broker (kill -9).",
    "query": "Killed: the query, with its JVM (kill -9).",
}


class DemoError(TablestreamError):
    """The demo cannot go on."""

    code = "TABLESTREAM_DEMO"


@dataclass(frozen=True)
class Options:
    """How much, and where.

    Parameters
    ----------
    output
        The directory for all that is written.
    jars
        Where ``make jars`` and ``make connector`` put what they fetch.
    commits
        How many transactions the load commits.
    per_s
        At most so many a second.
    seed
        Decides what they do.
    patience_s
        How long the query may take for what is there, after the snapshot and after the load.
    """

    output: Path
    jars: Path
    commits: int
    per_s: float
    seed: int
    patience_s: float


class Demo:
    """One run.

    Parameters
    ----------
    options
        How much, and where.
    display
        Whom to tell.
    """

    def __init__(self, options: Options, display: TextDisplay) -> None:
        self._options, self._display = options, display
        self._began, self._restarts, self._killed = time.monotonic(), 0, False

    def run(self) -> bool:
        """Run the demo; return whether all that was compared is the same.

        Raises
        ------
        TablestreamError
            Something does not start, or the query does not keep up.
        """
        options = self._options
        with ExitStack() as stack:
            self._say("Starting PostgreSQL with the databases shop and reports.")
            self._servers = stack.enter_context(Servers(options.jars, options.output / "servers"))
            self._load = stack.enter_context(Load(self._servers.shop, options.seed))
            self._load.fill()
            self._say(f"The shop has customers, products and {len(self._load.history.first)} orders.")
            self._driver = Driver(self._servers, options.jars, options.output / "query")
            stack.callback(self._driver.stop)
            self._start_all()
            self._put_load()
            self._wait("the last commit", self._driver.has_last_order)
            self._say("The table has the last commit. Stopping the query and comparing.")
            self._driver.stop()
            return self._judge()

    def _start_all(self) -> None:
        self._say("Starting the Kafka broker.")
        self._servers.broker.start()
        self._say("Starting Kafka Connect with Debezium's PostgreSQL connector.")
        self._servers.start_connector()
        self._say("Its slot is active. Starting the streaming query.")
        self._driver.start()
        first = self._load.history.first
        self._wait("the snapshot", lambda: self._driver.report() == first)
        self._say(f"The table order_details has all {len(first)} rows of the snapshot.")

    def _put_load(self) -> None:
        """Run the load, and kill the parts on the way."""
        options = self._options
        self._say(
            f"Load: {options.commits:,} transactions, at most {options.per_s:g} a second,"
            f" on {CONNECTIONS} connections; seed {options.seed}."
        )
        parts = [None, *(part for _, part in KILLS)]
        ends = [*(share for share, _ in KILLS), 1.0]
        for part, end in zip(parts, ends, strict=True):
            self._load_until(round(end * options.commits), part)
        self._load.finish()
        counts = self._load.counts
        undone = sum(count for done, count in counts.items() if done.startswith("rolled back"))
        self._say(
            f"The load is over: {counts['committed']:,} transactions committed,"
            f" {undone:,} transactions or savepoints rolled back."
        )

    def _load_until(self, commits: int, part: str | None) -> None:
        """Go on with the load in a thread; meanwhile a part is killed, and started again."""
        stop = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            loading = threads.submit(self._load.run, commits, self._options.per_s, stop)
            try:
                if part is not None:
                    self._kill(part)
                told = time.monotonic()
                while not loading.done():
                    self._tend()
                    if time.monotonic() - told > _TOLD_EVERY_S:
                        told = time.monotonic()
                        self._tell_progress()
                    time.sleep(_LOOK_S)
            finally:
                stop.set()
            loading.result()

    def _kill(self, part: str) -> None:
        """Kill a part, and start it again after a while."""
        parts: dict[str, ConnectWorker | KafkaBroker | Driver] = {
            "connector": self._servers.connector,
            "broker": self._servers.broker,
            "query": self._driver,
        }
        parts[part].kill()
        self._killed = True
        self._say(f"{_KILLED[part]} Commits so far: {self._load.history.commits:,}.")
        time.sleep(_AWAY_S)
        if part == "connector":
            self._servers.start_connector()
        else:
            parts[part].start()
        self._say(f"Started again: the {part}.")

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        """Wait until the query has come so far; give up after a while."""
        began = told = time.monotonic()
        patience_s = self._options.patience_s
        while not reached():
            now = time.monotonic()
            if now - began > patience_s:
                raise DemoError(
                    f"The table did not have {what} after {patience_s:.0f} seconds.",
                    hint=f"See the logs in {self._options.output}, or give --patience more seconds.",
                )
            self._tend()
            if now - told > _TOLD_EVERY_S:
                told = now
                self._say(f"  waiting for {what}, at most {patience_s - (now - began):.0f} more seconds")
            time.sleep(_LOOK_S)

    def _tend(self) -> None:
        """Start again what ended by itself, as an operator of the query would; not for ever."""
        failed = self._servers.connector.state == "FAILED"
        if not (failed or self._driver.ended):
            return
        what, log = ("connector", self._servers.connector.log) if failed else ("query", self._driver.log)
        self._restarts += 1
        # Before anything was killed, nothing may fail.
        if self._restarts > _RESTARTS or not self._killed:
            raise DemoError(
                f"The {what} has failed; see {log}.\n{'' if failed else self._driver.last_words()}".rstrip()
            )
        self._say(f"The {what} failed while a part was away. Starting it again.")
        if failed:
            self._servers.connector.kill()
            self._servers.start_connector()
        else:
            self._driver.kill()
            self._driver.start()

    def _tell_progress(self) -> None:
        rows = len(self._driver.report())
        self._say(f"  {self._load.history.commits:,} commits; the table has {rows} rows")

    def _judge(self) -> bool:
        """Compare the table with the database's own join, and every change with the commits."""
        expected, history = self._load.join(), self._load.history
        problems = compare(self._driver.report(), expected, "the table", "the database")
        replayed = replay(self._driver.changes(), history)
        self._tell_table(len(expected), problems)
        self._tell_states(replayed, len(history.steps))
        return not (problems or replayed.problems)

    def _tell_table(self, rows: int, problems: tuple[str, ...]) -> None:
        if problems:
            self._say("NOT EQUAL: the maintained join and the database's own SQL.")
            self._lines(problems)
        else:
            self._say(f"The maintained join and the database's own SQL: all {rows} rows are equal.")

    def _tell_states(self, replayed: Replay, steps: int) -> None:
        self._say(
            f"{replayed.changes:,} changes in {replayed.micro_batches:,} micro-batches went through"
            f" {replayed.states:,} of the {steps:,} states that the database had after commits that"
            " changed the join."
        )
        if replayed.problems:
            self._say("NOT the states of the database, one after the other:")
            self._lines(replayed.problems)
        else:
            self._say("Every state was one of the database's, in their order.")

    def _lines(self, lines: tuple[str, ...]) -> None:
        for line in lines:
            self._display.say(line)

    def _say(self, text: str) -> None:
        """Tell people, with the seconds since the start; lines have at most 80 columns."""
        at = f"{time.monotonic() - self._began:5.0f} s  "
        self._display.say(fill(text, 80, initial_indent=at, subsequent_indent=" " * len(at)))
