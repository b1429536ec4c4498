"""``tablestream run``: tables, outputs and queries run, go on from a checkpoint, and end cleanly."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tablestream.cli import app
from tablestream.cli.exit_codes import ExitCode
from tests.cli.pipelines import Pipeline
from tests.cli.programs import DEADLINE_S, program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Pipeline]:
    monkeypatch.chdir(tmp_path)
    name = f"pipeline_of_{request.node.name}"
    yield Pipeline(tmp_path, name)
    sys.modules.pop(name, None)


def run(pipeline: Pipeline, thing: str, *options: str) -> Result:
    command = ["run", pipeline.named(thing), *options]
    return CliRunner().invoke(app, command)


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("spark")
def test_a_table_runs_on_the_console_and_into_files_and_goes_on_from_its_checkpoint(
    pipeline: Pipeline,
) -> None:
    options = ("--checkpoint", str(pipeline.directory / "checkpoint"), "--once")
    files = str(pipeline.directory / "changes")
    pipeline.add(1, "cup")
    pipeline.add(None, "pot")
    first = run(pipeline, "per_sku", *options, "--to", "console", "--to", f"parquet:{files}")
    assert first.exit_code == ExitCode.OK, first.output
    assert first.stdout.startswith("per_sku, micro-batch 0: 1 change\n")
    assert "cup" in first.stdout
    warned = [line for line in first.stderr.splitlines() if line.startswith("Warning: ")]
    lost, null_key = warned
    assert lost.startswith("Warning: orders: EVERY record of micro-batch 1 was lost (1 null-key).")
    assert null_key.startswith("Warning: orders: null-key, 1 record so far in this run. ")
    said = [line for line in first.stderr.splitlines() if line not in warned]
    assert max(map(len, [*first.stdout.splitlines(), *said])) <= 80
    assert said[0] == "The query runs; Ctrl-C stops it."
    assert said[1].startswith("batch 0: in 1 (")
    assert ", dropped 1" in said[2]
    assert said[-1] == "Ended after micro-batch 1."

    pipeline.add(3, "cup")
    second = run(pipeline, "per_sku", *options, "--to", "console", "--to", f"parquet:{files}", "--json")
    assert second.exit_code == ExitCode.OK, second.output
    told = events(second.stdout)
    assert [one["event"] for one in told] == ["started", "change", "micro_batch", "ended"]
    assert (told[1]["output"], told[1]["row"]["sku"], told[1]["row"]["count"]) == ("per_sku", "cup", 2)
    assert (told[2]["micro_batch"], told[2]["records_in"], told[2]["changes_out"]) == (
        2,
        1,
        2,
    )  # of two outputs
    assert second.stderr == ""
    written = pl.read_parquet(f"{files}/*/*.parquet", hive_partitioning=True)
    assert written.sort("micro_batch").select("micro_batch", "count").rows() == [(0, 1), (2, 2)]

    changed = run(pipeline, "orders", *options)
    assert changed.exit_code == ExitCode.COULD_NOT_RUN
    assert changed.stderr.startswith("Error TABLESTREAM_PLAN_CHANGED: The plan is not the one")
    assert "Traceback" not in changed.output


@pytest.mark.usefixtures("spark")
def test_outputs_and_queries_say_themselves_where_they_are_written(pipeline: Pipeline) -> None:
    pipeline.add(1, "cup")
    checkpoint = ("--checkpoint", str(pipeline.directory / "checkpoint"))
    for thing, options, why in (
        ("outputs", ("--to", "console", *checkpoint), "The outputs say themselves where they are written."),
        ("outputs", (), "The query needs a checkpoint"),
        ("query", (), "The query needs a checkpoint"),
        ("per_sku", ("--to", "cement:out", *checkpoint), "--to cement:out names no target."),
        ("per_sku", ("--to", "parquet", *checkpoint), "--to parquet names no target."),
        ("HERE", checkpoint, "is of type str; it cannot run."),
    ):
        refused = run(pipeline, thing, *options)
        assert refused.exit_code == ExitCode.COULD_NOT_RUN
        assert f"Error TABLESTREAM_ARGUMENT: {why}" in refused.stderr.replace(
            pipeline.named(thing) + " is", "is"
        )
    done = run(pipeline, "outputs", *checkpoint, "--once")
    assert done.exit_code == ExitCode.OK, done.output
    assert done.stdout == ""
    pipeline.add(2, "cup")
    followed = run(pipeline, "query", *checkpoint, "--json")
    assert followed.exit_code == ExitCode.OK, followed.output
    assert [one["event"] for one in events(followed.stdout)] == ["started", "micro_batch", "ended"]
    for option, *values in (
        ["--once"], ["--to", "json:elsewhere"], ["--on-drop", "fail"], ["--redact"], ["--shards", "2"],
        ["--evolvable"], ["--on-plan-change", "evolve"],
    ):  # fmt: skip
        late = run(pipeline, "query", *checkpoint, option, *values)
        assert late.exit_code == ExitCode.COULD_NOT_RUN
        assert f"so {option} comes too late" in late.stderr


@pytest.mark.usefixtures("spark")
def test_programs_get_every_change_unless_they_set_a_limit(pipeline: Pipeline) -> None:
    pipeline.log.add([{"id": n, "sku": "cup", "amount": n, "at": "2024-01-02T09:00:00Z"} for n in range(25)])

    def counted(*options: str) -> Counter[str]:
        name = f"checkpoint{len(list(pipeline.directory.glob('checkpoint*')))}"
        ended = run(pipeline, "orders", "--once", "--checkpoint", str(pipeline.directory / name), *options)
        assert ended.exit_code == ExitCode.OK, ended.output
        told.append(events(ended.stdout))
        return Counter(one["event"] for one in told[-1])

    told: list[list[dict[str, Any]]] = []
    assert (counted("--json")["change"], counted("--json", "--limit", "25")["omitted"]) == (25, 0)
    assert [one["row"]["id"] for one in told[0] if one["event"] == "change"] == list(range(25))
    some = counted("--json", "--limit", "22")
    assert (some["change"], some["omitted"]) == (22, 1)
    (omitted,) = [one for one in told[-1] if one["event"] == "omitted"]
    assert omitted == {"event": "omitted", "output": "orders", "micro_batch": 0, "changes": 3}
    people = run(
        pipeline, "orders", "--once", "--checkpoint", str(pipeline.directory / "checkpoint of people")
    )
    assert people.stdout.startswith("orders, micro-batch 0: the first 20 of 25 changes\n")


@pytest.mark.usefixtures("spark")
def test_a_query_that_fails_says_why_and_how_to_go_on(pipeline: Pipeline) -> None:
    pipeline.add(7, "cup")
    checkpoint = str(pipeline.directory / "checkpoint")
    failed = run(pipeline, "half", "--checkpoint", checkpoint, "--once")
    assert failed.exit_code == ExitCode.QUERY_FAILED
    error = failed.stderr[failed.stderr.index("Error ") :]
    assert "Error TABLESTREAM_EXPRESSION: half = cast(raise_error(" in error
    assert f"Go on with: tablestream run {pipeline.named('half')} --checkpoint {checkpoint} --once" in error
    assert "Traceback" not in failed.output
    assert "\tat " not in failed.output


@pytest.mark.usefixtures("spark")
def test_a_query_that_fails_in_java_says_the_innermost_cause(pipeline: Pipeline) -> None:
    directory = pipeline.directory / "csv"
    directory.mkdir()
    (directory / "1.csv").write_text("id,sum\n1,2\n")
    failed = run(pipeline, "headed", "--checkpoint", str(pipeline.directory / "checkpoint"), "--once")
    assert failed.exit_code == ExitCode.QUERY_FAILED
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("Error ")]
    assert line.startswith("Error STREAM_FAILED: ")
    assert "[FAILED_READ_FILE" in line
    assert "CSV header does not conform to the schema. Header: id, sum" in line
    assert "\tat " not in failed.output


def test_explain_knows_what_run_runs(pipeline: Pipeline, spark: SparkSession) -> None:
    for thing in ("per_sku", "outputs"):
        result = CliRunner().invoke(app, ["explain", pipeline.named(thing)])
        assert result.exit_code == ExitCode.OK, result.output
        assert "Round 1: shuffle by shard" in result.stdout
    before = {query.id for query in spark.streams.active}
    refused = CliRunner().invoke(app, ["explain", pipeline.named("started")])
    assert (refused.exit_code, refused.stdout) == (ExitCode.COULD_NOT_RUN, "")  # and no plan of Spark's
    error, hint = refused.stderr.splitlines()
    assert error.endswith(":started started its query itself; this command only shows plans.")
    assert hint.endswith(
        "Name or return a table, a stream, or outputs such as [table.to(sink)], as for ts.start."
    )
    left = [query for query in spark.streams.active if query.id not in before and query.isActive]
    assert left == []


def command_of(pipeline: Pipeline) -> list[str]:
    return ["-m", "tablestream", "run", pipeline.named("per_sku"), "--checkpoint", "out", "--json"]


def until_micro_batch(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Read events up to the first micro-batch that has ended."""
    told: list[dict[str, Any]] = []
    for line in lines:
        told.append(json.loads(line))
        if told[-1]["event"] == "micro_batch":
            break
    return told


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_ends_a_run_cleanly_the_same_command_goes_on_and_twice_ends_it_at_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """With a Spark of its own. First all processes of the terminal get the signal; at last no files are left."""
    pipeline.add(1, "cup")
    with program(*command_of(pipeline)) as running:
        assert running.stdout is not None
        told = until_micro_batch(running.stdout)
        os.killpg(running.pid, signal.SIGINT)
        rest, errors = running.communicate(timeout=DEADLINE_S)
    told += events(rest)
    happened = ["starting", "started", "change", "micro_batch", "stopping", "stopped"]
    assert [one["event"] for one in told] == happened, errors
    assert told[-1]["go_on"] == f"tablestream run {pipeline.named('per_sku')} --checkpoint out --json"
    assert (running.returncode, errors) == (ExitCode.OK, "")

    pipeline.add(2, "cup")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch), "TABLESTREAM_CACHE_DIR": str(tmp_path / "cache")}
    with program(*command_of(pipeline), variables=variables) as running:
        assert running.stdout is not None
        again = until_micro_batch(running.stdout)
        assert len(list(scratch.glob("tablestream-*"))) == 2  # a directory, and Spark's log
        os.kill(running.pid, signal.SIGSTOP)  # both signals are there when it goes on
        os.kill(running.pid, signal.SIGINT)
        os.kill(running.pid, signal.SIGTERM)
        os.kill(running.pid, signal.SIGCONT)
        running.communicate(timeout=DEADLINE_S)
    changes = [(one["micro_batch"], one["row"]["count"]) for one in again if one["event"] == "change"]
    assert changes == [(1, 2)]
    assert running.returncode == ExitCode.INTERRUPTED
    assert list(scratch.glob("tablestream-*")) == []
