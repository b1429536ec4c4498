"""Star joins: one output a change and row, with all right rows as they are then, and the rows of the chain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_first
from tests.plans.comparing import assert_once_per_key_and_step
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Change, foreign_key_join, pair, points, source, starred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import How, Node, Source
    from tests.plans.tables import ForeignKey, Key, Record, Value

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
SIZE = 200


@dataclass
class Brute:
    """The same by hand: what every record changes, computed from whole tables."""

    center: Source
    joins: Sequence[tuple[Source, How, ForeignKey]]
    compat: bool = False
    tables: dict[Source, dict[Key, tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with empty tables."""
        self.tables = {one: {} for one in (self.center, *(table for table, _, _ in self.joins))}

    def changes(self, record: Record) -> list[Change]:
        """The rows of the result that a record changes or reaches, in any order."""
        if record.parts is None:
            return []
        before = {key: self.row(key) for key in self.tables[self.center]}
        rows = self.tables[record.source]
        if not self.compat and record.parts in rows and rows[record.parts][0] == record.value:
            return []
        rows.pop(record.parts, None)
        if record.value is not None:
            rows[record.parts] = record.value, record.ts
        if record.source is self.center:
            reached = [record.parts]
            times = [record.ts]
            if record.value is not None:
                times += [right[1] for right in self.rights(record.parts) if right is not None]
            time = max(times)
        else:
            reached = [key for key in self.tables[self.center] if self.points_at(key, record)]
            time = record.ts
        found = []
        for key in reached:
            value = self.row(key)
            if value is not None or before.get(key) is not None:
                found.append(Change(key, value, time))
        return found

    def points_at(self, key: Key, record: Record) -> bool:
        """Whether a row of the center points at the record's key."""
        value, _ = self.tables[self.center][key]
        return any(
            table is record.source and (on(value, key),) == record.parts for table, _, on in self.joins
        )

    def rights(self, key: Key) -> list[tuple[str, int] | None]:
        """The right rows of a row of the center."""
        value, _ = self.tables[self.center][key]
        pointed = [(table, (on(value, key),)) for table, _, on in self.joins]
        return [self.tables[table].get(parts) for table, parts in pointed]  # type: ignore[arg-type]

    def row(self, key: Key) -> Value:
        """The row of the result with a key."""
        if key not in self.tables[self.center]:
            return None
        value: Value = self.tables[self.center][key][0]
        for (_, how, _), right in zip(self.joins, self.rights(key), strict=True):
            if right is None and how == "inner":
                return None
            value = pair(value, None if right is None else right[0])
        return value


def rows_of(steps: Sequence[Step]) -> dict[Key, Value]:
    """The table that changes lead to."""
    table: dict[Key, Value] = {}
    for _, change in steps:
        table[change.key] = change.value
    return {key: value for key, value in table.items() if value is not None}


@both_modes
@pytest.mark.parametrize("copied", quick_first([False, True]), ids=["distributed", "global"])
@pytest.mark.parametrize(
    "hows", [("left", "left", "left"), ("inner", "left", "inner")], ids=["left", "mixed"]
)
def test_a_change_gives_one_row_with_all_right_rows_as_they_are_then(
    hows: tuple[How, ...], copied: bool, *, compat: bool
) -> None:
    center, *rights = (source(name) for name in "LABC")
    pointers = (points(0), points(1), points(0))
    joins = list(zip(rights, hows, pointers, strict=True))
    log = random_log([center, center, center, *rights], 3, SIZE)
    engine = Engine([Output(starred(center, *joins, copied=copied))], compat=compat)
    brute = Brute(center, joins, compat)
    got: list[Step] = []
    for piece in random_cuts(log, 5, 3):
        got += engine.steps(piece)[0]
        engine = engine.restarted()
    assert_once_per_key_and_step(got)
    wanted = [Step(n, change) for n, record in enumerate(log, 1) for change in brute.changes(record)]
    # A right change that is needed and missing is told again, as by every inner join.
    told = {(n, change.key) for n, change in wanted}
    got = [step for step in got if step.change.value is not None or (step.number, step.change.key) in told]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("how", quick_first(["left", "inner"]))
def test_the_rows_are_those_of_the_chain(how: How) -> None:
    center, *rights = (source(name) for name in "LABCD")
    joins = [(table, how, points(number % 2)) for number, table in enumerate(rights)]
    chain: Node = center
    for table, _, on in joins:
        chain = foreign_key_join(chain, table, how, _of_first(on))
    engine = Engine([Output(starred(center, *joins)), Output(chain)])
    star: list[Step] = []
    chained: list[Step] = []
    rows = 0
    for piece in random_cuts(random_log([center, *rights], 9, SIZE, worlds=1), 1, 20):
        for told, new in zip((star, chained), engine.steps(piece), strict=True):
            told.extend(new)
        assert rows_of(star) == rows_of(chained)
        rows += len(rows_of(star))
    assert rows


def _of_first(on: ForeignKey) -> ForeignKey:
    """Point as the center's value does, which stands first in the value of a pair."""

    def pointer(value: str, key: Key) -> str | Key | None:
        return on(value.lstrip("(").split(",")[0], key)

    return pointer


def test_it_takes_one_round_more_than_one_join() -> None:
    center, *rights = (source(name) for name in "LABCD")
    star = starred(center, *((table, "left", points(0)) for table in rights))
    assert len(Engine([Output(star)]).plan.rounds) == 3
    assert len(Engine([Output(foreign_key_join(center, rights[0], "left"))]).plan.rounds) == 2


def test_a_table_that_points_at_itself_twice() -> None:
    table = source("L")
    joins = [(table, "left", points(0)), (table, "inner", points(1))]
    log = random_log([table], 4, SIZE)
    (got,) = Engine([Output(starred(table, *joins))]).steps(log)  # type: ignore[arg-type]
    assert_once_per_key_and_step(got)
    brute = Brute(table, joins)  # type: ignore[arg-type]
    for record in log:
        brute.changes(record)
    final = {key: brute.row(key) for key in brute.tables[table]}
    assert rows_of(got) == {key: value for key, value in final.items() if value is not None}
