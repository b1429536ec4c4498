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
from tablestream.demo import run as demo_run
from tablestream.demo.scenarios import SCENARIOS
from tablestream.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tablestream.demo.run import DemoOptions
    from tablestream.demo.scenario import Scenario


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def demos_that(
    monkeypatch: pytest.MonkeyPatch, outcome: bool | BaseException
) -> list[tuple[list[str], DemoOptions]]:
    """Put `outcome` in the place of all demos; return a list that gets their names and options."""
    called: list[tuple[list[str], DemoOptions]] = []

    def run_demos(scenarios: Sequence[Scenario], options: DemoOptions, _: object) -> bool:
        called.append(([scenario.name for scenario in scenarios], options))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(demo_run, "run_demos", run_demos)
    return called


def test_the_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"tablestream {version('tablestream')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--help",), ("demo", "explain", "--version")),
        (
            ("demo", "--help"),
            (*SCENARIOS, "--micro-batches", "--scale", "--output", "--json", "--keep", "--debug"),
        ),
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
        ("demo", "trains"),
        ("demo", "flights", "trains"),
        ("demo", "--micro-batches", "0"),
        ("demo", "--scale", "2"),
        ("nothing",),
        ("explain",),
    ],
)
def test_wrong_use_is_refused(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("names", [*([name] for name in SCENARIOS), ["weather", "holdings"]], ids=" ".join)
def test_equal_comparisons_are_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    called = demos_that(monkeypatch, True)
    sizes = ("--micro-batches", "3", "--scale", "0.5")
    assert run("demo", *names, *sizes, "--output", str(tmp_path), "--keep").exit_code == 0
    assert called == [(names, demo_run.DemoOptions(tmp_path, micro_batches=3, scale=0.5, keep=True))]


def test_without_a_name_flights_and_weather_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    called = demos_that(monkeypatch, True)
    assert run("demo").exit_code == 0
    assert [names for names, _ in called] == [["flights", "weather"]]


def test_a_demo_named_twice_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called = demos_that(monkeypatch, True)
    assert run("demo", "holdings", "flights", "holdings").exit_code == 0
    assert [names for names, _ in called] == [["holdings", "flights"]]


def test_a_difference_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, False)
    assert run("demo").exit_code == 1


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, KeyboardInterrupt())
    result = run("demo")
    assert result.exit_code == 130
    assert "Stopped." in result.output
    assert "Traceback" not in result.output


def test_an_error_is_one_message_with_code_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, PlanError("The cup is empty.", hint="Fill it."))
    result = run("demo")
    assert result.exit_code == 2
    assert result.stderr == "Error TABLESTREAM_PLAN: The cup is empty.\nFill it.\n"
    assert result.stdout == ""


def test_an_error_for_programs_is_a_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, PlanError("The cup is empty.", hint="Fill it."))
    result = run("demo", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr) == {
        "event": "error",
        "code": "TABLESTREAM_PLAN",
        "message": "The cup is empty.",
        "hint": "Fill it.",
    }


def test_an_error_raised_in_a_worker_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, RuntimeError("Job aborted\n  E: [TABLESTREAM_ORDER] Row 7 has no place.\n  at x"))
    assert "Error TABLESTREAM_ORDER: Row 7 has no place.\n" in run("demo").stderr


def test_any_other_error_is_named_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, OSError("No space left on device\nmore"))
    result = run("demo")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error OSError: No space left on device\n")
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, OSError("No space left on device"))
    result = run("demo", "--debug")
    assert isinstance(result.exception, OSError)
    assert result.exit_code == 1


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
    assert "pip install 'tablestream[demo]'" in done.stderr
    assert "Traceback" not in done.stderr
