"""The node of retention."""

from __future__ import annotations

from dataclasses import dataclass

from tablestream.topology.nodes import Expression, OneParent


@dataclass(frozen=True, eq=False)
class Keep(OneParent):
    """A table that forgets, or freezes, the rows that have become too old."""

    keep_us: int
    """How much older than the newest row a row may be, in microseconds."""
    by: Expression | None = None
    """A row's time in microseconds since 1970, computed from the row; null: it never is too old. None: its
    timestamp."""
    wall_clock_us: int | None = None
    """The longest time that a row stays unchanged by the wall clock, in microseconds; None: no limit."""
    freezes: bool = False
    """Whether such rows stay as they are, instead of being deleted."""

    @property
    def meaning(self) -> str:
        by = "" if self.by is None else f" by {self.by.text}"
        clock = "" if self.wall_clock_us is None else f", {self.wall_clock_us} us on the clock"
        return f"{'freeze after' if self.freezes else 'keep'} {self.keep_us} us{by}{clock}"
