"""What the page about the command line shows is what the commands print."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tablestream.cli import app
from tests.pages import BLOCK

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
#: Rates, seconds and sizes are those of one machine and moment.
FIGURES = re.compile(r"\d+\.\d+(/s)?( s| kB)?|\d+/s|(?<=│ )[\d.]+ k?B *(?=│)")


def block(beginning: str) -> str:
    """Return the block of code that begins with a text."""
    (found,) = [code for _, code in BLOCK.findall(PAGE) if code.startswith(beginning)]
    return str(found)


def comparable(text: str) -> list[str]:
    """Return the lines without figures, and tables without the widths of their columns."""
    lines = [FIGURES.sub("#", line) for line in text.splitlines()]
    return [re.sub(r"[─━┄]+|  +", " ", line).strip() for line in lines]


@pytest.mark.usefixtures("spark")
def test_the_page_shows_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pipeline", raising=False)
    log = tmp_path / "logs" / "orders"
    log.mkdir(parents=True)
    (log / "1.csv").write_text("1,cup,2,2024-01-02 09:00:00\n2,pot,1,2024-01-02 09:01:00\n")
    # Relative paths are Spark's from where it started.
    module = block("import tablestream").replace('"logs/', f'"{tmp_path}/logs/')
    (tmp_path / "pipeline.py").write_text(module)
    checkpoint = str(tmp_path / "out" / "checkpoint")

    def printed(command: str, *more: str) -> str:
        words = [checkpoint if one == "out/checkpoint" else one for one in command.split()[2:]]
        result = CliRunner().invoke(app, [*words, *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    command, _, shown = block("$ tablestream run").partition("\n")
    changes = shown[shown.index("per_sku, ") : shown.index("\nbatch 0:") + 1]
    assert comparable(printed(command, "--once")) == comparable(changes)
    command, _, shown = block("$ tablestream state out/checkpoint\n").partition("\n")
    assert comparable(printed(command)) == comparable(shown)
    command, _, shown = block("$ tablestream verify").partition("\n")
    assert comparable(printed(command)) == comparable(shown)
    _, _, shown = block("$ tablestream state out/checkpoint per_sku").partition("\n")
    command, _, asked = block("$ tablestream why").partition("\n")
    assert printed("$ tablestream why out/checkpoint per_sku", '{"sku": "cup"}') == asked, command
    key = ("--key", '{"sku": "cup"}', "--json")
    assert printed("$ tablestream state out/checkpoint per_sku", *key) == shown
