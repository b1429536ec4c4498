"""The page Compatibility shows the recorded results, and the package claims the Pythons that passed."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

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


def test_the_outcomes_of_pytest_s_report_are_read() -> None:
    cases = {"": "passed", "<failure/>": "failed", "<error/>": "failed", "<skipped/>": "skipped"}
    for inside, outcome in cases.items():
        report = f'<testsuites><testcase name="test_x[classic]">{inside}</testcase></testsuites>'
        assert outcomes(report) == {"classic": outcome}
