"""The picture of a finding: a box for each row, and arrows from the rows that it was made of, which are to its left."""

from __future__ import annotations

from collections.abc import Iterator

from tablestream.pictures.picture import Arrow, Box, Kind, Lane, Line, Picture, Role
from tablestream.provenance.finding import Finding
from tablestream.provenance.text import key_text, row_text


def picture_of(finding: Finding, caption: str) -> Picture:
    """Return the picture of a finding and all behind it."""
    drawing = _Drawing(finding)
    return Picture((caption,), tuple(drawing.lanes()), tuple(drawing.arrows))


class _Drawing:
    """The boxes of a finding and of all behind it, by how far each is from the rows at the left."""

    def __init__(self, finding: Finding) -> None:
        self._boxes: list[list[Box]] = []
        self.arrows: list[Arrow] = []
        self._add(finding, asked=True)

    def lanes(self) -> Iterator[Lane]:
        *parts, (asked,) = self._boxes
        for number, boxes in enumerate(parts):
            yield Lane("" if number else "What it was made of", tuple(boxes))
        yield Lane("The row", (asked,))

    def _add(self, finding: Finding, *, asked: bool) -> tuple[str, int]:
        """Draw a finding; return the name of its box, and its lane."""
        parts = [self._add(one, asked=False) for one in finding.made_of]
        lane = max((1 + lane for _, lane in parts), default=0)
        name = f"row{sum(map(len, self._boxes))}"
        self.arrows += [Arrow(start, name) for start, _ in parts]
        if lane == len(self._boxes):
            self._boxes.append([])
        self._boxes[lane].append(_box(name, finding, asked=asked))
        return name, lane


def _box(name: str, finding: Finding, *, asked: bool) -> Box:
    """A row: its table, its key, what is known of it, and what is said about it."""
    kind = Kind.OUTPUT if asked else Kind.SOURCE if finding.what == "source" else Kind.OPERATOR
    key = [Line(key_text(finding))] if finding.key else []
    state = Line(row_text(finding), Role.DROPS if finding.there is False else Role.FIGURES)
    notes = [Line(one, Role.STATE) for one in finding.notes]
    return Box(name, kind, f"{finding.table} ({finding.what})", lines=(*key, state, *notes))
