"""The demos as a command: help, exit codes, and errors as one message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from examples.demo import __main__ as command
from examples.demo.run import DemoOptions
from examples.demo.scenarios import SCENARIOS
from tablestream.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from examples.demo.scenario import Scenario


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.app, list(arguments))


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

    monkeypatch.setattr(command, "run_demos", run_demos)
    return called


def test_help_names_every_choice() -> None:
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
        command.app, ["--help"]
    )
    assert result.exit_code == 0
    for word in (*SCENARIOS, "--micro-batches", "--scale", "--output", "--json", "--keep", "--debug"):
        assert word in result.output


@pytest.mark.parametrize(
    "arguments", [("trains",), ("flights", "trains"), ("--micro-batches", "0"), ("--scale", "2")]
)
def test_wrong_use_is_refused(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("names", [*([name] for name in SCENARIOS), ["weather", "holdings"]], ids=" ".join)
def test_equal_comparisons_are_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    called = demos_that(monkeypatch, True)
    sizes = ("--micro-batches", "3", "--scale", "0.5")
    assert run(*names, *sizes, "--output", str(tmp_path), "--keep").exit_code == 0
    assert called == [(names, DemoOptions(tmp_path, micro_batches=3, scale=0.5, keep=True))]


def test_without_a_name_flights_and_weather_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    called = demos_that(monkeypatch, True)
    assert run().exit_code == 0
    assert [names for names, _ in called] == [["flights", "weather"]]


def test_a_demo_named_twice_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called = demos_that(monkeypatch, True)
    assert run("holdings", "flights", "holdings").exit_code == 0
    assert [names for names, _ in called] == [["holdings", "flights"]]


def test_a_difference_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, False)
    assert run().exit_code == 1


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, KeyboardInterrupt())
    result = run()
    assert result.exit_code == 130
    assert "Stopped." in result.output
    assert "Traceback" not in result.output


def test_an_error_is_one_message_with_code_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, PlanError("The cup is empty.", hint="Fill it."))
    result = run()
    assert result.exit_code == 2
    assert result.stderr == "Error TABLESTREAM_PLAN: The cup is empty.\nFill it.\n"
    assert result.stdout == ""


def test_an_error_for_programs_is_a_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, PlanError("The cup is empty.", hint="Fill it."))
    result = run("--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr) == {
        "event": "error",
        "code": "TABLESTREAM_PLAN",
        "message": "The cup is empty.",
        "hint": "Fill it.",
    }


def test_an_error_raised_in_a_worker_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, RuntimeError("Job aborted\n  E: [TABLESTREAM_ORDER] Row 7 has no place.\n  at x"))
    assert "Error TABLESTREAM_ORDER: Row 7 has no place.\n" in run().stderr


def test_any_other_error_is_named_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, OSError("No space left on device\nmore"))
    result = run()
    assert result.exit_code == 2
    assert result.stderr.startswith("Error OSError: No space left on device (test_command.py:")
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback_and_keeps_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    demos_that(monkeypatch, OSError("No space left on device"))
    result = run("--debug")
    assert "Traceback (most recent call last)" in result.stderr
    assert "OSError: No space left on device" in result.stderr
    assert result.exit_code == 2
