"""The answer to why a table has a row."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from tablestream.pictures.svg import svg_of
from tablestream.provenance.finding import Finding
from tablestream.provenance.picture import picture_of
from tablestream.provenance.text import text_of

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
