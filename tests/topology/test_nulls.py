"""Which parts of a key can be null, where a table has more parts than the one that it is made of."""

from __future__ import annotations

from tablestream.topology.nulls import nullable_key
from tests.plans.tables import counts, pointers, source, unfolded


def test_the_position_in_an_array_is_never_null() -> None:
    tables = [unfolded(table, pointers) for table in (source("A"), counts(source("A")))]
    assert [nullable_key(one) for one in tables] == [(False, False), (True, False)]
    assert [len(one.key) for one in tables] == [2, 2]
