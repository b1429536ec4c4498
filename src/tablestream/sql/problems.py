"""What is wrong with a file of statements: each thing with its place, so that one error tells all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where in the text, what, and what to do."""

    at: int
    message: str
    hint: str


class MistakeError(Exception):
    """Ends the reading of a statement; the others are read all the same."""

    def __init__(self, at: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.problem = Problem(at, message, hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the most similar name, or nothing.

    Examples
    --------
    >>> nearest("timestmp", ["timestamp", "path"])
    'Did you mean timestamp?'
    """
    named = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), named, n=1)
    return f"Did you mean {named[found[0]]}?" if found else ""
