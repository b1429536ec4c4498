"""Change feeds: what a version leaves counts, whatever the order of its changes and however it is cut."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.captured.capture import CAPTURE, DELETE, FIELDS, UPSERT
from tablestream.operators.captured.captured_table import CapturedTable
from tablestream.operators.operator import NUMBER, PARENT
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS
from tests.cdc.operators import Shard

Rows = dict[int, int]
KEYS, VALUE = pl.Schema({"_k0": pl.Int64()}), pl.Struct({"c0": pl.Int64()})
TABLE = CapturedTable(KEYS, VALUE, ("n",), follows_moves=False, truncates="drop", commits=True)
#: A change: version, rank (0: what the version found), key, value.
Change = tuple[int, int, int, int]


class Feed:
    """A table that follows a change feed."""

    def __init__(self) -> None:
        self.shard = Shard(TABLE)
        self.rows: Rows = {}

    def run(self, changes: list[Change]) -> list[tuple[int, int | None]]:
        """Process a micro-batch; return the changes of the table."""
        messages = [self._message(number, *one) for number, one in enumerate(sorted(changes), start=1)]
        capture = {SEQ: pl.Int64(), STEP: pl.Int64(), **TABLE.inputs[0]}
        control = {SEQ: pl.Int64(), STEP: pl.Int64(), **TABLE.inputs[1]}
        inputs = [pl.DataFrame(messages, schema=capture), pl.DataFrame(schema=control)]
        (found,) = self.shard.run(inputs, Counter(), (0, 1))
        found = found.sort(PARENT, NUMBER)
        emitted = []
        for key, live, value in found.select("_k0", LIVE, "v").iter_rows():
            emitted.append((key, value["c0"] if live else None))
            if live:
                self.rows[key] = value["c0"]
            else:
                del self.rows[key]
        return emitted

    def _message(self, number: int, version: int, rank: int, key: int, value: int) -> dict[str, object]:
        position = f"{version:020d}:{0:020d}"
        said = dict.fromkeys(FIELDS) | {
            "op": UPSERT if rank else DELETE,
            "position": position,
            "partition": 0,
        }
        row = {"c0": value} if rank else None
        return {
            SEQ: number,
            STEP: number,
            KEY_HASH: key,
            "_k0": key,
            TS: version,
            LIVE: bool(rank),
            CAPTURE: said,
            "v": row,
        }


def changes_between(version: int, before: Rows, after: Rows, touched: frozenset[int]) -> list[Change]:
    """What a feed has of a version; rows that were only touched were deleted and inserted."""
    differ = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} | touched
    gone = [(version, 0, key, before[key]) for key in differ if key in before]
    return gone + [(version, 1, key, after[key]) for key in differ if key in after]


def test_a_version_that_deletes_and_inserts_the_same_row_emits_nothing() -> None:
    feed = Feed()
    assert feed.run([(1, 1, 7, 70)]) == [(7, 70)]
    assert feed.run([(2, 1, 7, 70), (2, 0, 7, 70)]) == []


def test_an_update_is_one_change() -> None:
    feed = Feed()
    assert feed.run([(1, 1, 7, 70), (2, 0, 7, 70), (2, 1, 7, 71)]) == [(7, 70), (7, 71)]


def test_an_update_of_the_key_deletes_the_row_under_the_old_key() -> None:
    feed = Feed()
    feed.run([(1, 1, 7, 70)])
    feed.run([(2, 0, 7, 70), (2, 1, 8, 70)])
    assert feed.rows == {8: 70}


def test_a_version_that_comes_again_is_dropped() -> None:
    feed = Feed()
    feed.run([(1, 1, 7, 70), (2, 0, 7, 70)])
    assert feed.run([(1, 1, 7, 70)]) == []


_TABLES = st.dictionaries(st.integers(0, 4), st.integers(0, 2))


@given(
    st.lists(st.tuples(_TABLES, st.frozensets(st.integers(0, 4))), min_size=1, max_size=8), st.integers(0, 99)
)
def test_the_table_is_that_of_each_version(versions: list[tuple[Rows, frozenset[int]]], seed: int) -> None:
    feed, order, before, waiting = Feed(), random.Random(seed), dict[int, int](), list[Change]()
    for number, (after, touched) in enumerate(versions, start=1):
        waiting += changes_between(number, before, after, touched)
        before = after
        if order.random() < 0.6 or number == len(versions):
            order.shuffle(waiting)
            feed.run(waiting)
            waiting = []
            assert feed.rows == after
