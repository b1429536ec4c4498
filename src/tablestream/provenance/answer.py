"""The answer to why a table has a row: as text, with a line for each row, and as a picture, with a box for each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tablestream.pictures.picture import Arrow, Box, Kind, Lane, Line, Picture, Role
from tablestream.pictures.svg import svg_of
from tablestream.provenance.finding import Finding

_INDENT = "  "
#: Beyond so many rows a picture says less than the text, and takes seconds to draw.
_MOST_BOXES = 200


def _with_texts(value: Any) -> Any:
    """A value in which numbers that JSON lacks are texts."""
    if isinstance(value, dict):
        return {name: _with_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Why:
    """A row of a table, or that there is none, and what it was made of. Notebooks show it as a picture.

    Attributes
    ----------
    finding
        The row; its ``made_of`` are the rows of the table's inputs, and so on.
    micro_batch
        The micro-batch after which this was so.
    """

    finding: Finding
    micro_batch: int

    @property
    def there(self) -> bool | None:
        """Whether there is a row; None: the state does not tell."""
        return self.finding.there

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of sources that it was made of: table, key, row (the columns that are known) and timestamp."""
        names = ("table", "key", "row", "timestamp")
        return [{name: one.facts[name] for name in names} for one in self.finding.sources]

    @property
    def facts(self) -> dict[str, Any]:
        """The whole answer as mappings and lists."""
        return {"micro_batch": self.micro_batch, **self.finding.facts}

    def to_json(self) -> str:
        """Return the whole answer as a JSON object. Times and other values without a form in JSON are texts."""
        return json.dumps(_with_texts(self.facts), default=str, allow_nan=False)

    @property
    def svg(self) -> str:
        """The answer as an SVG image: a box for each row, and arrows from the rows that it was made of."""
        return svg_of(picture_of(self.finding, f"After micro-batch {self.micro_batch}"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What notebooks show: the picture, or the text where there are no images or too many rows for one."""
        del include, exclude  # the caller chooses among them
        is_large = sum(1 for _ in self.finding.every) > _MOST_BOXES
        return {"text/plain": str(self)} | ({} if is_large else {"image/svg+xml": self.svg})

    def __str__(self) -> str:
        """The answer as text: a line for each row, what it was made of below it."""
        return text_of(self.finding)


def text_of(finding: Finding) -> str:
    """Write a finding, and all behind it.

    Examples
    --------
    >>> row = Finding("tickers", "source", {"ticker": "A"}, there=True, row={"price": 2.5})
    >>> print(text_of(row))
    tickers (source) ticker=A: price=2.5
    """
    return "\n".join(_lines(finding, 0))


def _lines(finding: Finding, depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    key = f" {key_text(finding)}" if finding.key else ""
    yield f"{indent}{finding.table} ({finding.what}){key}: {row_text(finding)}"
    for note in finding.notes:
        yield f"{indent}{_INDENT}- {note}"
    for one in finding.made_of:
        yield from _lines(one, depth + 1)


def key_text(finding: Finding) -> str:
    """Write the key of a row."""
    return _pairs(finding.key)


def row_text(finding: Finding) -> str:
    """Write what is known of a row: its columns, and which of them are computed."""
    if finding.there is False:
        return "no row"
    known = [_pairs(finding.row)] if finding.row else []
    computed = [name if not text else f"{name} = {text}" for name, text in finding.computed.items()]
    if computed:
        known.append(f"not in the state: {', '.join(computed)}")
    time = [f"at {finding.at}"] if finding.at is not None else []
    word = [] if finding.there else ["not known whether there is a row"]
    return "; ".join((*word, *(known if finding.there else []), *time)) or "a row"


def _pairs(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in columns.items())


def _shown(value: Any) -> str:
    """A value on one line."""
    return (
        "null"
        if value is None
        else str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    )


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
