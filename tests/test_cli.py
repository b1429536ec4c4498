"""The command line: help, exit codes, and errors as one message."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from tablestream.cli import app

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"tablestream {version('tablestream')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--help",), ("explain", "state", "--version")),
        (("explain", "--help"), ("MODULE:OBJECT", "--json")),
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


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plans_of_mine.py").write_text(
        "class Table:\n"
        "    def explain(self):\n"
        "        print('round 1\\n  join')\n"
        "table = Table()\n"
        "def make():\n"
        "    return Table()\n"
        "number = 7\n"
    )
    (tmp_path / "plans_that_fail.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("target", ["plans_of_mine:table", "plans_of_mine:make"])
def test_explain_prints_the_plan_of_a_table_and_of_a_function_that_makes_one(target: str) -> None:
    result = run("explain", target)
    assert result.exit_code == 0
    assert result.stdout == "round 1\n  join\n"


@pytest.mark.usefixtures("plans")
def test_explain_for_programs() -> None:
    answer: dict[str, Any] = json.loads(run("explain", "plans_of_mine:table", "--json").stdout)
    assert answer == {"object": "plans_of_mine:table", "plan": "round 1\n  join"}


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("plans_of_mine", "TABLESTREAM_ARGUMENT: plans_of_mine does not name an object."),
        ("plans_of_mine:nothing", "TABLESTREAM_ARGUMENT: plans_of_mine has no nothing."),
        ("plans_of_mine:number", "TABLESTREAM_ARGUMENT: plans_of_mine:number is a int, which has no plan."),
        ("no_such_module_here:table", "TABLESTREAM_ARGUMENT: There is no module no_such_module_here."),
        ("plans_that_fail:table", "ModuleNotFoundError: No module named 'no_such_package_anywhere'"),
    ],
)
def test_explain_says_what_is_wrong_with_its_target(target: str, said: str) -> None:
    result = run("explain", target)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "tablestream", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tablestream ")


def test_without_typer_the_program_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import tablestream.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'tablestream[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
