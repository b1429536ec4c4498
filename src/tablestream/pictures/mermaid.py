"""A picture as a Mermaid flowchart: lanes are subgraphs, arrows have the names of the inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tablestream.pictures.colours import BOXES, DROPPED, EDGE, LANE, TEXT
from tablestream.pictures.picture import Arrow, Box, Kind, Picture

#: What has no meaning for Mermaid, nor for the HTML that it makes.
_PLAIN = re.compile(r"[\w ,.:()/=+-]", re.ASCII)


def mermaid_of(picture: Picture) -> str:
    """Return a picture as the text of a Mermaid flowchart."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield from ("---", f"title: {json.dumps('; '.join(picture.captions))}", "---", "flowchart LR")
    for number, lane in enumerate(picture.lanes, start=1):
        title = f"{lane.title}, after the {lane.shuffle}" if lane.shuffle else lane.title
        yield f'  subgraph lane{number}["{_escaped(title)}"]'
        yield from (f"    {box.name}{_text(box)}:::{box.kind.value}" for box in lane.boxes)
        yield "  end"
    boxes = picture.boxes
    yield from (f"  {_arrow(one, boxes[one.end])}" for one in picture.arrows)
    for kind, (fill, stroke) in BOXES.items():
        yield f"  classDef {kind.value} fill:{fill},stroke:{stroke},color:{TEXT},text-align:left"
    lanes = ",".join(f"lane{number}" for number in range(1, len(picture.lanes) + 1))
    yield f"  classDef lane fill:{LANE},stroke:{EDGE},color:{TEXT}"
    yield f"  class {lanes} lane"
    dropped = [str(number) for number, one in enumerate(picture.arrows) if one.dropped]
    if dropped:
        yield f"  linkStyle {','.join(dropped)} stroke:{DROPPED}"


def _text(box: Box) -> str:
    """A box with its title and lines. A source has the form of a store."""
    opening, closing = ("[(", ")]") if box.kind is Kind.SOURCE else ("[", "]")
    lines = [f"<b>{_escaped(box.title)}</b>", *(_escaped(line.text) for line in box.lines)]
    return f'{opening}"{"<br>".join(lines)}"{closing}'


def _arrow(arrow: Arrow, end: Box) -> str:
    if arrow.dropped:
        return f'{arrow.start} -. "dropped" .-> {arrow.end}'
    label = "" if arrow.input is None else f'|"{_escaped(end.inputs[arrow.input])}"|'
    return f"{arrow.start} -->{label} {arrow.end}"


def _escaped(text: str) -> str:
    """Write characters with a meaning as Mermaid's entities, which name them by their number."""
    return "".join(one if _PLAIN.match(one) else f"#{ord(one)};" for one in text)
