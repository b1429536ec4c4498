"""Demos from beginning to end: write the logs, run the query, compare, show."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from examples.demo.change_logs import write_log
from examples.demo.pipeline import start
from examples.demo.progress import MicroBatchReport, follow
from examples.demo.verdict import Verdict, judge
from tablestream.errors import ArgumentError
from tablestream.spark.local_spark import local_spark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl
    from pyspark.sql import SparkSession

    from examples.demo.change_logs import Logs
    from examples.demo.display import Display
    from examples.demo.scenario import Scenario

_MARK = ".tablestream-demo"
_SAMPLE_ROWS = 8


@dataclass(frozen=True)
class DemoOptions:
    """What the user of demos can choose.

    Parameters
    ----------
    output
        The directory for all that is written; where several demos run, each has a directory of its name in it.
    micro_batches
        How many micro-batches the logs are read in.
    scale
        The share of the data to use.
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
        """Where the query writes its changes, each output in a directory of its name."""
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


def run_demos(scenarios: Sequence[Scenario], options: DemoOptions, display: Display) -> bool:
    """Run demos one after the other, on a Spark of this machine that ends with them.

    Parameters
    ----------
    scenarios
        What to show.
    options
        How, and where: each demo writes into a directory of its name.
    display
        Whom to tell.

    Returns
    -------
    bool
        Whether all that was compared is the same.
    """
    prepare(options)
    display.say("Starting Spark on this machine ...")
    with local_spark(options.scratch, options.log) as spark:
        verdicts = [
            run_demo(scenario, replace(options, output=options.output / scenario.name), display, spark)
            for scenario in scenarios
        ]
    return all(verdict.ok for verdict in verdicts)


def run_demo(scenario: Scenario, options: DemoOptions, display: Display, spark: SparkSession) -> Verdict:
    """Run a demo.

    Parameters
    ----------
    scenario
        What to show.
    options
        How, and where.
    display
        Whom to tell.
    spark
        The session to use.

    Returns
    -------
    Verdict
        Whether every output is what the batch computation gives, and all outputs are the same.
    """
    prepare(options)
    logs = scenario.logs(options.micro_batches, options.scale)
    _write_inputs(logs, options, display)
    outputs, reports = _run_query(scenario, spark, options, display)
    may_wait = None if scenario.held is None else scenario.held(options.inputs)
    verdict = judge(outputs, scenario.batch(options.inputs), scenario.key, may_wait)
    verdict = replace(verdict, counted=_counted(scenario, reports))
    verdict.table.write_parquet(options.table)
    if not options.keep:
        shutil.rmtree(options.checkpoint, ignore_errors=True)
    sample = _sample(verdict.table, scenario.shown)
    _tell(scenario, options, display, sample, verdict)
    facts = {"demo": scenario.name, **_facts(options, logs, reports, verdict)}
    display.summary({**facts, "sample": sample.to_dicts()})
    return verdict


def prepare(options: DemoOptions) -> None:
    """Make the output directory, and empty it where it is an earlier demo's; nothing else is ever removed.

    Raises
    ------
    ArgumentError
        The directory holds something that is not a demo's.
    """
    output = options.output
    if output.exists() and not output.is_dir():
        raise ArgumentError(f"{output.resolve()} is not a directory.", hint="Choose another --output.")
    if output.is_dir() and any(output.iterdir()) and not (output / _MARK).exists():
        raise ArgumentError(
            f"{output.resolve()} is not empty, and not an earlier demo's.",
            hint="Choose another --output, or empty it.",
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARK).touch()
    (output / ".gitignore").write_text("*\n")
    for old in (options.inputs, options.changes, options.checkpoint, options.scratch):
        shutil.rmtree(old, ignore_errors=True)
    for old in (options.table, options.log):
        old.unlink(missing_ok=True)


def _write_inputs(logs: Logs, options: DemoOptions, display: Display) -> None:
    display.say(f"Change logs in {options.inputs}, {options.micro_batches} steps:")
    for log in logs.all:
        files = write_log(log, options.inputs / log.spec.name, options.micro_batches)
        display.say(
            f"  {log.spec.name}: {log.rows.height:,} changes of {log.rows[log.spec.key].n_unique():,} keys, "
            f"{log.deletes:,} of them deletes; {len(files)} {log.spec.format} files"
        )
    for what, count in logs.counts.items():
        display.say(f"  {what}: {count:,}")


def _run_query(
    scenario: Scenario, spark: SparkSession, options: DemoOptions, display: Display
) -> tuple[list[Path], list[MicroBatchReport]]:
    """Run the query to its end; return where its outputs lie, and its reports."""
    tables = scenario.outputs(spark, options.inputs)
    outputs = [options.changes / name for name in tables]
    query = start(tables, options.changes, options.checkpoint, name=scenario.name)
    reports = []
    try:
        with display.progress(options.micro_batches) as progress:
            for event in follow(query, outputs):
                if isinstance(event, MicroBatchReport):
                    reports.append(event)
                    progress.micro_batch(event)
                else:
                    progress.tick(event)
    finally:
        query.stop()
    return outputs, reports


def _counted(scenario: Scenario, reports: Sequence[MicroBatchReport]) -> dict[str, int]:
    """Add up what the query counted, by what that means."""
    counts: Counter[str] = Counter()
    for report in reports:
        for observed in report.observed.values():
            counts.update({place: observed[place] for place in scenario.counted if place in observed})
    return {words: counts[place] for place, words in scenario.counted.items()}


def _tell(
    scenario: Scenario, options: DemoOptions, display: Display, sample: pl.DataFrame, verdict: Verdict
) -> None:
    display.rows(f"{sample.height} of {verdict.table.height:,} {scenario.rows}", sample)
    for line in verdict.lines():
        display.say(line)
    display.say(f"The joined table:   {options.table}")
    display.say(f"Its change log:     {options.changes}")
    display.say(f"The input logs:     {options.inputs}")
    if options.keep:
        display.say(f"The query's state:  {options.checkpoint}")


def _sample(table: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return a few rows, evenly over the table."""
    return table.gather_every(max(1, table.height // _SAMPLE_ROWS)).head(_SAMPLE_ROWS).select(columns)


def _facts(
    options: DemoOptions, logs: Logs, reports: list[MicroBatchReport], verdict: Verdict
) -> dict[str, Any]:
    elapsed_s = reports[-1].elapsed_s if reports else 0.0
    changes_out = sum(report.changes_out for report in reports)
    outputs = {"table": options.table, "changes": options.changes, "inputs": options.inputs}
    if options.keep:
        outputs["checkpoint"] = options.checkpoint
    return {
        **verdict.facts(),
        "micro_batches": len(reports),
        "rows_in": sum(report.rows_in for report in reports),
        "changes_out": changes_out,
        "elapsed_s": elapsed_s,
        "changes_per_s": round(changes_out / elapsed_s, 1) if elapsed_s else 0.0,
        "inputs": {log.spec.name: log.rows.height for log in logs.all},
        "counts": dict(logs.counts),
        "outputs": {name: str(path) for name, path in outputs.items()},
    }
