"""A row whose foreign key has changed belongs to its new right row alone (KAFKA-9244)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans.engine import Engine, Output
from tests.plans.tables import Record, foreign_key_join, source


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_row_that_moved_is_not_changed_by_its_old_right_row(how: Any, *, compat: bool, apart: bool) -> None:
    """In one micro-batch, and with each record in one of its own."""
    left, right = source("L"), source("R")
    records = [
        Record(right, "x", "X", 1),
        Record(right, "y", "Y", 2),
        Record(left, "l", "a|x", 3),
        Record(left, "l", "a|y", 4),
        Record(right, "x", "X2", 5),
        Record(right, "x", None, 6),
        Record(right, "y", "Y2", 7),
    ]
    engine, found = Engine([Output(foreign_key_join(left, right, how))], compat), []
    for piece in [[one] for one in records] if apart else [records]:
        found += engine.run(piece)[0]
    assert [change.value for change in found] == ["(a|x,X)", "(a|y,Y)", "(a|y,Y2)"]
