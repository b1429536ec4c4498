"""Bar charts for the pages about performance: ``python -m benchmarks.charts out.json docs/pictures`` draws them as SVG.

The figures are those that `benchmarks.page` prints as tables. Like the library's own pictures, a chart has a
ground of its own, so it can be read on a light and on a dark page. Each bar has its figure as text behind it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTESTANTS
from benchmarks.memory import processor_seconds
from benchmarks.results import run_from_json
from tablestream.pictures.picture import BOXES, EDGE, PAGE, QUIET, TEXT, Kind

#: The contestants of the page's first tables; those of the others have workloads of their own.
SHOWN = (
    "every",
    "final",
    "many-to-many",
    "files",
    "delta-log",
    "delta-table",
    "plain-python",
    "batch-sql",
    "empty",
    "groups",
    "groups-final",
    "groups-python",
    "native-groups",
)
_WIDTH, _MARGIN, _BAR, _TITLE, _GAP = 720, 16, 18, 22, 10
#: What the text behind the longest bar needs.
_TEXT_WIDTH = 190
_FONT = "system-ui, 'DejaVu Sans', Arial, sans-serif"
_FONT_PX = 13


@dataclass(frozen=True)
class Bars:
    """The bars of one contestant: figures with the words behind them."""

    title: str
    figures: list[tuple[int, str]]


@dataclass(frozen=True)
class Chart:
    """A chart with a bar for each figure."""

    title: str
    bars: list[Bars]


def charts(document: dict[str, Any]) -> dict[str, Chart]:
    """Return the charts of a benchmark's JSON by their names."""
    found = {name: run_from_json(data) for name, data in document["runs"].items() if name in SHOWN}
    runs = {CONTESTANTS[name][2]: run for name, run in found.items() if run.micro_batches and not run.error}
    rates = {title: (round(run.rate), round(run.steady_rate)) for title, run in runs.items()}
    seconds = {
        f"{title}, {run.rows_in:,} changes in": (round(spent[0]), round(spent[1]))
        for title, run in runs.items()
        if (spent := processor_seconds(run))
    }
    return {"rates": rates_chart(rates), "core-seconds": seconds_chart(seconds)}


def rates_chart(rates: dict[str, tuple[int, int]]) -> Chart:
    """Return the chart of changes a second, over all and steady; a steady rate of 0 is none."""
    words = ("over all", "steady")
    return Chart("Changes in, a second: more is better", _bars(rates, words))


def seconds_chart(seconds: dict[str, tuple[int, int]]) -> Chart:
    """Return the chart of core-seconds, of the JVM and of the Python workers."""
    words = ("JVM", "Python workers")
    return Chart("Core-seconds of the processor: less is better", _bars(seconds, words))


def _bars(figures: dict[str, tuple[int, int]], words: tuple[str, str]) -> list[Bars]:
    return [
        Bars(title, [(one, f"{one:,} {word}") for one, word in zip(pair, words, strict=True) if one])
        for title, pair in figures.items()
    ]


def svg(chart: Chart) -> str:
    """Draw a chart."""
    return "\n".join(_elements(chart)) + "\n"


def _elements(chart: Chart) -> Iterator[str]:
    rows = sum(_TITLE + _GAP + _BAR * len(one.figures) for one in chart.bars)
    height = 2 * _MARGIN + _TITLE + rows
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" font-family="{_FONT}" font-size="{_FONT_PX}" role="img">'
    )
    yield f"<title>{escape(chart.title)}</title>"
    yield f"<desc>{escape(_words(chart))}</desc>"
    yield (
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8" fill="{PAGE}" stroke="{EDGE}"/>'
    )
    yield f'<text x="{_MARGIN}" y="{_MARGIN + _FONT_PX}" fill="{QUIET}">{escape(chart.title)}</text>'
    longest = max(figure for one in chart.bars for figure, _ in one.figures)
    scale = (_WIDTH - 2 * _MARGIN - _TEXT_WIDTH) / longest
    y = _MARGIN + _TITLE
    for one in chart.bars:
        y += _TITLE
        yield f'<text x="{_MARGIN}" y="{y}" fill="{TEXT}" font-weight="bold">{escape(one.title)}</text>'
        for number, (figure, words) in enumerate(one.figures):
            yield from _bar(
                y + 5 + number * _BAR, figure * scale, words, Kind.OUTPUT if number else Kind.SOURCE
            )
        y += _BAR * len(one.figures) + _GAP
    yield "</svg>"


def _bar(y: float, width: float, words: str, kind: Kind) -> Iterator[str]:
    fill, stroke = BOXES[kind]
    yield (
        f'<rect x="{_MARGIN}" y="{y}" width="{max(width, 1):.1f}" height="{_BAR - 4}" fill="{fill}" stroke="{stroke}"/>'
    )
    yield f'<text x="{_MARGIN + width + 8:.1f}" y="{y + 11}" fill="{TEXT}">{escape(words)}</text>'


def _words(chart: Chart) -> str:
    """The chart as a sentence for each contestant."""
    return " ".join(f"{one.title}: {', '.join(words for _, words in one.figures)}." for one in chart.bars)


def main(file: Path, directory: Path) -> None:
    """Draw the charts of a benchmark's JSON into a directory."""
    for name, chart in charts(json.loads(file.read_text(encoding="utf-8"))).items():
        (directory / f"{name}.svg").write_text(svg(chart), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
