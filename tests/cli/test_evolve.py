"""``tablestream check``, ``evolve`` and ``drop-generations``."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException
from typer.testing import CliRunner, Result

from tablestream.cli import app, checkpoints
from tablestream.cli.exit_codes import ExitCode
from tablestream.planner.evolution import NOT_WHOLE, PartFate
from tablestream.spark import evolution
from tablestream.spark.evolution import Evolution
from tablestream.spark.state_tables import TableSize
from tests.cli.programs import DEADLINE_S, kill
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MODULE = """\
import os

import tablestream as ts

HERE = os.path.dirname(__file__)


def orders(spark):
    log = ts.from_files(spark, f"{HERE}/log", "json", "id int, sku string", max_files_per_trigger=1)
    return ts.table(log, "id", name="orders")


def outputs(spark):
    return [orders(spark).group_by("sku").count(name="per_sku").to(ts.to_files(f"{HERE}/out"))]


def changed(spark):
    return [orders(spark).group_by("id").count(name="per_sku").to(ts.to_files(f"{HERE}/out"))]


def more(spark):
    table = orders(spark)
    counted = table.group_by("sku").count(name="per_sku")
    return [counted.to(ts.to_files(f"{HERE}/out")), table.to(ts.to_files(f"{HERE}/all"))]
"""


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def imported(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module in a directory, under a name that no other test has: Python imports a name once."""
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(str(directory))
    (directory / f"{name}.py").write_text(MODULE)
    return importlib.import_module(name)


def test_the_commands_check_evolve_and_drop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = imported("living", tmp_path, monkeypatch)
    ChangeLog(tmp_path / "log", "").add([{"id": 1, "sku": "cup"}, {"id": 2, "sku": "cup"}])
    checkpoint = f"{tmp_path}/checkpoint"
    run(*living.outputs(spark), checkpoint=tmp_path / "checkpoint", evolvable=True)
    place = ["--checkpoint", checkpoint]
    assert called("check", "living:more").output == "living:more has a plan.\n"
    same = called("check", "living:outputs", *place)
    assert "has this plan" in same.output
    refused = called("evolve", "living:changed", *place, "--yes")
    assert refused.exit_code == 2
    assert "has the key" in refused.output.replace("\n", " ")
    lines = [
        json.loads(line) for line in called("check", "living:more", *place, "--json").output.splitlines()
    ]
    about_s = lines[0].pop("about_s")
    assert lines[0] == {"micro_batch": 0, "same_plan": False, "hint": ""}
    assert 15 < about_s < 15.1
    again = called("check", "living:more", *place, "--refill").output
    assert "It takes about 20 s, or longer: all records are read again." in again
    assert "It takes about 20 s." in called("check", "living:more", *place).output
    (kept,) = [one["why"] for one in lines if one.get("fate") == "kept"]
    assert re.fullmatch(r"the state has it whole: at most 2 rows, [\d.]+ k?B", kept)
    fates = {one["name"]: one["fate"] for one in lines[1:] if one["part"] == "output"}
    assert fates == {"per_sku": "silent", "orders": "new"}
    no_input = "Error INTERRUPTED: Nothing was done. --yes answers the question."
    for answer, said in (("n\n", "Nothing was done."), ("", no_input)):
        asked = CliRunner().invoke(app, ["evolve", "living:more", *place], input=answer)
        assert asked.exit_code == ExitCode.INTERRUPTED
        assert asked.stderr.partition("Go on? [y/N]:")[2].split() == said.split()
    assert not (tmp_path / "all").exists()
    assert "drop-generations" in called("evolve", "living:more", *place, "--yes").output
    assert spark.read.parquet(f"{tmp_path}/all").count() == 2
    assert called("drop-generations", checkpoint).output == "Removed 1 generation.\n"
    left = {one.name for one in (tmp_path / "checkpoint").iterdir() if not one.name.startswith(".")}
    assert left == {"tablestream-generation", "tablestream-generations"}
    run(*living.more(spark), checkpoint=tmp_path / "checkpoint")
    assert (
        "drop-generations"
        in called("evolve", "living:more", *place, "--shards", "3", "--partitions", "1", "--yes").output
    )
    assert "has this plan" in called("check", "living:more", *place, "--shards", "3").output


def test_the_time_is_estimated_from_the_rows_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    size = TableSize("orders", ("id",), is_versioned=False, rows=10_000_000, size_bytes=1)
    for name, value in {"_sizes": {"orders": size}, "_cores": 2, "has_context": True}.items():
        monkeypatch.setattr(evolution, name, lambda *_, value=value: value)
    parts = PartFate("source", "orders", "kept", ""), PartFate("source", "items", "new", "")
    nothing, tables = cast("SparkSession", None), {"orders": "orders"}
    found = evolution.sized(Evolution(parts, 1, is_same=False), nothing, "", tables)
    assert found.about_s == pytest.approx(79, rel=0.1)
    assert evolution.footer(found) == "It takes about 1 min."
    refused = replace(parts[1], fate="refused")
    found = evolution.sized(
        Evolution((*parts, refused), 1, is_same=False, hint="Do so."), nothing, "", tables
    )
    assert evolution.footer(found) == "It cannot evolve into this plan. Do so."


def test_logs_are_read_again_also_if_the_state_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: Any) -> Any:
        raise AnalysisException("damaged")

    for name, value in {"_cores": lambda _: 2, "has_context": lambda _: True, "summary": damaged}.items():
        monkeypatch.setattr(evolution, name, value)
    nothing = cast("SparkSession", None)
    again = Evolution((PartFate("source", "orders", "read again", ""),), 1, is_same=False)
    found = evolution.sized(again, nothing, "", {"orders": "orders"})
    assert evolution.footer(found) == "It takes about 20 s, or longer: all records are read again."
    kept = replace(again, parts=(replace(again.parts[0], fate="kept"),))
    with pytest.raises(AnalysisException):
        evolution.sized(kept, nothing, "", {"orders": "orders"})


def test_what_helps_is_named_where_it_helps() -> None:
    can, cannot = (PartFate("source", "orders", fate, "") for fate in ("kept", "refused"))
    not_whole = replace(cannot, why=f"{NOT_WHOLE}: it has none of its rows as they are")
    assert not evolution.hint_of([can], [cannot], refill=False)
    assert not evolution.hint_of([cannot], [cannot], refill=False)
    assert not evolution.hint_of([cannot], [cannot], refill=True)
    assert "Without refill=True" in evolution.hint_of([cannot], [can], refill=True)
    assert "evolvable" not in evolution.hint_of([cannot], [can], refill=False)
    refills = evolution.hint_of([not_whole], [can], refill=False)
    keeps = evolution.hint_of([not_whole], [cannot], refill=False)
    assert all(word in refills for word in ("refill=True", "evolvable=True", "materialize()"))
    assert "refill" not in keeps
    assert "evolvable=True" in keeps
    ways = [
        evolution.evolving(Evolution(parts, 1, is_same=False, hint=hint), "a place")
        for parts, hint in (((can,), ""), ((cannot,), refills), ((not_whole,), keeps))
    ]
    command = "`tablestream evolve module:object --checkpoint 'a place'"
    assert f"{command}`" in ways[0]
    assert 'on_plan_change="evolve"' in ways[0]
    assert f"{command} --refill`" in ways[1]
    assert "on_plan_change" not in ways[1]
    assert "evolve module" not in ways[2]
    assert f"source orders: {NOT_WHOLE}: it has none of its rows as they are. ts.check shows" in ways[2]
    options = {"shards=32": "--shards 32", "evolvable=True": "--evolvable"}
    more = evolution.evolving(Evolution((cannot,), 1, is_same=False, hint=refills), "there", options)
    assert "--checkpoint there --shards 32 --evolvable --refill`" in more
    assert "ts.evolve(..., shards=32, evolvable=True, refill=True)" in more
    many = evolution.evolving(Evolution((not_whole,) * 5, 1, is_same=False), "there")
    assert (many.count("source orders"), many.count("; 2 more.")) == (3, 1)
    assert "`tablestream check module:object --checkpoint 'a place'`" in ways[2]


def test_a_name_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    part = PartFate("source", "orders\x1b[2J", "removed", "the new plan does not read it")
    checkpoints._show(Evolution((part,), 1, is_same=False), as_json=False)
    assert r"orders\x1b[2J" in capsys.readouterr().out


@pytest.mark.timeout(DEADLINE_S)
def test_a_terminal_shows_the_tasks_and_ctrl_c_keeps_the_old_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = imported("stopped", tmp_path, monkeypatch)
    ChangeLog(tmp_path / "log", "").add([{"id": 1, "sku": "cup"}])
    checkpoint = tmp_path / "checkpoint"
    run(*living.outputs(spark), checkpoint=checkpoint, evolvable=True)
    begun = checkpoint / "tablestream-generations"
    terminal, screen = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "tablestream",
        "evolve",
        "stopped:more",
        "--checkpoint",
        str(checkpoint),
        "--yes",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=screen,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(screen)
        try:
            shown = b""
            while not (begun.exists() and re.search(rb"\d:\d\d:\d\d.* \d of \d+ tasks", shown)):
                shown += os.read(terminal, 1000)
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(OSError):  # it has closed its end
                while os.read(terminal, 1000):
                    pass
            assert process.wait(DEADLINE_S) == ExitCode.INTERRUPTED
        finally:
            kill(process)
    os.close(terminal)
    assert not list(begun.iterdir())
    ChangeLog(tmp_path / "log", "", files=1).add([{"id": 2, "sku": "cup"}])
    run(*living.outputs(spark), checkpoint=checkpoint)
    assert [row["count"] for row in spark.read.parquet(f"{tmp_path}/out").orderBy("_order").collect()] == [
        1,
        2,
    ]
