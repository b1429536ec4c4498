"""The operator that a user builds and the line where: what an error says beside its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tablestream.errors import TablestreamError

Refused = TypeVar("Refused", bound=TablestreamError)


@dataclass(frozen=True)
class Place:
    """Where an error belongs.

    Attributes
    ----------
    operator
        The name of the table or operator.
    where
        The user's line.
    """

    operator: str
    where: str

    def error(self, kind: type[Refused], message: str, hint: str) -> Refused:
        """Return an error of this place."""
        return kind(message, hint=hint, operator=self.operator, where=self.where)


#: Of an error that says no place.
NOWHERE = Place("", "")
