"""The page Compatibility shows the recorded results, and the package claims the Pythons that passed."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import matrix
from scripts.matrix import PLACE, PYTHONS, SPARKS, Result, minor, outcomes, read_results, table
from tablestream.planner import catalogue
from tablestream.state import manifest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RESULTS = read_results()
RESULT = Result(
    "3.12.1", "4.3.0", "17", "passed", "passed", "2026-01-02", {"polars": "2.1.0", "pandas": "2.3.3"}
)


def test_the_page_shows_the_recorded_results() -> None:
    assert PLACE.findall(PAGE) == [table(RESULTS)], "run `make matrix ARGS=--table`"


def test_the_package_claims_the_pythons_with_which_every_pyspark_has_passed_and_no_other() -> None:
    prefix = "Programming Language :: Python :: 3."
    claimed = {one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if one.startswith(prefix)}
    passed = {(minor(one.python), minor(one.pyspark)) for one in RESULTS if one.has_passed}
    assert claimed == {
        python for python in PYTHONS if all((minor(python), minor(spark)) in passed for spark in SPARKS)
    }
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_the_page_says_which_pysparks_the_package_takes() -> None:
    (said,) = re.findall(r"^\| PySpark \| (\d+\.\d+) and newer, below (\d+)\.", PAGE, re.MULTILINE)
    (taken,) = [one for one in PROJECT["dependencies"] if one.startswith("pyspark>")]
    assert taken == "pyspark>={},<{}".format(*said)


def test_there_is_one_result_for_an_environment() -> None:
    assert len({one.environment for one in RESULTS}) == len(RESULTS)
    assert {minor(one.python) for one in RESULTS} <= set(map(minor, PYTHONS))
    assert {minor(one.pyspark) for one in RESULTS} <= set(map(minor, SPARKS))


@pytest.mark.parametrize(
    ("part", "version"),
    [
        ("manifest of a shard", manifest.FORMAT_VERSION),
        ("description of the tables", catalogue.FORMAT_VERSION),
    ],
)
def test_the_page_has_the_versions_of_the_formats(part: str, version: int) -> None:
    assert re.findall(rf"^\| {part} \| (\d+) \|", PAGE, re.MULTILINE) == [str(version)]


def test_an_environment_that_did_not_run_is_in_the_table() -> None:
    lines = table([RESULT]).splitlines()
    assert "| 3.12.1 | 4.3.0 | passed | passed | 17 | polars 2.1.0, pandas 2.3.3 | 2026-01-02 |" in lines
    missing = [line[2:12] for line in lines if "not run" in line]
    assert missing == [
        f"{python} | {spark}" for python in PYTHONS for spark in SPARKS if (python, spark) != ("3.12", "4.3")
    ]


def test_only_two_passed_tests_are_a_passed_environment() -> None:
    assert RESULT.has_passed
    assert not any(replace(RESULT, connect=one).has_passed for one in ("failed", "skipped", "not installed"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """A machine that has Python 3.12 only, and where PySpark 4.3 fails; return what it has recorded."""
    recorded: list[Result] = []

    def tried(_python: Path, spark: str, _wheel: Path) -> Result:
        return replace(RESULT, pyspark=f"{spark}.0", connect="failed" if spark == "4.3" else "passed")

    monkeypatch.setattr(matrix, "find_python", lambda version: Path("python") if version == "3.12" else None)
    monkeypatch.setattr(matrix, "build_wheel", lambda: Path("wheel"))
    monkeypatch.setattr(matrix, "try_environment", tried)
    monkeypatch.setattr(matrix, "write_results", recorded.extend)
    return recorded


@pytest.mark.parametrize(
    ("chosen", "ran", "left", "end"),
    [
        (["--python", "3.14"], [], ["3.14 with PySpark 4.2", "3.14 with PySpark 4.3"], "Nothing was run."),
        (["--python", "3.14", "--spark", "4.3"], [], ["3.14 with PySpark 4.3"], "Nothing was run."),
        (
            ["--python", "3.11", "--python", "3.12", "--spark", "4.2"],
            ["4.2.0"],
            ["3.11 with PySpark 4.2"],
            None,
        ),
        (["--python", "3.12"], ["4.2.0", "4.3.0"], [], "1 of 2 environments did not pass."),
    ],
)
def test_a_matrix_of_which_nothing_ran_is_no_success_and_lists_what_was_left_out(
    chosen: list[str],
    ran: list[str],
    left: list[str],
    end: str | None,
    machine: list[Result],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["matrix", *chosen])
    with pytest.raises(SystemExit) as ended:
        matrix.main()
    assert str(ended.value.code or "").startswith(end) if end else ended.value.code is None
    assert [one.pyspark for one in machine] == ran
    said = capsys.readouterr().out
    assert re.findall(r"^Not run: Python (.+?)\. There is no Python", said, re.MULTILINE) == left


def test_the_outcomes_of_pytest_s_report_are_read() -> None:
    cases = {"": "passed", "<failure/>": "failed", "<error/>": "failed", "<skipped/>": "skipped"}
    for inside, outcome in cases.items():
        report = f'<testsuites><testcase name="test_x[classic]">{inside}</testcase></testsuites>'
        assert outcomes(report) == {"classic": outcome}
