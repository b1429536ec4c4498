"""What the pages promise, and the tests that would fail if it did not hold.

`tests/promises` has a file for each page that is held: those in `FOLDERS`, and some others. A line is a fragment of the
page and, behind a tab, the tests that guard what it promises, or ``- `` and why nothing is promised there. A third
field ``table`` makes the line count for all rows of the table in which the fragment stands. A part of the page that
names its tests itself needs no line.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROMISES = ROOT / "tests" / "promises"
FOLDERS = ("semantics", "databases")
PAGES = sorted(
    {path.relative_to(PROMISES).with_suffix("").as_posix() for path in PROMISES.rglob("*.tsv")}
    | {f"{folder}/{page.stem}" for folder in FOLDERS for page in (ROOT / "docs" / folder).glob("*.md")}
)
CODE = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
RULER = re.compile(r"\|[|: ]*-[|\-: ]*")
ITEM = re.compile(r"(- |\d+\. )")
#: The heads of columns that name tests.
NAMING = {"tests", "shown by", "tests of the rule"}


@dataclass(frozen=True)
class Part:
    """A paragraph, an item of a list, or a row of a table, with blanks as in a line; tables are numbered from 1."""

    text: str
    table: int = 0
    names_tests: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a file of promises: a fragment, what it says of it, and whether it speaks for a whole table."""

    fragment: str
    said: str
    of_table: bool

    @property
    def tests(self) -> list[str]:
        return [] if self.said.startswith("- ") else self.said.split()


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row[1:-1].split(" | ")]


def parts(text: str) -> list[Part]:
    """Take a page apart. Headings, blocks of code and the heads of tables promise nothing."""
    found: list[Part] = []
    lines = CODE.sub("", text).splitlines()
    table, naming, was_row, is_new = 0, -1, False, True
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        row = " ".join(line.split())
        if line.startswith("|") and RULER.fullmatch(following):
            table += 1
            naming = next((n for n, name in enumerate(cells(row)) if name in NAMING), -1)
        elif line.startswith("|") and not RULER.fullmatch(line):
            named = naming >= 0 and cells(row)[naming : naming + 1] not in ([], [""])
            found.append(Part(row, table, named or "`test_" in row))
        elif row and not line.startswith(("|", "#")):
            if is_new or was_row or ITEM.match(line):
                found.append(Part(row))
            else:
                found[-1] = Part(f"{found[-1].text} {row}")
        was_row = line.startswith("|")
        is_new = not row or line.startswith("#")
    return [Part(one.text, one.table, one.names_tests or "`test_" in one.text) for one in found]


def lines_of(page: str) -> list[Line]:
    """Read the promises of a page."""
    file = PROMISES / f"{page}.tsv"
    rows = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    fields = [row.split("\t") for row in rows]
    assert [row for row in fields if len(row) not in {2, 3} or row[2:] not in ([], ["table"])] == []
    return [Line(fragment, said, bool(rest)) for fragment, said, *rest in fields]


def astray(found: list[Part], lines: list[Line]) -> list[str]:
    """Return the fragments that do not stand in exactly one part."""
    return [one.fragment for one in lines if sum(one.fragment in part.text for part in found) != 1]


def unspoken(found: list[Part], lines: list[Line]) -> list[str]:
    """Return the parts that name no test, and of which no line says anything."""
    tables = {
        part.table
        for one in lines
        if one.of_table
        for part in found
        if part.table and one.fragment in part.text
    }
    return [
        part.text
        for part in found
        if not (part.names_tests or part.table in tables or any(one.fragment in part.text for one in lines))
    ]


@cache
def functions(file: str) -> set[str]:
    """Return the names of the tests of a file."""
    if not (ROOT / file).is_file():
        return set()
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_of_a_page_has_a_test(page: str) -> None:
    """Whether a test would fail is for who writes the line to see: break what it guards."""
    found = parts((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    lines = lines_of(page)
    hint = f"see tests/test_promises.py, and correct tests/promises/{page}.tsv"
    assert astray(found, lines) == [], f"These do not stand in one part of the page: {hint}"
    assert unspoken(found, lines) == [], f"Name their tests there, or in {hint}"
    named = [one.split("::") for line in lines for one in line.tests]
    assert [one for one in named if len(one) != 2 or one[1] not in functions(one[0])] == [], hint


def test_a_promise_without_a_test_is_found() -> None:
    page = """# A
One
two.

- three
- four (`test_four`)

| | tests |
|---|---|
| five | `x` |
| six | |

| a | b |
|---|---|
| seven | 7 |
| eight | 8 |
```text
nine
```
ten
"""
    found = parts(page)
    texts = ["One two.", "- three", "- four (`test_four`)", "| five | `x` |", "| six | |", "| seven | 7 |"]
    assert [one.text for one in found] == [*texts, "| eight | 8 |", "ten"]
    assert unspoken(found, []) == [
        "One two.",
        "- three",
        "| six | |",
        "| seven | 7 |",
        "| eight | 8 |",
        "ten",
    ]
    lines = [Line("two", "- example", of_table=False), Line("eight", "f::g", of_table=True)]
    assert unspoken(found, lines) == ["- three", "| six | |", "ten"]
    assert astray(found, [*lines, Line("e", "f::g", of_table=False), Line("no", "- ", of_table=False)]) == [
        "e",
        "no",
    ]
    assert [one.tests for one in lines] == [[], ["f::g"]]
