"""The picture of a plan as a value: lanes of boxes, and arrows between them. It says what is shown, not where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a box stands for."""

    SOURCE = "source"
    OPERATOR = "operator"
    OUTPUT = "output"


class Role(Enum):
    """What a line of text in a box tells."""

    DETAIL = "detail"
    STATE = "state"
    FIGURES = "figures"
    DROPS = "drops"


# The colours: dark text on light grounds, so that a picture can be read on a light and on a dark page.
PAGE, EDGE = "#ffffff", "#d0d7de"
LANE = "#f6f8fa"
TEXT, QUIET = "#1f2328", "#57606a"
DROPPED = "#a40e26"
#: The ground of each kind of box, and the line around it.
BOXES = {
    Kind.SOURCE: ("#ddf4ff", "#0969da"),
    Kind.OPERATOR: ("#ffffff", "#57606a"),
    Kind.OUTPUT: ("#dafbe1", "#1a7f37"),
}
LINES = {Role.DETAIL: QUIET, Role.STATE: "#6639ba", Role.FIGURES: "#0a5c2b", Role.DROPS: DROPPED}
#: The arrows of one box have one colour, so that they can be told from those of others.
ARROWS = ("#0969da", "#9a6700", "#1a7f37", "#8250df", "#bc4c00", "#57606a")


@dataclass(frozen=True)
class Line:
    """A line of text in a box."""

    text: str
    role: Role = Role.DETAIL


@dataclass(frozen=True)
class Box:
    """A source, an operator or an output."""

    name: str
    """Identifies it in the picture."""
    kind: Kind
    """What it stands for."""
    title: str
    """Its name in the plan."""
    inputs: tuple[str, ...] = ()
    """What arrives at each of its inputs. Empty: its arrows end at the title."""
    lines: tuple[Line, ...] = ()
    """What is written below the title and the inputs."""


@dataclass(frozen=True)
class Lane:
    """A column of boxes: the sources, a round, or the outputs.

    `shuffle`: the name of the shuffle before it; empty if there is none.
    """

    title: str
    boxes: tuple[Box, ...]
    shuffle: str = ""


@dataclass(frozen=True)
class Arrow:
    """Records on their way to a later lane: a shuffle."""

    start: str
    end: str
    """The names of two boxes."""
    input: int | None = None
    """Which input of `end` they are for. None: it has none."""
    dropped: bool = False
    """Whether they are rejected records."""


@dataclass(frozen=True)
class Picture:
    """A plan to be drawn. `captions` are lines about all of it."""

    captions: tuple[str, ...]
    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]

    @property
    def boxes(self) -> dict[str, Box]:
        """All boxes by name, lane by lane."""
        return {box.name: box for lane in self.lanes for box in lane.boxes}
