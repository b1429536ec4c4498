"""Three ways to show the same: a terminal, plain lines, JSON."""

from __future__ import annotations

import io
import json
import re

import polars as pl
import pytest

from examples.demo.display import Display, JsonDisplay, TextDisplay
from examples.demo.progress import MicroBatchReport

REPORTS = [MicroBatchReport(0, 50_000, 60_000, 2.0, 2.5), MicroBatchReport(1, 1_000, 7_000, 0.5, 3.25)]


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def show(display: Display) -> None:
    display.say("Starting [bold]now[/bold]")
    with display.progress(2) as progress:
        for report in REPORTS:
            progress.tick(report.elapsed_s)
            progress.micro_batch(report)
    display.rows("A title", pl.DataFrame({"n": [1, None], "name": ["[red]", "Bob"]}))
    display.summary({"ok": True})


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


def test_programs_get_a_line_per_micro_batch_and_one_at_the_end() -> None:
    file = io.StringIO()
    show(JsonDisplay(file))
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["micro_batch", "micro_batch", "summary"]
    assert lines[0] == {
        "event": "micro_batch",
        "micro_batch": 0,
        "rows_in": 50_000,
        "changes_out": 60_000,
        "duration_s": 2.0,
        "elapsed_s": 2.5,
        "changes_per_s": 30_000.0,
    }
    assert lines[2]["ok"] is True


def test_a_file_gets_plain_lines_with_totals() -> None:
    file = io.StringIO()
    show(TextDisplay(file))
    text = file.getvalue()
    assert "\x1b" not in text
    said, first, second = text.splitlines()[:3]
    assert said == "Starting [bold]now[/bold]"
    assert first == (
        "micro-batch 0: 50,000 rows in, 60,000 changes out, 30,000 changes/s, 2.0 s; "
        "in all 50,000 in, 60,000 out, 2.5 s"
    )
    assert second == (
        "micro-batch 1: 1,000 rows in, 7,000 changes out, 14,000 changes/s, 0.5 s; "
        "in all 51,000 in, 67,000 out, 3.2 s"
    )
    assert "A title" in text
    assert "[red]" in text


def test_a_terminal_gets_a_table_that_grows() -> None:
    file = Terminal()
    show(TextDisplay(file))
    text = file.getvalue()
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    last = plain[plain.rindex("micro-batch ") :]
    assert all(figure in last for figure in ("50,000", "60,000", "30,000", "1,000", "7,000", "14,000"))
    assert "2 of 2 micro-batches, 51,000 rows in, 67,000 changes out" in plain


def test_a_null_is_shown_as_a_dash() -> None:
    file = io.StringIO()
    TextDisplay(file).rows("t", pl.DataFrame({"word": [None, "x"]}, schema={"word": pl.String}))
    assert "None" not in file.getvalue()
    assert "-" in file.getvalue()
