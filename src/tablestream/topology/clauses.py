"""The clauses of a query in SQL, which the nodes that they become carry: `explain` lists them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Clause:
    """A clause of a query: its place, ``line:column``, and the beginning of its text."""

    place: str
    text: str


@dataclass(frozen=True, eq=False)
class Clauses:
    """The clauses of one query, in the order of its text; `where` is the user's line that made it."""

    where: str
    clauses: tuple[Clause, ...]


#: A query, and which of its clauses.
Written = tuple[Clauses, int]
_written: ContextVar[Written | None] = ContextVar("clause", default=None)


def clause_now() -> Written | None:
    """Return the clause that nodes are made for; None outside SQL."""
    return _written.get()


@contextmanager
def made_for(clause: Written | None) -> Iterator[None]:
    """Say for a while that nodes are made for a clause; None: for the one around it."""
    token = _written.set(clause or _written.get())
    try:
        yield
    finally:
        _written.reset(token)
