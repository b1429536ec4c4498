"""The commands that test a change: which tests each one runs, in how many processes, and where they are named."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import place
from tests.machine import GB, processes
from tests.marks import quick_each, quick_first, repeat

ROOT = Path(__file__).parent.parent
COMMANDS = ("check", "test", "test-all")


def read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def expression(name: str) -> str:
    """Read of the Makefile which marks a command runs."""
    (found,) = re.findall(rf"^{name} *:= (.*)$", read("Makefile"), re.MULTILINE)
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("cores", "memory", "wanted"),
    [
        (2, 23, 3),
        (4, 16, 5),
        (16, 64, 17),
        (16, 16, 5),  # a session more would have no room
        (1, 2, 1),
    ],
)
def test_processes_follow_the_cores_and_have_memory_for_their_sessions(
    cores: int, memory: int, wanted: int
) -> None:
    assert processes(cores, memory * GB) == wanted


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ("", "slow"),
        ("slow exhaustive", "spark"),
        ("slow", "broker"),
        ("spark", "spark slow"),
        ("broker", "faults"),
    ],
)
def test_what_takes_longer_goes_out_before_what_is_short(shorter: str, longer: str) -> None:
    """The marks say it, so programs that start Spark themselves are not left for the end."""

    def of(names: str) -> int:
        item = SimpleNamespace(
            iter_markers=lambda: (getattr(pytest.mark, name).mark for name in names.split())
        )
        return place(cast("pytest.Item", item))

    assert of(shorter) < of(longer)


def test_each_command_runs_what_the_one_before_it_runs() -> None:
    assert expression("ONCE") == "not exhaustive"
    assert expression("FAST") == "smoke or not (spark or broker or faults or slow)"


@pytest.mark.exhaustive
def test_what_only_all_tests_run_is_slow(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("slow") is not None


def test_no_test_of_check_is_left_for_all() -> None:
    """`smoke` wins over the other marks, so nothing that has it may be `exhaustive` as well."""
    marked: dict[str, set[str]] = {"smoke": set(), "exhaustive": set()}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for mark, files in marked.items():
            if f"@pytest.mark.{mark}\n" in (text := file.read_text(encoding="utf-8")) or (
                f"pytestmark = pytest.mark.{mark}\n" in text
            ):
                files.add(file.name)
    assert marked["smoke"] == {"test_smoke.py"}
    assert "test_smoke.py" not in marked["exhaustive"]


def test_repeats_of_a_parameter_run_in_all_tests_alone() -> None:
    named = pytest.param(2, marks=pytest.mark.slow, id="two")
    first, second, *rest = quick_first([1, named, 3])
    assert (first, second.id) == (1, "two")
    assert [mark.name for mark in second.marks] == ["slow", "exhaustive"]
    assert rest == [repeat(3)]
    assert quick_each(range(4), one_in=2) == [0, repeat(1), 2, repeat(3)]


def test_the_help_has_the_commands_and_what_they_run() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    helped = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", printed, re.MULTILINE))
    assert len(helped) == len(printed.splitlines())
    assert {"run", *COMMANDS} <= set(helped)
    assert "every kind of failure once" in helped["test"]


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml", ".ci/run"])
def test_every_command_that_is_named_exists(file: str) -> None:
    if not (ROOT / file).exists():
        pytest.skip("not in the archive of the sources")
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|- run: )make ([a-z-]+)", read(file), re.MULTILINE))
    assert named
    assert named - targets == set()


@pytest.mark.parametrize(
    ("file", "command"),
    [(".github/workflows/ci.yml", "test-all"), (".ci/run", "test")],
    ids=["hosted", "here"],
)
def test_every_change_is_tested_and_what_is_merged_by_all_tests(file: str, command: str) -> None:
    if not (ROOT / file).exists():
        pytest.skip("not in the archive of the sources")
    assert re.search(rf"make {command}$|make {command} 2>&1", read(file), re.MULTILINE)
