"""Versioned tables on the columnar operators, in whole plans without Spark, against what Kafka Streams did."""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.operators.versions import History
from tablestream.topology.streams import Grace
from tests.conformance.test_operators import VIEWS, reproduces, versioned
from tests.conformance.test_operators_groups import OPERATORS
from tests.conformance.test_operators_streams import own_key
from tests.conformance.vectors import StoreSequence, foreign_key, joined, store_sequences
from tests.marks import quick_first
from tests.plans.engine import stable_hash
from tests.plans.tables import foreign_key_join, key_join, looked_up, materialized, source, stream
from tests.reference import VersionedRows

if TYPE_CHECKING:
    from tablestream.topology.nodes import Node, Source
    from tests.conformance.vectors import Sequence
    from tests.plans.engine import Hasher

NOT_PUT, LATEST = -(1 << 63), -1
#: Time is of a shard, and the recorded topologies have one.
ONE_SHARD = [("whole", stable_hash, None), ("cut, every key colliding", len, 3)]
one_shard = pytest.mark.parametrize(
    ("hasher", "seed"), quick_first(pytest.param(*run, id=name) for name, *run in ONE_SHARD)
)


def kept(given: Source, history: int | None) -> Node:
    return given if history is None else materialized(given, history)


class Store:
    """The versions of all keys, called as a store is."""

    def __init__(self, history: int, *, forgetful: bool = True) -> None:
        self.history, self.forgetful, self.observed = history, forgetful, -1
        self.keys: dict[str, History] = {}
        self.values: list[list[Any]] = []

    def put(self, key: str, value: str | None, time: int) -> int:
        if time < self.observed - self.history:
            return NOT_PUT
        self.observed = max(self.observed, time)
        versions = self.keys.setdefault(key, History())
        self.values.append([value, time])
        row = -1 if value is None else len(self.values) - 1
        if versions.put(time, row, forgetful=self.forgetful):
            return LATEST
        return versions.times[bisect_right(versions.times, time)]

    def get(self, key: str) -> list[Any] | None:
        return self._shown(self.keys.get(key, History()).newest())

    def get_as_of(self, key: str, time: int) -> list[Any] | None:
        return self._shown(self.keys.get(key, History()).as_of(time, self.observed - self.history))

    def delete(self, key: str, time: int) -> list[Any] | None:
        if time < self.observed - self.history:
            return None
        before = self.get_as_of(key, time)
        self.put(key, None, time)
        return before

    def _shown(self, row: int) -> list[Any] | None:
        return None if row < 0 else self.values[row]


@pytest.mark.parametrize(
    "sequence", [*store_sequences("versioned_store"), *store_sequences("versioned_store_dense")], ids=str
)
def test_a_store_of_versions_answers_as_recorded(sequence: StoreSequence) -> None:
    store = Store(sequence.params["history_ms"])
    for number, call in enumerate(sequence.calls):
        assert getattr(store, call.name)(*call.arguments) == call.result, (number, call)


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("history", [0, 2, 9, 1_000])
def test_a_store_of_versions_answers_as_the_reference(history: int, forgetful: bool) -> None:
    rng = random.Random(history)
    for _ in range(60):
        store, reference, now = (
            Store(history, forgetful=forgetful),
            VersionedRows(history, compat=forgetful),
            5,
        )
        for number in range(60):
            now = max(0, now + rng.choice((0, 0, 1, 2, -1, -3)))
            key, value = rng.choice("ab"), None if rng.random() < 0.5 else f"{number}"
            assert store.put(key, value, now) == reference.put(key, value, now)
            at = rng.randint(0, now + 4)
            for mine, its in [
                (store.get(key), reference.get(key)),
                (store.get_as_of(key, at), reference.as_of(key, at)),
            ]:
                assert (None if mine is None else tuple(mine)) == its


@one_shard
@pytest.mark.parametrize("sequence", versioned("pk_join", "pk_join"))
def test_key_join_of_versioned_tables(sequence: Sequence, hasher: Hasher, seed: int | None) -> None:
    left, right = source("L"), source("R")
    tables = kept(left, sequence.params["left_history_ms"]), kept(right, sequence.params["right_history_ms"])
    node = key_join(*tables, sequence.params["join"], joined)
    reproduces(sequence, {"L": left, "R": right}, node, 1, hasher, seed)


@one_shard
@pytest.mark.parametrize("sequence", versioned("fk_join", "fk_join"))
def test_foreign_key_join_of_versioned_tables(sequence: Sequence, hasher: Hasher, seed: int | None) -> None:
    left, right = source("L"), source("R")
    tables = kept(left, sequence.params["left_history_ms"]), kept(right, sequence.params["right_history_ms"])
    node = foreign_key_join(*tables, sequence.params["join"], foreign_key, joined)
    reproduces(sequence, {"L": left, "R": right}, node, 1, hasher, seed)


@one_shard
@pytest.mark.parametrize("sequence", versioned("groupby_aggregate", *OPERATORS))
def test_groups_of_versioned_tables(sequence: Sequence, hasher: Hasher, seed: int | None) -> None:
    table = source("T")
    node = OPERATORS[sequence.op](kept(table, sequence.params["history_ms"]))
    reproduces(sequence, {"T": table}, node, 1, hasher, seed)


@one_shard
@pytest.mark.parametrize("sequence", versioned("table_ops", *VIEWS))
def test_views_of_versioned_tables(sequence: Sequence, hasher: Hasher, seed: int | None) -> None:
    table = source("T")
    node = VIEWS[sequence.op](kept(table, sequence.params["history_ms"]))  # type: ignore[arg-type]
    reproduces(sequence, {"T": table}, node, 1, hasher, seed)


@one_shard
@pytest.mark.parametrize("copied", [False, True], ids=["distributed", "global"])
@pytest.mark.parametrize("sequence", versioned("stream_table_join", "stream_table_join"))
def test_stream_table_join_with_versions(
    sequence: Sequence, copied: bool, hasher: Hasher, seed: int | None
) -> None:
    records, table = stream("S"), source("T")
    grace_ms = sequence.params["grace_ms"]
    grace = None if grace_ms is None else Grace(grace_ms)
    versions = kept(table, sequence.params["table_history_ms"])
    node = looked_up(records, versions, sequence.params["join"], own_key, joined, copied=copied, grace=grace)
    reproduces(sequence, {"S": records, "T": table}, node, 1, hasher, seed)
