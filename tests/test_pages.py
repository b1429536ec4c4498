"""The Python blocks of the documentation's pages run, and give what the pages show.

To draw the pictures anew after a change that was meant: ``UPDATE_GOLDEN=1 pytest tests/test_pages.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import DOCS, Example, Program, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Pages whose blocks are one program, which needs no server.
PROGRAMS = [
    "index.md",
    "concepts.md",
    "kafka-streams.md",
    "from-merge.md",
    "from-auto-cdc.md",
    "from-flink-sql.md",
    "operations.md",
    "runbook.md",
    "recipes.md",
    "sql.md",
    "tutorial-windows.md",
]
#: Pages whose blocks other tests run, or hold to a program that runs.
ELSEWHERE = {
    "command-line.md": "tests/cli/test_page.py",
    "databases/README.md": "tests/kafka/test_docs.py",
    "databases/order-and-snapshots.md": "tests/kafka/test_docs.py",
    "errors/README.md": "tests/test_errors_page.py",
    "errors/building.md": "tests/test_errors_page.py",
    "errors/running.md": "tests/test_errors_page.py",
    "errors/starting.md": "tests/test_errors_page.py",
    "kafka.md": "tests/kafka/test_docs.py",
    "metrics.md": "tests/test_metrics_page.py",
    "testing.md": "tests/test_testing_page.py",
    "tutorial-database.md": "tests/demo/test_database.py",
    "tutorial-holdings.md": "tests/test_tutorial.py",
}
#: The pictures that the program of a page draws, and that the page shows.
PICTURES = {"concepts.md": ["plan.svg"]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_s_program_prints_what_the_page_shows(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = Program(spark, tmp_path)
    text = (DOCS / name).read_text(encoding="utf-8")
    program.write_files(text)
    parts = examples(text)
    printed = [program.run(part.code) for part in parts]
    assert [out for out, part in zip(printed, parts, strict=True) if part.shown is not None] == [
        part.shown for part in parts if part.shown is not None
    ]
    assert [out for out, part in zip(printed, parts, strict=True) if part.shown is None and out] == []
    for picture in PICTURES.get(name, []):
        drawn = (tmp_path / "out" / picture).read_text(encoding="utf-8")
        if os.environ.get("UPDATE_GOLDEN"):
            (DOCS / "pictures" / picture).write_text(drawn, encoding="utf-8")
        assert drawn == (DOCS / "pictures" / picture).read_text(encoding="utf-8")


def test_the_blocks_of_every_page_run_somewhere() -> None:
    """What no test runs is in the list `NOT_RUN` of tests/kafka/test_docs.py, with the reason."""
    pages = {
        page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8")
        for page in DOCS.rglob("*.md")
        if page.parent.name != "decisions"
    }
    assert {name for name, text in pages.items() if examples(text)} == {*PROGRAMS, *ELSEWHERE}
    assert [
        test for name, test in ELSEWHERE.items() if name not in (DOCS.parent / test).read_text("utf-8")
    ] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_every_python_block_is_python(page: Path) -> None:
    """Those that do not run as well."""
    for part in examples(page.read_text(encoding="utf-8")):
        compile(part.code, page.name, "exec")


def test_the_output_of_a_block_stands_right_behind_it() -> None:
    text = "```python\na\n```\nsays\n\n```text\n1\n```\n\n```python\nb\n```\n\n```sql\nc\n```\n\n```text\n2\n```\n"
    assert examples(text) == [Example("a\n", "1"), Example("b\n", None)]
