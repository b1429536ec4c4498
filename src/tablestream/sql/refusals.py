"""Why a query is refused: every reason, with its clause, its line and column, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tablestream.errors import SqlRefusedError, TablestreamError
from tablestream.topology.clauses import Written, made_for


@dataclass(frozen=True, order=True)
class Reason:
    """Why a part of a query cannot be maintained.

    Attributes
    ----------
    line, column
        Where the part begins; both count from 1.
    clause
        The clause, such as ``WHERE``.
    message, instead
        What is wrong, and what to write in its place: sentences.
    """

    line: int
    column: int
    clause: str
    message: str
    instead: str

    def __str__(self) -> str:
        return (
            f"line {self.line}, column {self.column} ({self.clause}): {self.message} {self.instead}".strip()
        )


class PartRefusedError(Exception):
    """A part of a query is refused. `Reasons.part` catches it, so that further parts are looked at."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass
class Reasons:
    """The reasons against a query, found so far.

    Attributes
    ----------
    text
        The query.
    written
        Returns the clause around a place, for the nodes that are made.
    """

    text: str
    written: Callable[[int], Written | None]
    found: list[Reason] = field(default_factory=list)

    def at(self, place: int, clause: str, message: str, instead: str = "") -> PartRefusedError:
        """Return what to raise for a part of the query that begins at a place of its text."""
        before = self.text[:place]
        column = place - before.rfind("\n")
        return PartRefusedError(Reason(before.count("\n") + 1, column, clause, message, instead))

    def add(self, error: PartRefusedError) -> None:
        """Note a reason once."""
        if error.reason not in self.found:
            self.found.append(error.reason)

    @contextmanager
    def part(self, place: int, clause: str) -> Iterator[None]:
        """Note why a part of the query is refused, and go on."""
        try:
            with self.placed(place, clause):
                yield
        except PartRefusedError as error:
            self.add(error)

    @contextmanager
    def placed(self, place: int, clause: str) -> Iterator[None]:
        """Give an error of the tables' methods, and the nodes that they make, their place in the query."""
        try:
            with made_for(self.written(place)):
                yield
        except SqlRefusedError:
            raise
        except TablestreamError as error:
            raise self.at(place, clause, error.reason, error.hint) from error

    def check(self, where: str) -> None:
        """Raise if there are reasons."""
        if self.found:
            raise refused(self.found, where)


def refused(reasons: Sequence[Reason], where: str) -> SqlRefusedError:
    """Return the error that says every reason, in the order of the text."""
    count = "one reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
    lines = "".join(f"\n  {one}" for one in sorted(reasons))
    error = SqlRefusedError(
        f"The query cannot be maintained, for {count}:{lines}",
        hint="See docs/sql.md for what is maintained.",
        where=where,
    )
    error.reasons = tuple(
        (one.line, one.column, f"{one.clause}: {one.message}", one.instead) for one in sorted(reasons)
    )
    return error
