"""Goes from the keys of a table back to the sources, by the rule of each step.

A rule gets all keys at once. So a group of many rows takes as many reads as there are tables, not as there are rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, NamedTuple, Protocol

from tablestream.planner.catalogue import StoredTable
from tablestream.provenance.finding import Asked, Derived, Finding, Key, Seen
from tablestream.provenance.steps import ROWS, Lineage, Step


class Row(NamedTuple):
    """A row in the state: key, columns, and time. `ended`: of a version, whether a later one replaced it."""

    key: Key
    value: Mapping[str, Any]
    at: Any = None
    ended: bool = False


class StateRows(Protocol):
    """Reads tables in the state."""

    def rows(
        self, table: StoredTable, keys: Sequence[Key], first: int = 0, limit: int | None = None
    ) -> Sequence[Row]:
        """Return the rows with some keys.

        Parameters
        ----------
        table
            The table.
        keys
            Values of some key columns that stand together.
        first
            The place of the first of these columns in the key.
        limit
            The most rows to return.
        """


Follow = Callable[["Walk", Step, Sequence[Asked]], list[Derived]]


@dataclass(frozen=True)
class Walk:
    """Finds rows, and what they were made of.

    Attributes
    ----------
    lineage
        The plan.
    state
        Reads its state.
    rules
        The rule of each kind of step.
    limit
        How many rows of a group are shown.
    """

    lineage: Lineage
    state: StateRows
    rules: Mapping[str, Follow] = field(repr=False)
    limit: int
    _found: dict[Any, Sequence[Row]] = field(default_factory=dict, init=False, repr=False)

    def find(self, name: str, asked: Sequence[Asked]) -> list[Finding]:
        """Find the rows of some keys."""
        step = self.lineage.steps[name]
        if not asked:
            return []
        known = self._known(step, asked)
        derived = self.rules[step.kind](self, step, known)
        return [_found(step, one, of) for one, of in zip(known, derived, strict=True)]

    def parents(self, step: Step, *asked: Sequence[Asked]) -> list[list[Finding]]:
        """Find rows of each input."""
        return [self.find(name, keys) for name, keys in zip(step.parents, asked, strict=True)]

    def title(self, name: str) -> str:
        """The name of a step as users know it."""
        return self.lineage.steps[name].title

    def kept(
        self, step: Step, role: str, keys: Sequence[Key], first: int = 0, limit: int | None = None
    ) -> dict[Key, list[Row]]:
        """Read a table of a step, by the part of the key that was asked for; no table has no rows."""
        found: dict[Key, list[Row]] = {key: [] for key in keys}
        table = self.lineage.tables.get(step.tables.get(role, ""))
        if table is None or not found:
            return found
        for row in self._read(table, tuple(found), first, limit):
            part = row.key[first : first + len(next(iter(found)))]
            for key, rows in found.items():
                if same(part, key) and not row.ended:
                    rows.append(row)
        return found

    def _read(
        self, table: StoredTable, keys: tuple[Key, ...], first: int, limit: int | None
    ) -> Sequence[Row]:
        """Read rows, the same ones once."""
        asked = (table.name, keys, first, limit)
        if asked not in self._found:
            self._found[asked] = self.state.rows(table, keys, first, limit)
        return self._found[asked]

    def _known(self, step: Step, asked: Sequence[Asked]) -> list[Asked]:
        """Look the rows up, where the state has those of the step."""
        if ROWS not in step.tables:
            return list(asked)
        rows = self.kept(step, ROWS, [one.key for one in asked])
        return [Asked(one.key, _seen(rows[one.key])) for one in asked]


def same(left: Key, right: Key) -> bool:
    """Whether two keys are equal: nulls are, and NaN; a date is its midnight."""
    return all(
        _timed(one) == _timed(other) or (is_nan(one) and is_nan(other))
        for one, other in zip(left, right, strict=True)
    )


def _timed(value: Any) -> Any:
    return datetime.combine(value, time()) if type(value) is date else value


def is_nan(value: Any) -> bool:
    """Whether a value is not a number."""
    return isinstance(value, float) and math.isnan(value)


def _seen(rows: Sequence[Row]) -> Seen:
    return Seen(True, rows[0].value, rows[0].at) if rows else Seen(False)


def _found(step: Step, asked: Asked, derived: Derived) -> Finding:
    """What the state has of a row comes first; what follows from its inputs fills the rest."""
    seen = asked.seen
    there = derived.there if seen is None else seen.there
    row = {**derived.row, **(seen.row if seen is not None else {})} if there else {}
    shown = {one.name: row[one.name] for one in step.value if one.name in row}
    texts = {one.name: one.text for one in step.columns}
    lacking = {one.name: texts.get(one.name, "") for one in step.value if one.name not in row}
    return Finding(
        table=step.title,
        what=step.words,
        key={one.name: value for one, value in zip(step.key, asked.key, strict=True)},
        there=there,
        row=shown,
        computed=lacking if there is not False else {},
        at=None if seen is None else seen.at,
        notes=derived.notes,
        made_of=derived.made_of,
    )
