"""What operators tell of their work, against what is in the state, and counted by hand."""

from __future__ import annotations

import pytest

from tablestream.planner.physical_plan import Align
from tablestream.runtime.measures import (
    ALIGNMENT,
    CACHE_HITS,
    FETCHES,
    MEASURES,
    MERGES,
    ROWS_IN,
    ROWS_OUT,
    SHARDS,
    STATE_BYTES,
    STATE_BYTES_ADDED,
    STATE_ROWS,
    STATE_ROWS_ADDED,
    Counts,
    measured,
)
from tablestream.runtime.rounds import Round
from tablestream.state import manifest as manifests
from tablestream.state.cache import MemoryCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Record, key_join, source


def held(engine: Engine) -> dict[str, tuple[int, int]]:
    """Rows and bytes of each operator's state, as the manifests have them."""
    found: dict[str, tuple[int, int]] = {}
    for work in engine.plan.rounds:
        for placed in work.operators:
            stores = [store for (number, _), store in engine.stores.items() if number == work.number]
            known = [manifests.decode(store.manifest) for store in stores if store.manifest is not None]
            runs = [run for one in known for spec in placed.trace_specs for run in one.runs(spec.name)]
            found[placed.name] = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
    return found


@pytest.mark.parametrize(
    "name",
    ["foreign key outer, both sides filtered", "groups of groups", "key left, left filtered, right mapped"],
)
def test_what_is_added_is_in_the_end_what_is_held(name: str) -> None:
    nodes = (SINGLE | COMPOSED)[name]()
    engine = Engine([Output(node) for node in nodes], shards=3)
    added = dict.fromkeys(measured(engine.plan.rounds), (0, 0))
    whole = 0
    for piece in random_cuts(random_log(sources_of(nodes), 5, 200), 5, 6):
        engine.run(piece)
        told = engine.measures
        for operator, (rows, size_bytes) in added.items():
            added[operator] = (
                rows + told[operator, STATE_ROWS_ADDED],
                size_bytes + told[operator, STATE_BYTES_ADDED],
            )
            if told[operator, SHARDS] == engine.shards:
                whole += 1
                assert held(engine)[operator] == (told[operator, STATE_ROWS], told[operator, STATE_BYTES])
        engine = engine.restarted()
    assert added == held(engine)
    assert whole


def test_rows_state_and_merges_of_a_join_by_hand() -> None:
    a, b = source("A"), source("B")
    engine = Engine([Output(key_join(a, b, "left"))], shards=1)
    (name,) = measured(engine.plan.rounds)

    def told(*records: Record) -> dict[str, int]:
        engine.run(records)
        return {
            measure: engine.measures[name, measure]
            for measure in MEASURES
            if not measure.startswith("state-b")
        }

    assert told(Record(a, ("1",), "x", 1), Record(a, ("2",), "x", 2), Record(b, ("1",), "y", 3)) == {
        ROWS_IN: 3, ROWS_OUT: 3, STATE_ROWS: 3, STATE_ROWS_ADDED: 3, CACHE_HITS: 0, FETCHES: 0, MERGES: 0, SHARDS: 1,
    }  # fmt: skip
    # The second row of A goes: its tombstone is a run of its own. Both tables are looked into.
    then = told(Record(a, ("2",), None, 4))
    assert (then[ROWS_IN], then[ROWS_OUT]) == (1, 1)
    assert (then[STATE_ROWS], then[STATE_ROWS_ADDED], then[MERGES]) == (4, 1, 0)
    assert then[CACHE_HITS] == 0 < then[FETCHES]
    # The first row changes: all runs of A become one, with one row.
    then = told(Record(a, ("1",), "z", 5))
    assert (then[STATE_ROWS], then[STATE_ROWS_ADDED], then[MERGES]) == (2, -2, 1)


def test_chunks_are_found_in_the_cache_or_fetched() -> None:
    a, b = source("A"), source("B")
    engine = Engine([Output(key_join(a, b, "left"))], shards=1)
    (work,) = engine.plan.rounds
    engine.run([Record(a, ("1",), "x", 1)])
    cache = MemoryCache()
    found = [_looked_up(work, store, cache) for store in (engine.stores[1, 0],) * 2]
    assert [use[FETCHES] > 0 for use in found] == [True, False]
    assert [use[CACHE_HITS] > 0 for use in found] == [False, True]


def _looked_up(work: Round, store: MemoryStore, cache: MemoryCache) -> dict[str, int]:
    state = ShardState(store.copy(), cache, work.traces, work.fingerprint)
    for spec in work.traces:
        state.trace(spec.name).scan()
    told = Counts().measures(work, state)
    assert list(told) == [(operator, one) for operator in measured([work]) for one in MEASURES]
    return {measure: told[placed.name, measure] for placed in work.operators for measure in MEASURES}


def test_records_that_wait_for_each_other_are_told() -> None:
    a, b = source("A"), source("B")
    engine = Engine([Output(key_join(a, b, "left"))], shards=1, align=Align())
    engine.run([Record(a, ("1",), "x", 1), Record(a, ("2",), "x", 2)])
    assert (engine.measures[ALIGNMENT, ROWS_IN], engine.measures[ALIGNMENT, ROWS_OUT]) == (2, 0)
    waiting = engine.measures[ALIGNMENT, STATE_ROWS]
    engine.run([Record(b, ("1",), "y", 3)])
    assert (engine.measures[ALIGNMENT, ROWS_IN], engine.measures[ALIGNMENT, ROWS_OUT]) == (1, 1)
    assert waiting == 2 + 1  # and a lane
