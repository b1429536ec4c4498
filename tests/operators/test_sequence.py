"""The highest sequence wins: against a dictionary, cut at random, with tombstones that are forgotten in time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import polars as pl
import pytest

from tablestream.operators.operator import Context
from tablestream.operators.reasons import NULL_SEQUENCE, SUPERSEDED
from tablestream.operators.sequence import SequenceBy
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

OPERATOR = SequenceBy(pl.Schema({"_k0": pl.String()}), pl.Struct({"c0": pl.Int64()}), pl.Int64(), 10)
Record = tuple[str, int, int | None, int]
"""(key, sequence, value, time)"""


class Table:
    """The operator with a state that outlives it."""

    def __init__(self, operator: SequenceBy = OPERATOR) -> None:
        self.operator, self.store, self.dropped = operator, MemoryStore(), Counter[str]()
        self.observed: int | None = None

    def run(self, records: list[Any]) -> list[tuple[str, int | None]]:
        """Work off a micro-batch; return what is passed on."""
        (schema,) = self.operator.inputs
        rows = [
            {
                "_kh": sum(key.encode()), "_k0": key, "_ts": time, "_live": value is not None, "_sq": sequence,
                "v": None if value is None else {"c0": value}, "_seq": number, "_step": number,
            }
            for number, (key, sequence, value, time) in enumerate(records, 1)
        ]  # fmt: skip
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        state = ShardState(self.store, NoCache(), numbered_traces(self.operator.traces), "plan")
        context = Context(state.trace, self.dropped, self.observed)
        (emission,) = self.operator.run([frame], context)
        self.observed = context.observed
        state.commit()
        told = emission.rows.sort("_parent").to_dicts()
        return [(row["_k0"], None if row["v"] is None else row["v"]["c0"]) for row in told]


@pytest.mark.parametrize("pieces", [1, 9])
def test_what_a_dictionary_gives(pieces: int) -> None:
    rng = random.Random(pieces)
    records: list[Record] = [
        (rng.choice("ab"), rng.randrange(20), None if rng.random() < 0.3 else number, number // 2)
        for number in range(300)
    ]
    known: dict[str, tuple[int, int | None]] = {}
    wanted = []
    for key, sequence, value, time in records:
        before, end = known.get(key, (-1, None))
        if sequence >= before or (end is not None and end < time):
            known[key] = sequence, None if value is not None else time + 10
            wanted.append((key, value))
    table, got, size = Table(), [], -(-len(records) // pieces)
    for start in range(0, len(records), size):
        got += table.run(records[start : start + size])
    assert got == wanted
    assert table.dropped[SUPERSEDED] == len(records) - len(wanted) > 0


def test_equal_ones_the_last_wins_and_none_is_dropped() -> None:
    table = Table()
    assert table.run([("a", 5, 1, 0), ("a", 5, 2, 0), ("a", None, 3, 0), ("a", 4, 4, 0)]) == [
        ("a", 1),
        ("a", 2),
    ]
    assert table.dropped == {SUPERSEDED: 1, NULL_SEQUENCE: 1}


def test_a_tombstone_is_known_for_its_time_and_then_forgotten() -> None:
    table = Table()
    table.run([("a", 5, None, 0)])
    assert table.run([("a", 4, 1, 10)]) == []
    assert table.run([("b", 1, 1, 11), ("a", 4, 2, 11)]) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(pl.String(), "a", "b"), (pl.Float64(), 1.5, 2.0), (pl.Decimal(9, 2), 1, 2)]
)
def test_any_type_that_has_an_order(dtype: pl.DataType, low: Any, high: Any) -> None:
    table = Table(SequenceBy(OPERATOR.keys, OPERATOR.value, dtype, 10))
    assert table.run([("a", high, 1, 0), ("a", low, 2, 0)]) == [("a", 1)]
    assert table.run([("a", low, 3, 0), ("a", high, 4, 0)]) == [("a", 4)]


def test_a_tombstone_without_a_sequence_deletes_and_has_the_one_of_what_it_deletes() -> None:
    """A row below it does not come back. Where nothing is known, a tombstone leaves nothing behind."""
    for whole in (True, False):
        table, got = Table(), []
        records = [
            ("a", 5, 1, 0), ("a", None, None, 0), ("a", 4, 2, 0), ("b", None, None, 0), ("b", 0, 3, 0), ("a", 6, 4, 0),
        ]  # fmt: skip
        for part in [records] if whole else [[one] for one in records]:
            got += table.run(part)
        assert got == [("a", 1), ("a", None), ("b", None), ("b", 3), ("a", 4)]
        assert +table.dropped == {SUPERSEDED: 1}


def test_a_forgotten_sequence_is_not_that_of_a_tombstone() -> None:
    table = Table()
    table.run([("a", 5, None, 0), ("b", 1, 1, 11)])
    assert table.run([("a", None, None, 11), ("a", 3, 2, 11)]) == [("a", None), ("a", 2)]
