"""Where the parts of a picture are: lanes from left to right, boxes below each other, arrows through the gaps.

A box is as high as its lines and as wide as the widest of its lane. An arrow that passes a lane without ending there
goes through a free strip between the lane's boxes, the *track* of the box where it starts. So an arrow crosses other
arrows, and never a box. `tablestream.pictures.stacking` finds the order and the heights within the lanes.

The width of a text is an estimate, for a font whose letters all have one width: see `text_width`.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from tablestream.pictures.picture import Arrow, Box, Picture, Role
from tablestream.pictures.stacking import Stacks

FONT_PX = 12
#: Common fonts of one width have letters of 0.55 to 0.602 em.
_LETTER_EM = 0.61
#: The longest line of a box, in letters; longer ones are broken.
_LONGEST = 44

_LINE, _PAD = 17, 10
_MARGIN, _LANE_PAD, _HEADER = 12, 12, 30
#: Around the name of a shuffle, which is between two lanes.
_GAP_PAD = 14


def text_width(text: str) -> float:
    """Estimate the width of a text: 0.61 em a letter, twice that for the wide letters of East Asian scripts.

    Examples
    --------
    >>> round(text_width("key"), 2), round(text_width("表"), 2)
    (21.96, 14.64)
    """
    letters = sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)
    return letters * _LETTER_EM * FONT_PX


@dataclass(frozen=True)
class Rect:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower side."""
        return self.y + self.height


@dataclass(frozen=True)
class Text:
    """A line of text: its left end, and the middle of its height.

    `role`: what it tells in a box. None: a title. `of_input`: whether it says what arrives at an input.
    """

    x: float
    y: float
    text: str
    role: Role | None = None
    of_input: bool = False


@dataclass(frozen=True)
class PlacedBox:
    """A box in its place, its texts, and the heights at which the arrows to each input end."""

    box: Box
    rect: Rect
    texts: tuple[Text, ...]
    entries: tuple[float, ...]


@dataclass(frozen=True)
class Route:
    """The way of an arrow: curved to the second point, straight to the third, curved to the fourth, and so on."""

    arrow: Arrow
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Layout:
    """A picture with the places of its parts. `texts` are those outside of boxes."""

    width: float
    height: float
    texts: tuple[Text, ...]
    lanes: tuple[Rect, ...]
    boxes: Mapping[str, PlacedBox]
    routes: tuple[Route, ...]


def layout_of(picture: Picture) -> Layout:
    """Find a place for every part of a picture."""
    return _Placing(picture).layout()


class _Placing:
    """A picture, and the lines, columns and heights that follow from it."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._texts = {name: _texts(box) for name, box in picture.boxes.items()}
        heights = {name: 2 * _PAD + _LINE * len(texts) for name, texts in self._texts.items()}
        self._stacks = Stacks(picture, heights)
        self._columns = list(self._place_lanes())
        self._width = self._columns[-1].right + _MARGIN
        self._captions = [part for one in picture.captions for part in self._caption(one)]
        self._top = _MARGIN + _LINE * len(self._captions) + _LANE_PAD + _HEADER

    def layout(self) -> Layout:
        bottom = self._top + self._stacks.height + _LANE_PAD
        top = self._top - _HEADER
        lanes = [Rect(one.x, top, one.width, bottom - top) for one in self._columns]
        boxes = {name: self._placed(name) for name in self._picture.boxes}
        routes = tuple(self._route(arrow, boxes) for arrow in self._picture.arrows)
        texts = (*self._written_captions(), *self._headers())
        return Layout(self._width, bottom + _MARGIN, texts, tuple(lanes), boxes, routes)

    def _place_lanes(self) -> Iterator[Rect]:
        """The lanes from left to right, without their heights."""
        x = float(_MARGIN)
        for lane in self._picture.lanes:
            x += ceil(text_width(lane.shuffle)) + 2 * _GAP_PAD if lane.shuffle else 0
            lines = [text.x + text_width(text.text) for box in lane.boxes for text in self._texts[box.name]]
            width = ceil(max([*lines, text_width(lane.title)])) + _PAD + 2 * _LANE_PAD
            yield Rect(x, 0, width, 0)
            x += width

    def _caption(self, text: str) -> list[str]:
        """Break a caption at the width of the picture."""
        return _broken(text, int((self._width - 2 * _MARGIN) / text_width("x")))

    def _written_captions(self) -> Iterator[Text]:
        for at, text in enumerate(self._captions):
            yield Text(_MARGIN, _MARGIN + _LINE * (at + 0.5), text)

    def _headers(self) -> Iterator[Text]:
        """The titles of the lanes, and the names of the shuffles between them."""
        y = self._top - _HEADER / 2
        for lane, column in zip(self._picture.lanes, self._columns, strict=True):
            yield Text(column.x + _LANE_PAD, y, lane.title)
            if lane.shuffle:
                yield Text(column.x - _GAP_PAD - text_width(lane.shuffle), y, lane.shuffle, Role.DETAIL)

    def _placed(self, name: str) -> PlacedBox:
        box, column = self._picture.boxes[name], self._columns[self._stacks.lane_of[name]]
        x, y = column.x + _LANE_PAD, self._top + self._stacks.y_of(name)
        texts = tuple(
            Text(x + text.x, y + _PAD + _LINE * (at + 0.5), text.text, text.role, text.of_input)
            for at, text in enumerate(self._texts[name])
        )
        # The first line of each input, or the title if there is no input.
        rows = [text.y for text in texts if text.of_input and not text.text.startswith(" ")]
        rect = Rect(x, y, column.width - 2 * _LANE_PAD, self._stacks.height_of(name))
        return PlacedBox(box, rect, texts, tuple(rows or [texts[0].y]))

    def _route(self, arrow: Arrow, boxes: Mapping[str, PlacedBox]) -> Route:
        start, end = boxes[arrow.start].rect, boxes[arrow.end]
        points = [(start.right, start.bottom - _PAD if arrow.dropped else start.y + start.height / 2)]
        for lane in self._stacks.passed(arrow):
            y = self._top + self._stacks.y_of_track(arrow, lane)
            points += [(self._columns[lane].x, y), (self._columns[lane].right, y)]
        points.append((end.rect.x, end.entries[arrow.input or 0]))
        return Route(arrow, tuple(points))


def _texts(box: Box) -> list[Text]:
    """The lines of a box, from its left side and without heights. Those that are too long are broken."""
    parts = [Text(_PAD, 0, part) for part in _broken(box.title)]
    for one in box.inputs:
        first, *further = _broken(one)
        parts.append(Text(_PAD, 0, f"▸ {first}", of_input=True))
        parts += [Text(_PAD, 0, f"  {part}", of_input=True) for part in further]
    return parts + [Text(_PAD, 0, part, line.role) for line in box.lines for part in _broken(line.text)]


def _broken(text: str, longest: int = _LONGEST) -> list[str]:
    """Break a text into lines. One with wide letters gets half as many of them."""
    is_wide = text_width(text) > text_width("x" * len(text))
    letters = max(1, longest // 2 if is_wide else longest)
    return textwrap.wrap(text, letters, break_on_hyphens=False) or [""]
