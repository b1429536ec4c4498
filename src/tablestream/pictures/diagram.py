"""A plan as a picture that users hold: its Mermaid and SVG texts, shown by notebooks and saved as files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import QueryMetrics
from tablestream.pictures.figures import Figures
from tablestream.pictures.mermaid import mermaid_of
from tablestream.pictures.of_plan import picture_of
from tablestream.pictures.svg import svg_of
from tablestream.planner.physical_plan import PhysicalPlan


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
                where=user_line(),
            )
        Path(path).write_text(text, encoding="utf-8")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What notebooks show: the image, or the Mermaid text where there are no images."""
        del include, exclude  # the caller chooses among them
        return {"image/svg+xml": self.svg, "text/plain": self.mermaid}
