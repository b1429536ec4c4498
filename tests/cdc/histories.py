"""Random histories of a database with a connector, and their topics cut into micro-batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.cdc.cutting import interleaved
from tests.cdc.database import ADA, LARGE, NOTE, Database

_KEYS = st.integers(0, 5)
_TEXTS = st.sampled_from((None, "", "x", "y" * 30))
_UNKNOWN = st.sampled_from((frozenset[str](), NOTE, frozenset({"bio"}), frozenset(LARGE)))
_CHANGES = st.fixed_dictionaries({}, optional={"n": st.integers(0, 3), "note": _TEXTS, "bio": _TEXTS})
_STATEMENTS = st.one_of(
    st.tuples(st.just("insert"), _KEYS, st.tuples(st.integers(0, 3), _TEXTS, _TEXTS)),
    st.tuples(st.just("update"), _KEYS, _UNKNOWN, _CHANGES),
    st.tuples(st.just("delete"), _KEYS),
    st.tuples(st.just("move"), _KEYS, _KEYS, _UNKNOWN, _CHANGES),
    st.tuples(st.just("swap"), _KEYS, _KEYS, _UNKNOWN),
    st.tuples(st.just("chain"), _KEYS, _UNKNOWN),
)
_STEPS = st.one_of(
    *[st.tuples(st.just("transaction"), st.lists(_STATEMENTS, min_size=1, max_size=4))] * 4,
    st.tuples(st.just("restart"), st.integers(0, 8)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("interrupted"), st.integers(0, 4), st.lists(_KEYS, max_size=3)),
    st.tuples(st.just("truncate")),
)


@dataclass(frozen=True)
class History:
    """What happens to a database, and how its topic is read."""

    steps: list[tuple[Any, ...]]
    partitions: int = 1
    transactions: bool = True
    shards: int = 1
    seed: int = 0

    def database(self) -> Database:
        """The database after all that happened."""
        database = Database(self.partitions, self.transactions)
        for kind, *given_ in self.steps:
            if kind == "transaction":
                for statement in given_[0]:
                    _execute(database, *statement)
                database.commit()
            elif kind == "restart":
                database.restart(given_[0])
            elif kind == "truncate" and self.partitions == 1:
                database.truncate()
                database.commit()
            elif kind in {"snapshot", "interrupted"}:
                _snapshot(database, *given_)
        return database


def _execute(database: Database, kind: str, *given_: Any) -> None:
    if kind == "swap":
        one, other, unknown = given_
        for key, to in ((one, 9), (other, one), (9, other)):
            database.move(key, to, unknown)
    elif kind == "chain":
        for to in (7, 8, 6):
            database.move({7: given_[0], 8: 7, 6: 8}[to], to, given_[1])
    elif kind in {"update", "move"}:
        *place, unknown, changes = given_
        getattr(database, kind)(*place, unknown, **changes)
    else:
        getattr(database, kind)(*given_)


def _snapshot(database: Database, stop_after: int | None = None, unheard: tuple[int, ...] = ()) -> None:
    if stop_after is not None:
        database.snapshot(stop_after=min(stop_after, max(len(database.rows) - 1, 0)))
        database.unheard(*unheard)
    if not database.rows:
        database.rows[0] = ADA  # a snapshot of no rows has no record that ends it
    database.snapshot()


HISTORIES = st.builds(
    History,
    st.lists(_STEPS, min_size=1, max_size=10),
    st.sampled_from((1, 3)),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 1000),
)


def batches(history: History, database: Database, order: random.Random) -> Iterator[list[Any]]:
    """The topic, mixed between its quiet points and cut at random."""
    bounds = [0, *database.points, len(database.topic)]
    for begin, end in pairwise(bounds):
        records = [record for record, _ in database.topic[begin:end]]
        if history.partitions > 1:
            records = interleaved(records, order)
        while records:
            size = order.randint(1, 6)
            yield records[:size]
            records = records[size:]
