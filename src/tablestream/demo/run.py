"""The demo from beginning to end: write the logs, run the query, compare, show."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tablestream.demo.change_logs import write_log
from tablestream.demo.compare import compare, joined_by_polars, table_of_changes
from tablestream.demo.flights import FLIGHT_PARTS, FLIGHTS, FlightLogs, flight_logs
from tablestream.demo.local_spark import local_spark
from tablestream.demo.pipeline import joined_flights, start
from tablestream.demo.progress import MicroBatchReport, follow
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import polars as pl
    from pyspark.sql import SparkSession

    from tablestream.demo.compare import Comparison
    from tablestream.demo.display import Display

_MARK = ".tablestream-demo"
_SAMPLE_ROWS = 8


@dataclass(frozen=True)
class DemoOptions:
    """What the user of the demo can choose.

    Parameters
    ----------
    output
        The directory for all that is written.
    micro_batches
        How many micro-batches the logs are read in.
    scale
        The share of the flights to use.
    keep
        Whether the checkpoint, with the query's state, stays.
    """

    output: Path
    micro_batches: int = 6
    scale: float = 1.0
    keep: bool = False

    @property
    def inputs(self) -> Path:
        """Where the input change logs lie."""
        return self.output / "input"

    @property
    def changes(self) -> Path:
        """Where the query writes its changes."""
        return self.output / "changes"

    @property
    def table(self) -> Path:
        """The joined table at the end."""
        return self.output / "joined.parquet"

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.output / "checkpoint"

    @property
    def scratch(self) -> Path:
        """What Spark needs only while it runs."""
        return self.output / "scratch"

    @property
    def log(self) -> Path:
        """What Spark's processes said."""
        return self.output / "spark.log"


def run_flights(options: DemoOptions, display: Display, spark: SparkSession | None = None) -> Comparison:
    """Run the demo of the flights.

    Parameters
    ----------
    options
        What to run, and where.
    display
        Whom to tell.
    spark
        A session to use; without it a local one is started, and stopped at the end.

    Returns
    -------
    Comparison
        Whether the maintained table is what a batch join gives.
    """
    prepare(options)
    logs = flight_logs(options.micro_batches, scale=options.scale)
    _write_inputs(logs, options, display)
    session: AbstractContextManager[SparkSession] = (
        local_spark(options.scratch, options.log) if spark is None else contextlib.nullcontext(spark)
    )
    if spark is None:
        display.say("Starting Spark on this machine ...")
    with session as running:
        reports = _run_query(running, options, display)
    found = table_of_changes(options.changes, FLIGHTS.key)
    found.write_parquet(options.table)
    result = compare(found, joined_by_polars(options.inputs), FLIGHTS.key)
    if not options.keep:
        shutil.rmtree(options.checkpoint, ignore_errors=True)
    _tell(options, display, found, result)
    display.summary(_facts(options, logs, reports, found, result))
    return result


def prepare(options: DemoOptions) -> None:
    """Make the output directory, and empty it where it is an earlier demo's; nothing else is ever removed.

    Raises
    ------
    ArgumentError
        The directory holds something that is not a demo's.
    """
    output = options.output
    if output.exists() and not output.is_dir():
        raise ArgumentError(f"{output} is not a directory.", hint="Choose another --output.")
    if output.is_dir() and any(output.iterdir()) and not (output / _MARK).exists():
        raise ArgumentError(
            f"{output} is not empty, and not an earlier demo's.", hint="Choose another --output, or empty it."
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARK).touch()
    (output / ".gitignore").write_text("*\n")
    for old in (options.inputs, options.changes, options.checkpoint, options.scratch):
        shutil.rmtree(old, ignore_errors=True)
    for old in (options.table, options.log):
        old.unlink(missing_ok=True)


def _write_inputs(logs: FlightLogs, options: DemoOptions, display: Display) -> None:
    display.say(f"Change logs in {options.inputs}, {options.micro_batches} steps:")
    for log in logs.all:
        parts = FLIGHT_PARTS if log.spec is FLIGHTS else 1
        files = write_log(log, options.inputs / log.spec.name, options.micro_batches, parts)
        display.say(
            f"  {log.spec.name}: {log.rows.height:,} changes of {log.rows[log.spec.key].n_unique():,} keys, "
            f"{log.deletes:,} of them deletes; {len(files)} {log.spec.format} files"
        )
    planes, airlines, airports = (logs.flights.moves(column) for column in ("tailnum", "carrier", "dest"))
    display.say(
        f"  flights that move: {planes:,} to another plane, {airlines:,} to another airline, "
        f"{airports:,} to another destination"
    )


def _run_query(spark: SparkSession, options: DemoOptions, display: Display) -> list[MicroBatchReport]:
    query = start(joined_flights(spark, options.inputs), options.changes, options.checkpoint)
    reports = []
    try:
        with display.progress(options.micro_batches) as progress:
            for event in follow(query, options.changes):
                if isinstance(event, MicroBatchReport):
                    reports.append(event)
                    progress.micro_batch(event)
                else:
                    progress.tick(event)
    finally:
        query.stop()
    return reports


def _tell(options: DemoOptions, display: Display, found: pl.DataFrame, result: Comparison) -> None:
    display.rows(f"{_SAMPLE_ROWS} of {found.height:,} joined flights", _sample(found))
    if result.ok:
        display.say(f"Compared with a batch join of the final tables: equal, all {result.equal:,} rows.")
    else:
        display.say(
            f"Compared with a batch join of the final tables: NOT EQUAL. {result.equal:,} rows are equal, "
            f"{result.differing:,} differ, {result.only_found:,} are only in the maintained table, "
            f"{result.only_expected:,} only in the batch join. The first of them:"
        )
        for line in result.examples:
            display.say(f"  {line}")
    display.say(f"The joined table:   {options.table}")
    display.say(f"Its change log:     {options.changes}")
    display.say(f"The input logs:     {options.inputs}")
    if options.keep:
        display.say(f"The query's state:  {options.checkpoint}")


def _sample(table: pl.DataFrame) -> pl.DataFrame:
    """Return a few rows, evenly over the year, with the columns that say most."""
    shown = table.gather_every(max(1, table.height // _SAMPLE_ROWS)).head(_SAMPLE_ROWS)
    columns = (
        "flight_id",
        "airline",
        "flight",
        "tailnum",
        "manufacturer",
        "model",
        "origin_name",
        "dest_name",
    )
    return shown.select(*columns, "arr_delay")


def _facts(
    options: DemoOptions,
    logs: FlightLogs,
    reports: list[MicroBatchReport],
    found: pl.DataFrame,
    result: Comparison,
) -> dict[str, Any]:
    elapsed_s = reports[-1].elapsed_s if reports else 0.0
    changes_out = sum(report.changes_out for report in reports)
    outputs = {"table": options.table, "changes": options.changes, "inputs": options.inputs}
    if options.keep:
        outputs["checkpoint"] = options.checkpoint
    return {
        "ok": result.ok,
        "comparison": {name: value for name, value in asdict(result).items() if name != "examples"},
        "differences": list(result.examples),
        "micro_batches": len(reports),
        "rows_in": sum(report.rows_in for report in reports),
        "changes_out": changes_out,
        "elapsed_s": elapsed_s,
        "changes_per_s": round(changes_out / elapsed_s, 1) if elapsed_s else 0.0,
        "inputs": {log.spec.name: log.rows.height for log in logs.all},
        "outputs": {name: str(path) for name, path in outputs.items()},
        "sample": _sample(found).to_dicts(),
    }
