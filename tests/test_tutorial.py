"""What the tutorial shows of its example is what the example has, does and prints."""

from __future__ import annotations

import inspect
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples import holdings
from tests.test_readme import block

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

TUTORIAL = "docs/tutorial-holdings.md"
PROGRAM = block(TUTORIAL, "from collections", "python")


def test_the_tutorial_shows_the_program_of_the_example() -> None:
    _, function = PROGRAM.split("\n\n\n")
    assert function == inspect.getsource(holdings.mailing_lists)


def test_every_file_of_the_story_has_the_records_of_its_micro_batch(tmp_path: Path) -> None:
    holdings.write_logs(tmp_path)
    told = [line for line in holdings.STORY.splitlines() if line and not line.startswith("# ")]
    files = {name: sorted((tmp_path / "logs" / name).iterdir()) for name in holdings.SCHEMAS}
    written = [
        f"{name},{line}"
        for number in range(len(holdings.ACTS))
        for name in holdings.SCHEMAS
        for line in files[name][number].read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(written) == sorted(told)
    assert [len(each) for each in files.values()] == [len(holdings.ACTS)] * 3
    assert all(
        earlier.stat().st_mtime < later.stat().st_mtime
        for each in files.values()
        for earlier, later in pairwise(each)
    )


def test_the_example_says_what_the_tutorial_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    exec(PROGRAM, names)  # noqa: S102 - the tutorial's own lines, with their imports
    monkeypatch.setattr(holdings, "mailing_lists", names["mailing_lists"])
    assert holdings.run(spark, tmp_path)
    *acts, verdict = capsys.readouterr().out.rstrip().split("\n\n")
    assert len(acts) == len(holdings.ACTS)
    for act in acts:
        title = act.splitlines()[0]
        assert block(TUTORIAL, title).rstrip() == act
    assert block(TUTORIAL, "The list at the end").rstrip() == verdict
