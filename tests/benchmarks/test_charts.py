"""The charts of the page about how speed is measured have the figures of its tables."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.charts import charts, rates_chart, seconds_chart, svg
from tests.benchmarks.test_report import run, sample

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def rows(heading: str) -> dict[str, list[int]]:
    """Return the whole numbers of the page's first table with a heading, by contestant; 0 for none."""
    page = (DOCS / "decisions" / "043-how-speed-is-measured.md").read_text(encoding="utf-8")
    table = page[page.index(heading) :].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    plain = {title: [cell.replace(",", "") for cell in others] for title, *others in cells}
    return {title: [int(cell) if cell.isdigit() else 0 for cell in one] for title, one in plain.items()}


def test_the_charts_show_the_figures_of_the_tables() -> None:
    rates = rows("| contestant | changes in | changes out | seconds | changes/s | steady changes/s |")
    used = rows("| contestant | peak JVM MiB |")
    assert len(rates) == 9
    spent = {
        f"{title}, {rates[title][0]:,} changes in": (one[3], one[4])
        for title, one in used.items()
        if title in rates
    }
    shown = {
        "rates": rates_chart({title: (one[3], one[4]) for title, one in rates.items()}),
        "core-seconds": seconds_chart(spent),
    }
    for name, chart in shown.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == svg(chart), name


def test_bars_are_as_long_as_their_figures_and_a_text_says_them() -> None:
    samples = [sample(100.0, 10.0), sample(104.0, 10.0)]
    runs = {name: run(name, [2.0, 1.0, 1.0], memory=samples) for name in ("every", "kafka")}
    drawn = charts({"runs": {name: one.to_json() for name, one in runs.items()}})
    picture = ET.fromstring(svg(drawn["rates"]))  # noqa: S314 - drawn here
    _, over_all, steady = picture.findall(f"{SVG}rect")
    assert float(steady.attrib["width"]) / float(over_all.attrib["width"]) == pytest.approx(1000 / 750, 0.01)
    assert picture.findtext(f"{SVG}desc") == "tablestream, every change: 750 over all, 1,000 steady."
    assert "JVM" in svg(drawn["core-seconds"])
