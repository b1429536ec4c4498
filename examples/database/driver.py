"""The streaming query in a process of its own, which can be killed and started again; and what it has written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import psycopg

from examples.database.load import LAST_ORDER
from examples.database.servers import Servers
from examples.database.shop import REPORT
from examples.database.states import COLUMNS, Change, State, row_of
from tests.broker.kept import Kept

_ROOT = Path(__file__).resolve().parent.parent.parent
_LINES, _WIDE = 5, 300
_MARKS = "SELECT max(micro_batch) FROM public.tablestream_marks"


class Driver:
    """The process of the query, and its outputs.

    Parameters
    ----------
    servers
        What it reads and writes.
    jars
        Where ``make jars`` put the jars.
    directory
        For its checkpoint, its changes and what it says.
    """

    def __init__(self, servers: Servers, jars: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._servers, self._directory = servers, directory.resolve()
        self._options = [
            *("--servers", servers.broker.bootstrap_servers),
            *("--reports", servers.reports),
            *("--directory", str(self._directory)),
            *("--jars", str(jars.resolve())),
        ]
        self._kept = Kept("The streaming query", _ROOT, self._directory / "query.log")

    @property
    def log(self) -> Path:
        """What the process said since its last start."""
        return self._kept.log

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._kept.started and not self._kept.runs

    def start(self) -> None:
        """Start the process; does not wait for the query."""
        search = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "examples.database.query", *self._options]
        self._kept.start(command, {"PYTHONPATH": search})

    def kill(self) -> None:
        """Kill the process, with its JVM, as a crash does."""
        self._kept.kill()

    def stop(self) -> None:
        """Ask the process to end, and wait."""
        self._kept.stop()

    def last_words(self) -> str:
        """What it said of its failure, without the query's plan, or else its last lines."""
        lines = self._kept.said().splitlines()
        wrong = [line for line in lines if "Exception" in line or "TABLESTREAM_" in line]
        return "\n".join(line[:_WIDE] for line in (wrong or lines)[-_LINES:])

    def report(self) -> State:
        """The maintained table, as it is now; empty if it does not exist yet."""
        with psycopg.connect(self._servers.reports) as connection:
            try:
                rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {REPORT}".encode()).fetchall()
            except psycopg.errors.UndefinedTable:
                return {}
        return {str(row[0]): row_of(row) for row in rows}

    def has_last_order(self) -> bool:
        """Whether the table has the order of the last commit, and the micro-batch that wrote it is over."""
        with psycopg.connect(self._servers.reports) as connection:
            query = f"SELECT 1 FROM {REPORT} WHERE order_id = {LAST_ORDER}"
            if not connection.execute(query.encode()).fetchall():
                return False
            ((micro_batch,),) = connection.execute(_MARKS).fetchall()
        return (self._directory / "checkpoint" / "commits" / str(micro_batch)).exists()

    def changes(self) -> list[Change]:
        """All changes that the query emitted, in their order."""
        files = self._directory / "changes" / "micro_batch=*" / "*.parquet"
        kept = pl.col("_order").struct.field("micro_batch")
        frame = pl.scan_parquet(files).sort("_order")
        rows = frame.select(kept, "_change_type", *COLUMNS).collect().iter_rows()
        return [
            Change(micro_batch, str(values[0]), None if kind == "delete" else row_of(values))
            for micro_batch, kind, *values in rows
        ]
