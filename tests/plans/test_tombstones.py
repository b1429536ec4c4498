"""The time of a tombstone that has none: of its topic partition or its source, from the state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tablestream.planner.physical_plan import Output
from tablestream.runtime.rounds import BY_PARTITION, BY_SOURCE
from tablestream.state.manifest import Manifest
from tests.plans.packed import PackedEngine, Raw
from tests.plans.tables import materialized, source


def upsert(partition: int, position: int, key: str, time: int) -> Raw:
    return Raw(partition, position, key, "v", 900, time)


def tombstone(partition: int, position: int, key: str) -> Raw:
    return Raw(partition, position, key, None, 900, None)


@pytest.mark.parametrize(("lanes", "time"), [(BY_PARTITION, 5), (BY_SOURCE, 50)])
def test_a_tombstone_has_the_largest_time_of_its_topic_partition_or_of_its_source(
    lanes: str, time: int
) -> None:
    """A partition that lags behind is not overtaken by its own tombstones."""
    engine = PackedEngine([Output(materialized(replace(source("A"), lacks_times=lanes), 100))], shards=1)
    engine.feed([upsert(0, 0, "a", 50), upsert(1, 0, "b", 5)])
    changes = engine.restarted().feed([tombstone(1, 1, "b")])
    assert [(change.key, change.value, change.ts) for change in changes] == [(("b",), None, time)]


def test_state_of_an_older_version_gives_the_time_that_the_operator_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = PackedEngine(
        [Output(materialized(replace(source("A"), lacks_times=BY_PARTITION), 100))], shards=1
    )
    keep = Manifest.with_clock
    with monkeypatch.context() as patched:
        patched.setattr(
            Manifest, "with_clock", lambda self, name, at: self if "/times" in name else keep(self, name, at)
        )
        engine.feed([upsert(0, 0, "a", 5), upsert(0, 1, "a", 500)])
    changes = engine.restarted().feed([tombstone(0, 2, "a")])
    assert [(change.value, change.ts) for change in changes] == [(None, 500)]


def test_in_compat_no_time_is_given_and_none_is_remembered() -> None:
    plan = PackedEngine(
        [Output(materialized(replace(source("A"), lacks_times=BY_PARTITION)))], compat=True
    ).plan
    assert [placed.lacking for work in plan.rounds for placed in work.operators] == [(None,)]
