"""The programs of the page about metrics run, and print what the page says, but for the figures of a listener."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import tablestream as ts
from tests.pages import DOCS, Program, examples
from tests.test_readme import README_CODE

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

PATIENCE_S = 240.0


class Streams:
    """Spark's streams, which remember the listeners that were added."""

    def __init__(self, spark: SparkSession) -> None:
        self._streams = spark.streams
        self._added: list[StreamingQueryListener] = []

    def addListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802 - Spark's name
        self._added.append(listener)
        self._streams.addListener(listener)

    def remove_all(self) -> None:
        for listener in self._added:
            self._streams.removeListener(listener)


def said(code: str) -> str:
    """Return what a block says in its remarks."""
    return "\n".join(line.removeprefix("# ") for line in code.splitlines() if line.startswith("# "))


def without_figures(text: str) -> list[str]:
    """Return the lines of a text without figures, known or not, and without the widths of columns."""
    return [
        re.sub(r" +", " ", re.sub(r"[\d.,]*\d|\?", "#", line)).strip() for line in text.strip().splitlines()
    ]


def printed(capsys: pytest.CaptureFixture[str], query: str, lines: int) -> str:
    """Return what a listener printed of a query: Spark calls it a moment after the micro-batch.

    It may be called for the last micro-batch of an earlier test's query before.
    """
    found, end = "", time.monotonic() + PATIENCE_S
    while found[found.find(query) :].count("\n") < lines or query not in found:
        assert time.monotonic() < end, found
        found += capsys.readouterr().err
        time.sleep(0.1)
    return found[found.index(query) :]


def test_the_programs_about_metrics_print_what_the_page_says(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last, listener, telemetry = (
        part.code for part in examples((DOCS / "metrics.md").read_text(encoding="utf-8"))
    )
    streams = Streams(spark)
    names: dict[str, Any] = {"ts": ts, "spark": SimpleNamespace(streams=streams)}
    try:
        exec(listener, names)  # noqa: S102 - the page's own lines
        exec(telemetry, names)  # noqa: S102 - the page's own lines
        named = README_CODE.replace("checkpoint=", 'name="sold", checkpoint=')
        named = named.replace('how="left",', 'how="left", name="sold",')
        program = Program(spark, tmp_path)
        program.run_first_page(named)
        *shown, more = said(listener).splitlines()
        told = printed(capsys, "sold, ", len(shown))
    finally:
        streams.remove_all()
    assert more.strip() == "..."
    assert without_figures(told)[: len(shown)] == without_figures("\n".join(shown))
    row = repr(eval(last, {"query": program.names["query"]}))  # noqa: S307 - the page's own line
    assert row.startswith(said(last).removesuffix("...)"))
