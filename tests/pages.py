"""Runs the Python blocks of a page of the documentation, one after the other, and keeps what each prints.

A block of SQL whose first line is a remark with the name of a file, as in ``-- shop.sql``, is that file.
"""

from __future__ import annotations

import re
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples import ten_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parent.parent / "docs"
FILE = re.compile(r"^-- (\w+\.sql)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A block of Python, and the output that the page shows in the block of text right behind it, if there is one."""

    code: str
    shown: str | None


def examples(text: str) -> list[Example]:
    """Return the Python blocks of a document."""
    blocks: list[tuple[str, str]] = BLOCK.findall(text)
    behind = [*blocks[1:], ("", "")][: len(blocks)]
    return [
        Example(code, output.rstrip() if kind == "text" else None)
        for (language, code), (kind, output) in zip(blocks, behind, strict=True)
        if language == "python"
    ]


class Program:
    """The program that the blocks of a page are, in a directory of its own."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.names: dict[str, Any] = {"spark": spark}
        self.directory = directory

    def write_files(self, text: str) -> None:
        """Write the files that a page shows."""
        for language, block in BLOCK.findall(text):
            if language == "sql" and (name := FILE.match(block)):
                (self.directory / name[1]).write_text(self.absolute(block), encoding="utf-8")

    def absolute(self, code: str) -> str:
        """Return code with absolute paths: relative ones are Spark's from where it started."""
        return re.sub(r"""(["'])(?=(logs|out)[/"'])""", rf"\1{self.directory}/", code)

    def run(self, code: str) -> str:
        """Run a block, and return what it printed."""
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(self.absolute(code), "program.py", "exec"), self.names)  # noqa: S102 - the page's own lines
        return self.shown(printed.getvalue())

    def run_first_page(self, code: str) -> None:
        """Write the logs of the README's program, and run it: its query ends when it has read all that is there."""
        with chdir(self.directory):
            ten_lines.write_log("positions", ten_lines.POSITIONS)
            ten_lines.write_log("tickers", ten_lines.TICKERS)
            self.run(code)

    def shown(self, output: str) -> str:
        """Return an output as a page shows it: paths are relative, and lines end with their last letter."""
        relative = re.sub(rf"(file:/*)?{re.escape(str(self.directory))}/", "", output)
        return re.sub(r" +$", "", relative, flags=re.MULTILINE).strip("\n")
