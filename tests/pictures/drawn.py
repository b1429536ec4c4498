"""Reads an SVG picture: its boxes, texts and arrows, and whether they are in each other's way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

from tablestream.pictures.layout import FONT_PX, text_width
from tablestream.pictures.picture import LANE

_SVG = "{http://www.w3.org/2000/svg}"
_STEPS = 40
#: How far boxes are apart, in pixels.
_APART = 12

Point = tuple[float, float]


@dataclass(frozen=True)
class Area:
    """A rectangle of the image."""

    left: float
    top: float
    right: float
    bottom: float
    name: str = ""

    def meets(self, other: Area) -> bool:
        """Whether two areas have a point in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def wider(self, margin: float) -> Area:
        """The same area with a margin around it."""
        return Area(
            self.left - margin, self.top - margin, self.right + margin, self.bottom + margin, self.name
        )

    def holds(self, other: Area) -> bool:
        """Whether another area is inside this one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )

    def has(self, point: Point) -> bool:
        """Whether a point is inside, and not at a side."""
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


class Drawn:
    """An SVG text, read as XML."""

    def __init__(self, svg: str) -> None:
        root = ET.fromstring(svg)  # noqa: S314 - this project wrote it
        self.elements = list(root.iter())
        left, top, right, bottom = map(float, root.attrib["viewBox"].split())
        self.page = Area(left, top, right, bottom)
        groups = [one for one in root if one.tag == f"{_SVG}g"]
        self.boxes = [_area(group[0], "".join(group[1].itertext())) for group in groups]
        self.texts = [[_text_area(one) for one in group[1:]] for group in groups]
        self.lanes = [_area(one) for one in root if one.get("fill") == LANE]
        self.free_texts = [_text_area(one) for one in root if one.tag == f"{_SVG}text"]
        self.arrows = [_points(one.attrib["d"]) for one in root if one.tag == f"{_SVG}path"]

    def faults(self) -> list[str]:
        """Say what is in the way of something else, or outside of what it belongs to."""
        found = [
            f"{one.name} and {other.name} are too near"
            for one, other in combinations(self.boxes, 2)
            if one.wider(_APART).meets(other)
        ]
        found += ["two lanes overlap" for one, other in combinations(self.lanes, 2) if one.meets(other)]
        found += [
            f"{one.name} is in no lane"
            for one in self.boxes
            if not any(lane.holds(one) for lane in self.lanes)
        ]
        shown = [*self.lanes, *self.free_texts]
        found += [f"'{one.name}' is not on the page" for one in shown if not self.page.holds(one)]
        for box, texts in zip(self.boxes, self.texts, strict=True):
            found += [f"'{text.name}' leaves {box.name}" for text in texts if not box.holds(text)]
        everything = [*self.free_texts, *(text for texts in self.texts for text in texts)]
        found += [
            f"'{one.name}' is over '{other.name}'"
            for one, other in combinations(everything, 2)
            if one.meets(other)
        ]
        for points in self.arrows:
            crossed = {box.name for box in self.boxes if any(map(box.has, points))}
            found += [f"an arrow goes through {name}" for name in crossed]
            found += ["an arrow goes back" for before, now in pairwise(points) if now[0] < before[0] - 0.1]
            found += [
                f"an arrow goes through '{one.name}'" for one in self.free_texts if any(map(one.has, points))
            ]
        return found


def _area(rect: ET.Element, name: str = "a lane") -> Area:
    x, y, width, height = (float(rect.attrib[one]) for one in ("x", "y", "width", "height"))
    return Area(x, y, x + width, y + height, name)


def _text_area(text: ET.Element) -> Area:
    """Where a text is, by the estimate of its width; letters are between 0.8 em above their line and 0.2 em below."""
    shown = "".join(text.itertext())
    x, y = float(text.attrib["x"]), float(text.attrib["y"])
    return Area(x, y - 0.8 * FONT_PX, x + text_width(shown), y + 0.2 * FONT_PX, shown)


def _points(way: str) -> list[Point]:
    """Points on a path of moves, lines and cubic curves."""
    found: list[Point] = []
    for command, numbers in re.findall(r"([MLC])([^MLC]*)", way):
        values = [float(one) for one in re.findall(r"-?[\d.]+", numbers)]
        corners = list(zip(values[::2], values[1::2], strict=True))
        if command == "M":
            found.append(corners[0])
            continue
        (x0, y0), (x3, y3) = found[-1], corners[-1]
        (x1, y1), (x2, y2) = corners[:2] if command == "C" else ((x0, y0), (x3, y3))
        for step in range(1, _STEPS + 1):
            t = step / _STEPS
            a, b, c, d = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3
            found.append((a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3))
    return found
