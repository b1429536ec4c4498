"""What the documents show of the example is what the example has, does and prints."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from examples import ten_lines
from tests.pages import BLOCK, Program

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent


def block(document: str, beginning: str, language: str = "") -> str:
    """Find the one block of code of a document that begins with a text."""
    blocks = BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    (found,) = [code for named, code in blocks if named == language and code.startswith(beginning)]
    return str(found)


README_CODE = block("README.md", "import tablestream as ts\n", "python")
# At the end of a line stand remarks that the example does not print.
README_CHANGES = re.sub(r"(?<=\|)[^|\n]+$", "", block("README.md", "+--"), flags=re.MULTILINE)


def test_the_readme_shows_the_lines_of_the_example() -> None:
    imported, lines = README_CODE.split("\n\n", 1)
    assert f"\n{imported}\n" in inspect.getsource(ten_lines)
    body = inspect.getsource(ten_lines.main).split("\n", 1)[1]
    assert f"\n{lines}\n" in textwrap.dedent(body)


def test_the_lines_run_and_give_what_is_shown(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The changes in the README, and the plan in "How it works"."""
    program = Program(spark, tmp_path)
    program.run_first_page(README_CODE)

    changes = spark.read.parquet(str(tmp_path / "out" / "holdings")).orderBy("_order")
    changes.drop("_order", "micro_batch").show(truncate=False)
    assert capsys.readouterr().out.strip() == README_CHANGES.strip()
    program.names["holdings"].explain()
    assert capsys.readouterr().out.strip() == block("docs/how-it-works.md", "Plan: ").strip()
