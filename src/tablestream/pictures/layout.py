"""Where the parts of a picture are: lanes from left to right, boxes below each other, arrows through the gaps.

A box is as high as its lines and as wide as the widest of its lane. An arrow that passes a lane without ending there
goes through a free strip between the lane's boxes, the *track* of the box where it starts. So an arrow crosses other
arrows, and never a box.

The width of a text is an estimate, for a font whose letters all have one width: see `text_width`.

In each lane boxes and tracks stand in the order of what they are connected with, which avoids most crossings of
arrows. Then each moves to the height of what it is connected with, as far as the others leave room.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter
from statistics import fmean

from tablestream.pictures.picture import Arrow, Box, Picture, Role

FONT_PX = 12
#: Common fonts of one width have letters of 0.55 to 0.602 em.
_LETTER_EM = 0.61
#: The longest line of a box, in letters; longer ones are broken.
_LONGEST = 44

_LINE, _PAD = 17, 10
_MARGIN, _LANE_PAD, _HEADER = 12, 12, 30
#: Around the name of a shuffle, which is between two lanes.
_GAP_PAD = 14
_TRACK = 14
_BETWEEN = 16
_SWEEPS = 6


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
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True)
class PlacedText:
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
    texts: tuple[PlacedText, ...]
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
    texts: tuple[PlacedText, ...]
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

    def _written_captions(self) -> Iterator[PlacedText]:
        for at, text in enumerate(self._captions):
            yield PlacedText(_MARGIN, _MARGIN + _LINE * (at + 0.5), text)

    def _headers(self) -> Iterator[PlacedText]:
        """The titles of the lanes, and the names of the shuffles between them."""
        y = self._top - _HEADER / 2
        for lane, column in zip(self._picture.lanes, self._columns, strict=True):
            yield PlacedText(column.x + _LANE_PAD, y, lane.title)
            if lane.shuffle:
                yield PlacedText(column.x - _GAP_PAD - text_width(lane.shuffle), y, lane.shuffle, Role.DETAIL)

    def _placed(self, name: str) -> PlacedBox:
        box, column = self._picture.boxes[name], self._columns[self._stacks.lane_of[name]]
        x, y = column.x + _LANE_PAD, self._top + self._stacks.y_of(name)
        texts = tuple(
            PlacedText(x + text.x, y + _PAD + _LINE * (at + 0.5), text.text, text.role, text.of_input)
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


def _texts(box: Box) -> list[PlacedText]:
    """The lines of a box, from its left side and without heights. Those that are too long are broken."""
    parts = [PlacedText(_PAD, 0, part) for part in _broken(box.title)]
    for one in box.inputs:
        first, *further = _broken(one)
        parts.append(PlacedText(_PAD, 0, f"▸ {first}", of_input=True))
        parts += [PlacedText(_PAD, 0, f"  {part}", of_input=True) for part in further]
    return parts + [PlacedText(_PAD, 0, part, line.role) for line in box.lines for part in _broken(line.text)]


def _broken(text: str, longest: int = _LONGEST) -> list[str]:
    """Break a text into lines. One with wide letters gets half as many of them."""
    is_wide = text_width(text) > text_width("x" * len(text))
    letters = max(1, longest // 2 if is_wide else longest)
    return textwrap.wrap(text, letters, break_on_hyphens=False) or [""]


@dataclass(eq=False)
class _Item:
    """A box in a lane, or a track through it, and its neighbours in other lanes. `place`: from 0, above, to 1."""

    height: float
    left: list[_Item] = field(default_factory=list)
    right: list[_Item] = field(default_factory=list)
    place: float = 0
    y: float = 0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class Stacks:
    """The lanes of a picture, each from above to below, made of the height of each box."""

    def __init__(self, picture: Picture, heights: Mapping[str, float]) -> None:
        self.lane_of = {box.name: at for at, lane in enumerate(picture.lanes) for box in lane.boxes}
        self._boxes = {name: _Item(height) for name, height in heights.items()}
        self._lanes = [[self._boxes[box.name] for box in lane.boxes] for lane in picture.lanes]
        self._tracks: dict[tuple[str, bool, int], _Item] = {}
        for arrow in picture.arrows:
            self._connect(arrow)
        self._order()
        self._place()

    @property
    def height(self) -> float:
        return max((lane[-1].y + lane[-1].height for lane in self._lanes if lane), default=0)

    def height_of(self, box: str) -> float:
        return self._boxes[box].height

    def y_of(self, box: str) -> float:
        return self._boxes[box].y

    def passed(self, arrow: Arrow) -> range:
        """The lanes that an arrow passes."""
        return range(self.lane_of[arrow.start] + 1, self.lane_of[arrow.end])

    def y_of_track(self, arrow: Arrow, lane: int) -> float:
        """The height at which an arrow passes a lane."""
        return self._tracks[arrow.start, arrow.dropped, lane].middle

    def _connect(self, arrow: Arrow) -> None:
        """Connect two boxes. Rejected records do not share the track of the others."""
        item = self._boxes[arrow.start]
        for lane in self.passed(arrow):
            track = arrow.start, arrow.dropped, lane
            if track not in self._tracks:
                self._tracks[track] = _Item(_TRACK)
                self._lanes[lane].append(self._tracks[track])
            item = _joined(item, self._tracks[track])
        _joined(item, self._boxes[arrow.end])

    def _order(self) -> None:
        """Sort each lane by its neighbours on the left, then on the right, until that settles."""
        for lane in self._lanes:
            _set_places(lane)
        for lane, neighbours in self._sweeps():
            lane.sort(key=lambda item: fmean([one.place for one in neighbours(item)] or [item.place]))
            _set_places(lane)

    def _sweeps(self) -> Iterator[tuple[list[_Item], Callable[[_Item], list[_Item]]]]:
        """The lanes from left to right with the neighbours on the left, then the other way round, and so on."""
        for sweep in range(_SWEEPS):
            side = "right" if sweep % 2 else "left"
            yield from ((lane, attrgetter(side)) for lane in self._lanes[:: -1 if sweep % 2 else 1])

    def _place(self) -> None:
        """Stack the lanes, and move each item towards its neighbours."""
        for lane in self._lanes:
            _stack(lane, [0.0] * len(lane))
        for lane, neighbours in self._sweeps():
            _stack(lane, [_wanted(item, neighbours(item)) for item in lane])
        top = min((lane[0].y for lane in self._lanes if lane), default=0)
        for item in (item for lane in self._lanes for item in lane):
            item.y -= top


def _joined(left: _Item, right: _Item) -> _Item:
    """Connect two items, and return the second."""
    left.right.append(right)
    right.left.append(left)
    return right


def _set_places(lane: Sequence[_Item]) -> None:
    for at, item in enumerate(lane):
        item.place = at / max(1, len(lane) - 1)


def _wanted(item: _Item, neighbours: Sequence[_Item]) -> float:
    """The height that an item should have: beside the middle of its neighbours."""
    return fmean([one.middle for one in neighbours] or [item.middle]) - item.height / 2


def _stack(lane: Sequence[_Item], wanted: Sequence[float]) -> None:
    """Place items below each other, as near to the wanted heights as their order allows."""
    groups: list[list[tuple[_Item, float]]] = []
    for pair in zip(lane, wanted, strict=True):
        groups.append([pair])
        # What would overlap becomes one group, at the mean of what its items want.
        while len(groups) > 1 and _begin(groups[-2]) + _length(groups[-2]) + _BETWEEN > _begin(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    for group in groups:
        y: float = round(_begin(group))  # whole pixels: lines are sharp
        for item, _ in group:
            item.y, y = y, y + item.height + _BETWEEN


def _begin(group: Sequence[tuple[_Item, float]]) -> float:
    """The upper side of a group: where its items are nearest to what they want."""
    above, found = 0.0, []
    for item, wanted in group:
        found.append(wanted - above)
        above += item.height + _BETWEEN
    return fmean(found)


def _length(group: Sequence[tuple[_Item, float]]) -> float:
    return sum(item.height for item, _ in group) + _BETWEEN * (len(group) - 1)
