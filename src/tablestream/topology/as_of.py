"""The time as of which the rows of a table are joined with a versioned table."""

from __future__ import annotations

from dataclasses import dataclass

from tablestream.topology.nodes import Expression


@dataclass(frozen=True)
class AsOf:
    """The time as of which a row is joined with a versioned table.

    Attributes
    ----------
    micros
        Microseconds since 1970, computed from the row; null: the row points at nothing.
    forward
        Whether it is joined with the first version from that time on, instead of the last one up to it.
    text
        What the user wrote.
    """

    micros: Expression
    forward: bool
    text: str
