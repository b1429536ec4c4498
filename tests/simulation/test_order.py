"""The order of what happens: recorded runs of Spark, and simulated ones, follow the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.marks import quick_first
from tests.simulation.order import (
    BEGINS,
    COMMITTED,
    ENDS,
    FAILS,
    STARTS,
    WRITES,
    Event,
    event_of,
    first_violation,
)
from tests.simulation.run import run_world
from tests.simulation.world import Kind, make_world

ORDERS = Path(__file__).parent.parent / "golden" / "orders"
RECORDED = sorted(ORDERS.glob("*.txt"))


def recorded(file: Path) -> list[Event]:
    return [event_of(line) for line in file.read_text(encoding="utf-8").splitlines()]


RETRIED, RACED = "a failed task runs again", "a task runs twice at once"
LOST, LOST_WRITING = (
    "a task runs again after a later round began",
    "a task runs again while the sinks are written",
)
#: The recorded run that has it, and the simulated fault that gives it.
HAPPENINGS = {
    RETRIED: ("retries", Kind.ATTEMPT_FAILS_EMITTING),
    RACED: ("speculation", Kind.SPECULATION),
    LOST: ("executors", Kind.OUTPUT_LOST),
    LOST_WRITING: ("executors", Kind.OUTPUT_LOST),
}


def happenings(events: list[Event]) -> Iterator[str]:
    """Name how tasks come to run more than once in a run of a micro-batch."""
    last: dict[tuple[int, int], str] = {}  # event of each task (round, task)
    begun, writing = set[Event](), False
    for event in events:
        task = event.round, event.task
        if event.what in {ENDS, FAILS} and event._replace(what=BEGINS) not in begun:
            continue  # an attempt of an earlier run
        if event.what == BEGINS and task in last:
            if last[task] != ENDS:
                yield RETRIED if last[task] == FAILS else RACED
            elif writing:
                yield LOST_WRITING
            elif any(work > event.round for work, _ in last):
                yield LOST
        if event.what in {STARTS, COMMITTED}:
            last.clear()
            begun.clear()
        if event.what == BEGINS:
            begun.add(event)
        if event.what in {BEGINS, ENDS, FAILS}:
            last[task] = event.what
        else:
            writing = event.what == WRITES


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_recorded_order_of_spark_is_one_of_the_simulator(file: Path) -> None:
    events = recorded(file)
    assert first_violation(events) is None
    assert [event.micro_batch for event in events if event.what == COMMITTED] == [0, 1, 2, 3]
    repeated = [event for event in events if event.what == WRITES and event.micro_batch == 2]
    assert len(repeated) == sum(event.what == STARTS for event in events) == 2


def test_each_failed_task_of_a_recorded_run_begins_again() -> None:
    events = recorded(ORDERS / "retries.txt")
    places = [event[1:4] for event in events if event.what == BEGINS and event.micro_batch == 1]
    failed = {event[1:4] for event in events if event.what == FAILS}
    again = {place for place in places if places.count(place) == 2}
    assert len(failed) == 2
    assert failed == again


@pytest.mark.parametrize("what", HAPPENINGS)
def test_what_happens_in_spark_happens_in_the_simulator(what: str) -> None:
    name, kind = HAPPENINGS[what]
    assert what in happenings(recorded(ORDERS / f"{name}.txt"))
    worlds = (make_world(seed, plan="foreign key left", kind=kind, micro_batches=6) for seed in range(20))
    assert any(what in happenings(run_world(world).order) for world in worlds)


@pytest.mark.parametrize("seed", quick_first(range(100, 160), 10))
def test_a_simulated_order_follows_the_rules(seed: int) -> None:
    result = run_world(make_world(seed, micro_batches=6))
    assert first_violation(result.order) is None
    assert any(event.what == ENDS for event in result.order)


#: Two rounds; the first one has two tasks.
BOTH_ROUNDS = "starts; begins 0 1 0 1; begins 0 1 1 2; ends 0 1 0 1; ends 0 1 1 2; begins 0 2 0 3; "


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        ("begins 0 1 0 4; ends 0 1 0 4; begins 0 2 0 5; ends 0 2 0 5; writes 0", None),
        ("ends 0 2 0 3; writes 0; begins 0 1 0 4; ends 0 1 0 4; written 0", None),
        ("begins 0 1 0 4; fails 0 1 0 4; begins 0 1 0 5; ends 0 1 0 5; ends 0 2 0 3; writes 0", None),
        ("begins 0 1 0 4; begins 0 1 0 5; ends 0 1 0 5; ends 0 2 0 3; writes 0; ends 0 1 0 4", None),
        ("begins 0 1 0 4; begins 0 2 1 5", "begins 0 2 1 5"),  # the output is not there again
        ("begins 0 1 0 4; fails 0 1 0 4; begins 0 2 1 5", "begins 0 2 1 5"),
        ("begins 0 1 2 4", "begins 0 1 2 4"),  # not a task that ran before
        ("ends 0 2 0 3; writes 0; begins 0 2 1 4", "begins 0 2 1 4"),
        ("ends 0 2 0 3; writes 0; begins 0 1 0 4; written 0", "written 0"),
        ("ends 0 2 0 3; writes 0; written 0; begins 0 1 0 4", "begins 0 1 0 4"),
        (
            "starts; ends 0 2 0 3; begins 0 1 0 4; ends 0 1 0 4; begins 0 1 1 5; begins 0 2 0 6",
            "begins 0 2 0 6",
        ),
    ],
)
def test_lost_outputs_are_computed_again_before_anything_reads_them(after: str, refused: str | None) -> None:
    lines = (BOTH_ROUNDS + after).split("; ")
    found = first_violation(map(event_of, lines))
    assert found == (refused and f"event {lines.index(refused)}: {refused}")


def test_other_orders_are_refused() -> None:
    """Each event of a recorded order twice, left out, or before the one before it.

    A failure may be left out, and so may the end of a write before a restart. Tasks of a round may change places.
    """
    events = recorded(ORDERS / "retries.txt")
    for number, event in enumerate(events):
        if event.what != STARTS:
            assert first_violation([*events[: number + 1], *events[number:]]), event
        dead = event.what == FAILS or [one.what for one in events[number + 1 :][:1]] == [STARTS]
        without = [*events[:number], *events[number + 1 :]]
        assert first_violation(without) or dead or number == len(events) - 1, event
    tasks = {BEGINS, ENDS, FAILS}
    for number, (before, after) in enumerate(pairwise(events)):
        swapped = [*events[:number], after, before, *events[number + 2 :]]
        same_round = {before.what, after.what} <= tasks and before[1:3] == after[1:3]
        assert same_round or first_violation(swapped), (before, after)
