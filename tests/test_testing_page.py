"""The page about testing: its programs run, one after the other, and print what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pages import BLOCK
from tests.test_readme import ROOT

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_the_programs_of_the_page_print_what_it_shows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"spark": spark}
    blocks = BLOCK.findall((ROOT / "docs" / "testing.md").read_text(encoding="utf-8"))
    printed = shown = ""
    for language, code in blocks:
        if language == "python":
            assert printed == ""
            exec(code, names)  # noqa: S102 - the page's own lines
            printed = capsys.readouterr().out
        elif not code.startswith("from "):  # the line for conftest.py
            assert code == printed
            printed, shown = "", shown + code
    assert shown.count("\n") > 15
