"""A plan as a picture that users hold: its Mermaid and SVG texts, shown by notebooks and saved as files.

In a Mermaid flowchart lanes are subgraphs, and arrows have the names of the inputs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import QueryMetrics
from tablestream.pictures.figures import Figures
from tablestream.pictures.of_plan import picture_of
from tablestream.pictures.picture import BOXES, DROPPED, EDGE, LANE, TEXT, Arrow, Box, Kind, Picture
from tablestream.pictures.svg import svg_of
from tablestream.planner.physical_plan import PhysicalPlan

#: What has no meaning for Mermaid, nor for the HTML that it makes.
_PLAIN = re.compile(r"[\w ,.:()/=+-]", re.ASCII)


@dataclass(frozen=True)
class Diagram:
    """A picture of a plan, made by `Table.diagram` and `diagram`. Notebooks show it, and `str` is its Mermaid text.

    Lanes are the sources, the rounds and the outputs, from left to right. Each arrow from a lane to a later one is a
    shuffle. Each operator has its name, its inputs, and what it remembers.

    Attributes
    ----------
    mermaid
        A Mermaid flowchart, for Markdown.
    svg
        An SVG image, complete in itself, for any page.

    Examples
    --------
    >>> import tablestream as ts
    >>> diagram = ts.Diagram("flowchart LR", "<svg/>")
    >>> print(diagram)
    flowchart LR
    >>> diagram.save("plan.svg")
    """

    mermaid: str
    svg: str = field(repr=False)

    @classmethod
    def of(cls, plan: PhysicalPlan, metrics: QueryMetrics | Iterable[QueryMetrics] | None = None) -> Diagram:
        """Draw a plan; with the `metrics` of a query that ran it, with what its operators did."""
        picture = picture_of(plan, None if metrics is None else Figures.of(metrics))
        return cls(mermaid_of(picture), svg_of(picture))

    def __str__(self) -> str:
        return self.mermaid

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file.

        Parameters
        ----------
        path
            A file with the suffix ``.svg``, ``.mmd`` or ``.mermaid``, which decides the format.

        Raises
        ------
        ArgumentError
            The suffix is another one.
        """
        texts = {".svg": self.svg, ".mmd": self.mermaid, ".mermaid": self.mermaid}
        text = texts.get(Path(path).suffix.lower())
        if text is None:
            raise ArgumentError(
                f"{os.fspath(path)} does not say in which format a diagram is to be written.",
                hint=f"Give the file one of the suffixes {', '.join(texts)}.",
            )
        Path(path).write_text(text, encoding="utf-8")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What notebooks show: the image, or the Mermaid text where there are no images."""
        del include, exclude  # the caller chooses among them
        return {"image/svg+xml": self.svg, "text/plain": self.mermaid}


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
