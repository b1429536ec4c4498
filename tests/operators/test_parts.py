"""Results that grow with their group: a group of many rows does not need memory for all of its results at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tablestream.operators.operator import Context, Operator
from tablestream.operators.reduce import parts
from tablestream.operators.reduce.aggregate import Aggregate
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.fold import Fold, UserFunctions
from tablestream.operators.reduce.ranking import Order
from tablestream.operators.reduce.top import Top
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS, GROUPS = pl.Schema({"_k0": pl.String()}), pl.Schema({"_f0": pl.String()})
VALUE = pl.Struct({"c0": pl.String()})
#: Ranks take far longer than the others.
ROWS, PART = {"top": 400}, 200_000
JOINED = UserFunctions(lambda: "", lambda _, row, text: text + row.v, lambda *_: "", ("k",), ("v",), ("v",))


def listed(kind: Kind, **options: bool) -> Aggregate:
    return Aggregate(KEYS, GROUPS, VALUE, (Collected(kind, "c0", pl.List(pl.String())),), **options)


def top(**options: bool) -> Top:
    order = Order(("c0",), (True,), newest_first=False, keeps_nulls=True)
    return Top(KEYS, GROUPS, VALUE, VALUE, order, 1000, **options)


MADE: dict[str, Callable[..., Operator]] = {
    "collect_list": lambda **options: listed(Kind.COLLECT_LIST, **options),
    "collect_set": lambda **options: listed(Kind.COLLECT_SET, **options),
    "functions": lambda **options: Fold(KEYS, GROUPS, VALUE, VALUE, JOINED, **options),
    "top": top,
}


def emissions(operator: Any, rows: int) -> list[pl.DataFrame]:
    """What the rows of one group make that come in one micro-batch, one after the other."""
    numbers = range(1, rows + 1)
    columns = {
        "_fh": [1] * rows,
        "_f0": ["p"] * rows,
        "_kh": list(numbers),
        "_k0": [f"{number}" for number in numbers],
        "_ts": [1] * rows,
        "_was": [False] * rows,
        "_is": [True] * rows,
        "old": [None] * rows,
        "v": [{"c0": f"{number:06}"} for number in numbers],
        "_seq": list(numbers),
        "_step": list(numbers),
    }
    schema = {**operator.inputs[0], "_seq": pl.Int64, "_step": pl.Int64}
    arrived = pl.DataFrame({name: columns[name] for name in schema}, schema=schema)
    state = ShardState(MemoryStore(), NoCache(), numbered_traces(operator.traces), "f00d")
    return [one.rows for one in operator.run([arrived], Context(state.trace, Counter()))]


@pytest.mark.parametrize("name", MADE)
def test_no_emission_is_much_larger_than_a_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", PART)
    found = emissions(MADE[name](), ROWS.get(name, 1500))
    sizes = [rows.estimated_size() for rows in found]
    assert sum(sizes) > 5 * PART
    assert max(sizes) < 3 * PART


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("option", ["final", "thin"])
def test_readers_of_the_last_row_get_it_alone(name: str, option: str) -> None:
    found = emissions(MADE[name](**{option: True}), 100)
    assert sum(rows.height for rows in found) == (100 if name == "top" else 1)
