"""Joins of records that late versions correct, against lookups done anew after each record."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.topology.streams import Grace
from tests.marks import quick_first
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import Record, looked_up, materialized, pair, points, source, stream
from tests.plans.test_complete_history import as_of

if TYPE_CHECKING:
    from tablestream.topology.nodes import Node, Source
    from tests.plans.tables import Value

inner_and_left = pytest.mark.parametrize("how", ["inner", "left"])


def logged(seed: int, records: Source, table: Source, *, late: int, size: int = 140) -> list[Record]:
    """Make a log of records and of versions that come up to `late` after their time."""
    rng, now, log = random.Random(seed), 20, list[Record]()
    for number in range(size):
        now += rng.choice((0, 0, 1, 2))
        time = now - rng.randint(0, late)
        if rng.random() < 0.5:
            value = None if rng.random() < 0.25 else f"v{number}"
            log.append(Record(table, rng.choice("xyz"), value, time))
        else:
            log.append(Record(records, rng.choice(("a", "b", None)), f"{number}|{rng.choice('xyzw')}", time))
    return log


def joined(how: Any, history: int, **options: Any) -> tuple[Source, Source, Node]:
    records, table = stream("S"), source("T")
    return (
        records,
        table,
        looked_up(records, materialized(table, history), how, corrections=True, **options),
    )


@inner_and_left
@pytest.mark.parametrize("copied", [False, True], ids=["distributed", "global"])
@pytest.mark.parametrize("seed", quick_first(range(3)))
def test_every_record_has_the_version_of_its_time_whenever_that_came(
    how: str, seed: int, *, copied: bool
) -> None:
    records, table, node = joined(how, 10_000, copied=copied)
    log = logged(seed, records, table, late=15)
    steps = Engine([Output(node)], shards=3).steps(log)[0]
    versions: dict[str, dict[int, Value]] = {}
    came: dict[Value, Record] = {}
    shown: dict[Any, tuple[Value, int]] = {}
    ids: dict[Any, Any] = {}
    for number, record in enumerate(log, 1):
        if record.source is table:
            versions.setdefault(str(record.key), {})[record.ts] = record.value
        else:
            came[record.value] = record
        told = [step.change for step in steps if step.number == number]
        assert len({change.key for change in told}) == len(told)
        for change in told:
            shown[change.key] = (change.value, change.ts)
            if change.value is not None:
                whose = str(change.value)[1:].split(",")[0]
                assert ids.setdefault(change.key, whose) == whose
                assert change.key[0] == came[whose].key
        wanted = []
        for one in came.values():
            found = as_of(versions.get(str(points(0)(str(one.value), ())), {}), one.ts)
            if found is not None or how == "left":
                wanted.append((pair(one.value, found), one.ts))
        assert sorted(value for value in shown.values() if value[0] is not None) == sorted(wanted)
    assert len(set(ids.values())) == len(ids)


@inner_and_left
@pytest.mark.parametrize("grace", [None, Grace(4), Grace(4, table_advances=True)], ids=str)
@pytest.mark.parametrize("copied", quick_first([False, True]), ids=["distributed", "global"])
@pytest.mark.parametrize("history", quick_first([5, 10_000]))
def test_cuts_and_restarts_do_not_show_in_corrections(
    how: str, grace: Grace | None, history: int, *, copied: bool
) -> None:
    records, table, node = joined(how, history, copied=copied, grace=grace)
    log = logged(7, records, table, late=9)
    whole = Engine([Output(node)], shards=2).steps(log)[0]
    engine, cut = Engine([Output(node)], shards=2), list[Step]()
    for piece in random_cuts(log, 1, 8):
        cut += engine.steps(piece)[0]
        engine = engine.restarted()
    assert cut == whole
    assert len({step.change.key for step in whole}) < len(whole)


def test_a_record_that_waited_is_corrected_too() -> None:
    records, table, node = joined("inner", 100, grace=Grace(5))
    engine = Engine([Output(node)], shards=1)

    def told(*log: Record) -> list[tuple[Any, ...]]:
        return [tuple(change) for change in engine.run(log)[0]]

    log = [Record(table, "x", "old", 1), Record(records, "k", "r|x", 8), Record(records, "k", "s|y", 20)]
    assert told(*log) == [(("k", 0), "(r|x,old)", 8)]
    engine = engine.restarted()
    assert told(Record(table, "x", "new", 7)) == [(("k", 0), "(r|x,new)", 8)]
    assert told(Record(table, "x", None, 8)) == [(("k", 0), None, 8)]
    # Nothing was there, and nothing is.
    assert told(Record(table, "x", None, 8), Record(table, "y", "later", 21)) == []


@pytest.mark.slow
def test_records_older_than_the_history_are_let_go() -> None:
    records, table, node = joined("left", 5)
    engine, sizes = Engine([Output(node)], shards=1), []
    for now in range(120):
        engine.run([Record(table, "x", f"{now}", now), Record(records, "k", f"{now}|x", now)])
        sizes.append(sum(len(blob) for store in engine.stores.values() for blob in store.chunks.values()))
    assert max(sizes[80:]) <= 1.1 * max(sizes[20:80])
