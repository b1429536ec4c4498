"""The picture of retention: a table that keeps a week stays small, and the lines are as high as their figures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.retention import WEEK, svg, year

SVG = "{http://www.w3.org/2000/svg}"


def test_the_state_of_a_table_that_keeps_a_week_does_not_grow() -> None:
    kept, whole = year(WEEK, days=60), year(None, days=60)
    assert max(kept.rows[30:]) <= max(kept.rows[:30])
    assert max(kept.size_bytes[30:]) <= 1.01 * max(kept.size_bytes[:30])
    assert whole.rows[-1] > 1.9 * whole.rows[29]


def test_lines_are_as_high_as_their_figures() -> None:
    picture = ET.fromstring(svg({"all": [0, 50, 100], "some": [0, 25, 25]}))  # noqa: S314 - drawn here
    heights = [
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in picture.findall(f"{SVG}polyline")
    ]
    floor = heights[0][0]
    assert [floor - y for y in heights[0]] == [0, 102, 204]
    assert [floor - y for y in heights[1]] == [0, 51, 51]
    assert picture.findtext(f"{SVG}desc") == "all: 100 rows on day 3. some: 25 rows on day 3."
