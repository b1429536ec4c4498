"""What waits for an output, as `align` lets it wait, belongs to the plan that computed it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tablestream.errors import PlanChangedError
from tablestream.planner.physical_plan import Align
from tablestream.state import manifest as manifests
from tablestream.topology.streams import Grace
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.tables import Change, Record, looked_up, mapped, materialized, merged, source, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node


def shout(value: str) -> str:
    return f"{value}!"


def whisper(value: str) -> str:
    return f"({value})"


def waiting(function: Callable[[str], str] | None, text: str = "") -> Engine:
    """Two streams, each behind a view, whose records wait for each other before they are written."""

    def view(name: str) -> Node:
        records = replace(stream(name), text=text)
        return records if function is None else mapped(records, function, total=True)

    return Engine([Output(merged(view("S"), view("T")))], shards=1, align=Align())


Waiting: TypeAlias = "tuple[Callable[[str], str] | None, str]"
CHANGED: dict[str, tuple[Waiting, Waiting, tuple[str, ...]]] = {
    "another view": ((shout, ""), (whisper, ""), ("v = shout", "v = whisper")),
    "a view where there was none": ((None, ""), (shout, ""), ("v = shout",)),
    "other expressions of a source": ((None, "key a"), (None, "key b"), ("key a", "key b")),
}


def first(engine: Engine) -> list[Change]:
    """A record of one stream, which waits for the other stream."""
    return _run(engine, (0, "a", 1))


def then(engine: Engine) -> list[Change]:
    """Records of both streams, which the first one waited for."""
    return _run(engine, (0, "b", 5), (1, "c", 5))


def _run(engine: Engine, *records: tuple[int, str, int]) -> list[Change]:
    sources = sources_of([engine.outputs[0].node])
    return engine.run([Record(sources[source], "k", value, ts) for source, value, ts in records])[0]


@pytest.mark.parametrize("what", CHANGED)
def test_what_waits_for_an_output_belongs_to_the_plan_that_computed_it(what: str) -> None:
    """Both `ts.start` and the workers refuse another plan, and show what differs."""
    before, after, shown = CHANGED[what]
    old, new = waiting(*before), waiting(*after)
    assert first(old) == []
    new.stores, new.position = old.restarted().stores, old.position
    with pytest.raises(PlanChangedError) as by_start:
        new.plan.check_same(old.plan.text)
    with pytest.raises(PlanChangedError) as by_workers:
        then(new)
    for refused in (by_start, by_workers):
        assert all(word in str(refused.value) for word in shown)
    assert then(old) == [Change(("k",), "a!" if shout in before else "a", 1)]


def test_a_state_of_an_older_version_is_read_and_then_belongs_to_its_plan() -> None:
    """Older versions did not compare what waits for outputs."""
    old, new, other = waiting(shout), waiting(shout), waiting(whisper)
    (work,) = old.plan.rounds
    old.plan = replace(old.plan, rounds=(replace(work, waiting=()),))
    first(old)
    assert fingerprint(old) == work.older_fingerprint != work.fingerprint
    new.plan.check_same(old.plan.text)
    new.stores, new.position = old.stores, old.position
    assert then(new) == [Change(("k",), "a!", 1)]
    assert fingerprint(new) == work.fingerprint
    other.stores = new.stores
    with pytest.raises(PlanChangedError) as refused:
        then(other)
    assert all(f"select v = {word}" in str(refused.value) for word in ("shout", "whisper"))


def fingerprint(engine: Engine) -> str:
    data = engine.stores[1, 0].manifest
    assert data is not None
    return manifests.decode(data).fingerprint


def test_the_order_of_sources_is_a_fact_of_a_plan_without_operators() -> None:
    """Spark numbers the streams of a checkpoint, so each would go on with the other's offsets."""
    first, second = stream("S"), stream("T")
    plan, swapped = (
        [Output(one), Output(other)] for one, other in ((first, second), (stream("T"), stream("S")))
    )
    old, new = Engine(plan).plan, Engine(swapped).plan
    assert not old.rounds
    with pytest.raises(PlanChangedError):
        new.check_same(old.text)
    new.check_same("")  # what an older version stored


def test_the_stream_time_of_grace_is_where_older_versions_left_it() -> None:
    records = stream("S")
    engine = Engine(
        [Output(looked_up(records, materialized(source("A"), 8), "left", grace=Grace(3)))], shards=1
    )
    engine.run([Record(records, "k", "v|r", 5)])
    clocks = [manifests.decode(one.manifest).clocks for one in engine.stores.values() if one.manifest]
    assert [time for marks in clocks for name, time in marks.items() if name.endswith("/buffered")] == [5]
