"""The colours of pictures: dark text on light grounds, so that a picture can be read on a light and on a dark page."""

from __future__ import annotations

from tablestream.pictures.picture import Kind, Role

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
