"""The command line: help, exit codes, and errors as one message."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tablestream import cli
from tablestream.base.extras import install_hint
from tablestream.cli import app, checkpoints, main
from tablestream.cli.exit_codes import ExitCode
from tablestream.spark import local_spark
from tests.cli.programs import DEADLINE_S, program
from tests.cli.programs import done as program_done

COMMANDS = [
    "run",
    "explain",
    "diagram",
    "state",
    "verify",
    "lag",
    "check",
    "evolve",
    "drop-generations",
    "relocate",
    "demo",
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"tablestream {version('tablestream')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--help",), (*COMMANDS, "--version", "Exit codes: 0")),
        *(((name, "--help"), ("--json", "--debug")) for name in COMMANDS),
    ],
)
def test_help_names_every_choice(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, list(arguments))
    assert result.exit_code == 0
    assert all(word in result.output for word in words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("explain",),
    ],
)
def test_wrong_use_is_refused(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "why", "hint"),
    [
        (("explain",), "Missing argument 'MODULE:OBJECT|FILE.sql'.", "tablestream explain --help"),
        (("nothing",), "No such command 'nothing'.", "tablestream --help"),
        (("state", "out", "--limit", "0"), "Invalid value for '--limit': ", "tablestream state --help"),
        (("run", "a:b", "--twice"), "No such option: --twice", "tablestream run --help"),
    ],
)
def test_wrong_use_is_told_as_any_error(
    arguments: tuple[str, ...],
    why: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def errors(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["tablestream", *arguments, *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == ExitCode.COULD_NOT_RUN
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    assert errors().startswith(f"Error USAGE: {why}")
    assert errors().splitlines()[1:] == [f"{hint} has all options."]
    fact = json.loads(errors("--json"))
    assert (fact["event"], fact["code"], fact["hint"]) == ("error", "USAGE", f"{hint} has all options.")
    assert fact["message"].startswith(why)


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--help", 0), (None, 2)])
def test_the_program_exits_with_the_code_of_its_command(
    argument: str | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tablestream", *filter(None, [argument])])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    said = capsys.readouterr()
    assert "tablestream" in (said.out + said.err)
    assert "Error" not in (said.out + said.err)


def test_one_file_that_was_rewritten_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, said in ((1, "Rewrote 1 file: "), (2, "Rewrote 2 files: ")):
        monkeypatch.setattr(checkpoints, "relocate_checkpoint", lambda _, count=count: count)
        assert run("relocate", "out").stdout.startswith(said)


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plans_of_mine.py").write_text(
        "class Table:\n"
        "    def explain(self):\n"
        "        print('round 1\\n  join')\n"
        "    def diagram(self):\n"
        "        from tablestream.pictures.diagram import Diagram\n"
        "        return Diagram('flowchart LR', '<svg/>')\n"
        "table = Table()\n"
        "def make():\n"
        "    return Table()\n"
        "def strange(cluster):\n"
        "    return Table()\n"
        "def started(checkpoint):\n"
        "    return Table()\n"
        "def named(checkpoint='out/cp'):\n"
        "    raise ValueError(checkpoint)\n"
        "number = 7\n"
        "class Frame:\n"
        "    def explain(self):\n"
        "        print('== Physical Plan ==')\n"
        "class Query(Frame):\n"
        "    recentProgress = ()\n"
        "    def stop(self):\n"
        "        print('stopped')\n"
        "def start():\n"
        "    return Query()\n"
        "def forgets():\n"
        "    Query()\n"
        "def with_session(spark):\n"
        "    return Table()\n"
        "frame = Frame()\n"
    )
    (tmp_path / "plans_that_fail.py").write_text("import no_such_package_anywhere\n")
    (tmp_path / "plans_that_divide.py").write_text("def make():\n    return 1 / 0\n")
    (tmp_path / "plans_misspelt.py").write_text("def make(:\n")
    (tmp_path / "plans_that_exit.py").write_text("raise SystemExit('no data today')\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("target", ["plans_of_mine:table", "plans_of_mine:make"])
def test_explain_prints_the_plan_of_a_table_and_of_a_function_that_makes_one(target: str) -> None:
    result = run("explain", target)
    assert result.exit_code == 0
    assert result.stdout == "round 1\n  join\n"


@pytest.mark.usefixtures("plans")
def test_a_reader_who_has_enough_ends_a_command_in_silence() -> None:
    with program("-m", "tablestream", "explain", "plans_of_mine:table") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait(DEADLINE_S) == ExitCode.OK


@pytest.mark.usefixtures("plans")
def test_explain_for_programs() -> None:
    answer: dict[str, Any] = json.loads(run("explain", "plans_of_mine:table", "--json").stdout)
    assert answer == {"object": "plans_of_mine:table", "plan": "round 1\n  join"}


@pytest.mark.usefixtures("plans")
def test_diagram_prints_mermaid_or_writes_a_file() -> None:
    assert run("diagram", "plans_of_mine:make").stdout == "flowchart LR\n"
    assert run("diagram", "plans_of_mine:table", "--to", "plan.svg").stdout == "Wrote plan.svg.\n"
    assert Path("plan.svg").read_text(encoding="utf-8") == "<svg/>"
    answer = json.loads(run("diagram", "plans_of_mine:table", "--json").stdout)
    assert answer == {"object": "plans_of_mine:table", "mermaid": "flowchart LR"}
    for wrong in (("plans_of_mine:number",), ("plans_of_mine:table", "--to", "plan.png")):
        refused = run("diagram", *wrong)
        assert (refused.exit_code, "TABLESTREAM_ARGUMENT" in refused.output) == (ExitCode.COULD_NOT_RUN, True)


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("plans_of_mine", "TABLESTREAM_ARGUMENT: plans_of_mine does not name an object."),
        ("plans_of_mine:nothing", "TABLESTREAM_ARGUMENT: plans_of_mine has no nothing."),
        (
            "plans_of_mine:number",
            "TABLESTREAM_ARGUMENT: plans_of_mine:number is of type int; it has no plan.",
        ),
        ("no_such_module_here:table", "TABLESTREAM_ARGUMENT: There is no module no_such_module_here."),
        (
            "plans_that_fail:table",
            "ModuleNotFoundError: No module named 'no_such_package_anywhere' (plans_that_fail.py:1)",
        ),
        ("plans_that_divide:make", "ZeroDivisionError: division by zero (plans_that_divide.py:2)"),
        ("plans_misspelt:make", "SyntaxError: invalid syntax (plans_misspelt.py, line 1)"),
        ("plans_that_exit:make", "SystemExit: no data today (plans_that_exit.py:1)"),
        ("plans_of_mine:strange", "TABLESTREAM_ARGUMENT: plans_of_mine:strange needs an argument cluster"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_command_says_what_is_wrong_with_its_target(command: str, target: str, said: str) -> None:
    result = run(command, target)
    assert result.exit_code == ExitCode.COULD_NOT_RUN
    if command == "run":
        said = said.replace("has no plan", "cannot run")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("plans")
def test_a_missing_module_is_said_with_the_directory_of_the_search() -> None:
    _, hint = run("explain", "no_such_module_here:table").stderr.splitlines()
    assert hint == f"The search starts in the current directory, {Path.cwd()}."


@pytest.mark.usefixtures("plans")
def test_the_place_of_a_syntax_error_is_said_once() -> None:
    message, *_ = run("explain", "plans_misspelt:make").stderr.splitlines()
    assert message == "Error SyntaxError: invalid syntax (plans_misspelt.py, line 1)"


@pytest.mark.usefixtures("plans")
def test_a_function_keeps_its_own_default_if_the_user_gives_no_checkpoint() -> None:
    for command in ("run", "explain", "diagram"):
        assert "Error ValueError: out/cp (" in run(command, "plans_of_mine:named").stderr
    given = run("run", "plans_of_mine:named", "--checkpoint", "other")
    assert "Error ValueError: other (" in given.stderr


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("command", ["explain", "diagram"])
def test_a_plan_of_a_function_that_needs_a_checkpoint_cannot_be_shown(command: str) -> None:
    refused = run(command, "plans_of_mine:started")
    assert refused.exit_code == ExitCode.COULD_NOT_RUN
    assert "needs an argument checkpoint, which this command does not have.\n" in refused.stderr
    assert "This command starts no query and has no checkpoint." in refused.stderr


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("command", ["explain", "diagram"])
def test_a_function_that_starts_its_query_shows_no_plan_and_the_query_is_stopped(command: str) -> None:
    refused = run(command, "plans_of_mine:start")
    assert (refused.exit_code, refused.stdout) == (ExitCode.COULD_NOT_RUN, "stopped\n")
    assert refused.stderr.startswith(
        "Error TABLESTREAM_ARGUMENT: plans_of_mine:start started its query itself; this command only shows plans.\n"
    )
    of_spark = run(command, "plans_of_mine:frame")
    assert (of_spark.exit_code, of_spark.stdout) == (ExitCode.COULD_NOT_RUN, "")
    assert "plans_of_mine:frame is of type Frame; it has no plan." in of_spark.stderr


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("command", ["explain", "diagram", "run"])
def test_a_function_that_returns_nothing_is_told_to_return_what_the_command_takes(command: str) -> None:
    refused = run(command, "plans_of_mine:forgets")
    assert (refused.exit_code, refused.stdout) == (ExitCode.COULD_NOT_RUN, "")
    error, hint = refused.stderr.splitlines()
    assert error == "Error TABLESTREAM_ARGUMENT: plans_of_mine:forgets is None, or returns nothing."
    assert hint.startswith("End a function with a return. Name or return a table, a stream, ")


@pytest.mark.usefixtures("plans")
def test_a_checkpoint_that_the_started_query_does_not_have_is_refused() -> None:
    refused = run("run", "plans_of_mine:start", "--checkpoint", "out")
    assert (refused.exit_code, refused.stdout) == (ExitCode.COULD_NOT_RUN, "stopped\n")
    assert "plans_of_mine:start started its query itself, so --checkpoint comes too late.\n" in refused.stderr
    assert "Give the function a parameter checkpoint" in refused.stderr


@pytest.mark.usefixtures("plans")
def test_run_says_what_it_starts_before_a_local_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(*_: object, **__: object) -> None:
        raise OSError("no Spark today")

    monkeypatch.setattr(local_spark, "local_spark", no_spark)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    target, version = "plans_of_mine:with_session", pyspark.__version__
    said = run("run", target)
    starting, error, *_ = said.stderr.splitlines()
    assert starting == f"Starting {target} with a local Spark {version} (local[*]), which takes some seconds."
    assert (error.startswith("Error OSError: no Spark today"), said.stdout) == (True, "")
    told = run("run", target, "--json")
    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"event": "starting", "target": target, "spark": version, "master": "local[*]"}
    ]
    for short in ("explain", "diagram"):
        first, *_ = run(short, target, "--json").stderr.splitlines()
        assert first == f"Starting a local Spark {version} (local[*]), which takes some seconds."
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "a session of the user's")
    assert "Starting" not in run("run", target).output


@pytest.mark.usefixtures("plans")
def test_a_user_s_mistake_shows_no_traceback_in_a_process_of_its_own() -> None:
    command = ["-m", "tablestream", "run", "plans_that_divide:make", "--checkpoint", "out"]
    done = program_done(*command)
    assert done.returncode == ExitCode.COULD_NOT_RUN
    assert done.stderr.startswith("Error ZeroDivisionError: division by zero (plans_that_divide.py:2)\n")
    assert "Traceback" not in done.stderr
    shown = program_done(*command, "--debug")
    assert shown.returncode == ExitCode.COULD_NOT_RUN
    assert shown.stderr.startswith("Traceback")
    assert shown.stderr.endswith("Error ZeroDivisionError: division by zero (plans_that_divide.py:2)\n")


def test_the_exit_codes_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    codes = [str(code.value) for code in ExitCode]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == codes
    assert re.findall(r"^(\d+)  ", cli.__doc__ or "", re.MULTILINE) == codes
    assert re.findall(r"\b(\d+) ", app.info.epilog or "") == codes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing",), "TABLESTREAM_ARGUMENT: There is no directory missing ({here}/missing)."),
        ((".", "t", "--key", "{ticker: A}"), "TABLESTREAM_ARGUMENT: --key {ticker: A} is not a JSON object."),
        ((".", "t", "--key", "7"), "TABLESTREAM_ARGUMENT: --key 7 is not a JSON object."),
        ((".", "--key", "{}"), "TABLESTREAM_ARGUMENT: --key and --as-of need a table."),
        ((".", "--as-of", "2024-01-01"), "TABLESTREAM_ARGUMENT: --key and --as-of need a table."),
    ],
)
def test_state_refuses_what_cannot_be_right_before_spark_starts(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_spark, "local_spark", None)
    result = run("state", *arguments)
    assert result.exit_code == ExitCode.COULD_NOT_RUN
    assert said.replace("{here}", str(tmp_path)) in result.stderr


def test_run_refuses_a_target_of_changes_before_the_module_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("run", "missing:table", "--checkpoint", "out", "--to", "cement:out")
    assert result.exit_code == ExitCode.COULD_NOT_RUN
    assert "TABLESTREAM_ARGUMENT: --to cement:out names no target." in result.stderr


def test_state_refuses_a_directory_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    result = run("state", str(tmp_path))
    assert result.exit_code == ExitCode.COULD_NOT_RUN
    assert f"{tmp_path} cannot be read." in result.stderr


def test_the_module_runs_as_a_program() -> None:
    done = program_done("-m", "tablestream", "--version")
    assert done.returncode == ExitCode.OK
    assert done.stdout.startswith("tablestream ")


def test_without_typer_the_program_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import tablestream.cli"
    done = program_done("-c", code)
    assert done.returncode == 2
    assert done.stderr == f"The command line needs typer. {install_hint('cli')}\n"
    assert "Traceback" not in done.stderr
