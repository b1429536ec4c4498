"""The order of boxes within the lanes of a picture, and their heights.

In each lane boxes and tracks stand in the order of what they are connected with, which avoids most crossings of
arrows. Then each moves to the height of what it is connected with, as far as the others leave room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean

from tablestream.pictures.picture import Arrow, Picture

_TRACK = 14
_BETWEEN = 16
_SWEEPS = 6


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
    """The lanes of a picture, each from above to below.

    Parameters
    ----------
    picture
        The picture.
    heights
        The height of each box.
    """

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
        """The height of the highest lane."""
        return max((lane[-1].y + lane[-1].height for lane in self._lanes if lane), default=0)

    def height_of(self, box: str) -> float:
        """The height of a box."""
        return self._boxes[box].height

    def y_of(self, box: str) -> float:
        """The upper side of a box."""
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
