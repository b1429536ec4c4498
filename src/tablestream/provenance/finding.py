"""What is found of a row: whether it is there, what is known of it, and what it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Seen:
    """A row in the state.

    Attributes
    ----------
    there
        Whether there is a row.
    row
        Its columns that are known.
    at
        Its time; None: it is not kept.
    """

    there: bool
    row: Mapping[str, Any] = field(default_factory=dict)
    at: Any = None


@dataclass(frozen=True)
class Asked:
    """A key that a rule is asked about, and what the state has under it; None: it does not have the step's rows."""

    key: Key
    seen: Seen | None = None


@dataclass(frozen=True)
class Finding:
    """A row of a table, and what it was made of.

    Attributes
    ----------
    table, what
        The table, and what it is, such as ``source`` or ``inner join``.
    key
        The key.
    there
        Whether there is such a row; None: the state does not tell.
    row
        The columns that are known.
    computed
        The expressions of the others, which the state does not keep.
    at
        The time of the row, where the state has it.
    notes
        What is missing, and what the state does not tell.
    made_of
        The rows of the inputs.
    """

    table: str
    what: str
    key: Mapping[str, Any]
    there: bool | None
    row: Mapping[str, Any] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    at: Any = None
    notes: tuple[str, ...] = ()
    made_of: tuple[Finding, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """The key, and the columns that are known."""
        return {**self.key, **self.row}

    @property
    def sources(self) -> Iterator[Finding]:
        """The rows of sources that are there, each once."""
        found: list[Finding] = []
        for one in self.every:
            if one.what == "source" and one.there and one not in found:
                found.append(one)
                yield one

    @property
    def facts(self) -> dict[str, Any]:
        """The finding for programs: mappings, lists and values."""
        facts = {"table": self.table, "what": self.what, "key": dict(self.key), "there": self.there}
        facts |= {"row": dict(self.row), "computed": dict(self.computed), "timestamp": self.at}
        return facts | {"notes": list(self.notes), "made_of": [one.facts for one in self.made_of]}

    @property
    def every(self) -> Iterator[Finding]:
        """The finding, and all behind it."""
        yield self
        for one in self.made_of:
            yield from one.every


@dataclass(frozen=True)
class Derived:
    """What a rule says of a key. The attributes are those of `Finding`; `row`: what follows from the inputs."""

    there: bool | None
    row: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made_of: tuple[Finding, ...] = ()
