"""Law 7: a large micro-batch is worked off in sorted slices, and that does not show."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.joins import subscriptions
from tablestream.planner.physical_plan import Align
from tablestream.runtime.order import number_messages, split_steps
from tablestream.runtime.ports import RANKS
from tablestream.runtime.rounds import Round
from tablestream.runtime.slices import RECORD, Inbox, slice_numbers
from tablestream.spark import blobs, round_worker
from tablestream.state.changes import BOOTSTRAP, PARTITION, POSITION, STEP_HOPS, TIME
from tablestream.topology.streams import Grace
from tests.marks import quick_each, quick_first
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_log
from tests.plans.slicing import sliced
from tests.plans.test_versioned_plans import PLANS, beside_what_waits

WHERE = ("every shard has the versions", "at the versions")
JOINS = sorted(name for name in SINGLE | COMPOSED if name.startswith(("foreign key", "one to many")))
GRACES = (Grace(2), Grace(6), Grace(3, table_advances=True))


@pytest.mark.parametrize("name", quick_each(sorted(SINGLE)))
def test_slices_do_not_show(name: str) -> None:
    nodes = SINGLE[name]()
    log = random_log(sources_of(nodes), seed=5, size=40)
    assert_like_twin(nodes, [log[:30], log[30:]], slice_rows=5)


@pytest.mark.parametrize(
    "name", [f"records look up left, {where}, {grace}" for where in WHERE for grace in GRACES]
)
def test_slices_do_not_show_where_records_wait(name: str) -> None:
    nodes = (*PLANS[name](), *beside_what_waits())
    assert_like_twin(nodes, [random_log(sources_of(nodes), seed=5, size=80)], shards=1, slice_rows=5)


@pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])
@pytest.mark.parametrize("part_rows", [1, 3])
@pytest.mark.parametrize("name", quick_each(JOINS))
def test_parts_of_a_fan_out_do_not_show(
    name: str, part_rows: int, monkeypatch: pytest.MonkeyPatch, *, compat: bool
) -> None:
    monkeypatch.setattr(subscriptions, "PART_ROWS", part_rows)
    nodes = (SINGLE | COMPOSED)[name]()
    log = random_log(sources_of(nodes), seed=3, size=60)
    assert_like_twin(nodes, [log[:30], log[30:45], log[45:]], compat=compat, shards=1)


def test_an_operator_has_steps_of_its_own_where_records_were_released() -> None:
    """A step may stand around those of released records; all of them are in one slice."""
    places = [  # position, hops 0 and 1, hops that are part of the step
        (1, 2, 1, 0), (1, 2, 5, 2), (1, 7, 0, 0),
        (2, 2, 5, 2), (2, 2, 5 + RANKS, 2), (2, 2, 5 + 2 * RANKS, 2),
    ]  # fmt: skip
    frame = pl.DataFrame(
        [(0, "p", *place) for place in places],
        schema=[TIME, PARTITION, POSITION, "_h0", "_h1", STEP_HOPS],
        orient="row",
    )
    order, (numbers,) = number_messages([frame], ["_h0", "_h1"])
    assert numbers["_step"].to_list() == [1, 1, 1, 2, 2, 2]
    assert slice_numbers([frame.select(RECORD)], 1)[0].tolist() == [0, 0, 0, 1, 1, 1]
    (split,) = split_steps(order, ["_h0", "_h1"], [numbers])
    assert split["_step"].to_list() == [1, 2, 3, 4, 5, 6]
    (whole,) = split_steps(order, ["_h0", "_h1"], [numbers.filter(pl.col("_seq").is_in([1, 3]))])
    assert whole["_step"].to_list() == [1, 1]


PLACES = st.tuples(
    st.integers(0, 3), st.sampled_from(["0000/a", "0001/b"]), st.integers(0, 2), st.integers(0, 2 * RANKS)
)


@given(st.lists(PLACES, min_size=1, max_size=30), st.integers(1, 10), st.randoms(use_true_random=False))
def test_slices_follow_each_other_and_none_divides_a_record(
    places: list[tuple[int, str, int, int]], rows: int, random: Random
) -> None:
    middle = random.randint(0, len(places))
    frames = [records(places[:middle]), records(places[middle:])]
    numbers = [int(number) for one in slice_numbers(frames, rows) for number in one]
    record = [(*root, hop // RANKS) for *root, hop in places]
    in_order = sorted(zip(record, numbers, strict=True))
    assert [number for _, number in in_order] == sorted(numbers)
    assert set(numbers) == set(range(max(numbers) + 1))
    for number in set(numbers):
        mine = {one for one, of_record in in_order if of_record == number}
        assert not mine & {one for one, of_record in in_order if of_record != number}
        assert numbers.count(number) <= rows or len(mine) == 1


def test_a_slice_may_end_between_records_that_were_one_row_of_the_source() -> None:
    """But not between two messages of one of them."""
    (numbers,) = slice_numbers([records([(0, "0000/a", 0, hop) for hop in (0, 5, RANKS, RANKS + 5)])], 1)
    assert numbers.tolist() == [0, 0, 1, 1]


def test_slices_are_as_large_as_they_may_be() -> None:
    """An end too early would make more of them: each costs a run of each trace."""
    (numbers,) = slice_numbers([records([(time, "0000/a", 0, 0) for time in range(40)])], 10)
    assert numbers.tolist() == sorted([0, 1, 2, 3] * 10)


def test_no_slice_divides_the_bootstraps() -> None:
    """They are one step, with a number for each row."""
    rows = [(-(1 << 63), BOOTSTRAP, row, row * RANKS) for row in range(5)]
    (numbers,) = slice_numbers([records([*rows, (7, "0000/a", 0, 0), (8, "0000/a", 1, 0)])], 2)
    assert numbers.tolist() == [0, 0, 0, 0, 0, 1, 1]


def records(places: list[tuple[int, str, int, int]]) -> pl.DataFrame:
    types = {TIME: pl.Int64, PARTITION: pl.String, POSITION: pl.Int64, "_h0": pl.Int64}
    return pl.DataFrame(places, schema=types, orient="row")


@pytest.mark.parametrize("narrowed", [False, True])
def test_packed_messages_are_opened_in_the_same_slices(
    *, narrowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of them once, at its port, however they are packed."""
    monkeypatch.setattr(round_worker, "SLICE_ROWS", 700)
    monkeypatch.setattr(blobs, "_FEW", 50 if narrowed else 10_000)
    numbers = range(2000)
    messages = pl.DataFrame(
        {
            TIME: [number * 7919 % 2000 // 3 for number in numbers],
            PARTITION: [f"000{number % 2}/a" for number in numbers],
            POSITION: list(numbers),
            "_h0": 0,
            "v": [f"{number}" for number in numbers],
        }
    )
    packed, frames = round_worker.PackedInbox(), dict[int, list[pl.DataFrame]]()
    for number, frame in enumerate(messages.iter_slices(150)):
        packed.add(number % 2, frame.height, blobs.encode(frame))
        frames.setdefault(number % 2, []).append(frame)
    work = Round(1, (), ())
    opened = [slice_values(one) for one in packed.opened(work)]
    assert len(opened) == 3
    assert opened == [slice_values(one) for one in sliced(work, frames, 700)]
    assert sorted(value for one in opened for mine in one.values() for value in mine) == sorted(messages["v"])


def slice_values(messages: Inbox) -> dict[int, list[str]]:
    return {
        port: sorted(value for frame in frames for value in frame["v"]) for port, frames in messages.items()
    }


def test_a_round_that_only_the_end_decides_gets_all_messages_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_worker, "SLICE_ROWS", 1)
    frame = records([(time, "0000/a", 0, 0) for time in range(5)])
    (groups,) = SINGLE["groups by pointer"]()
    opened = []
    for output, align in [
        (Output(groups), None),
        (Output(groups, final=True), None),
        (Output(groups), Align(0)),
    ]:
        for work in Engine([output], align=align).plan.rounds:
            packed = round_worker.PackedInbox()
            packed.add(1, frame.height, blobs.encode(frame))
            opened.append(len(list(packed.opened(work))))
    assert opened == [5, 5, 5, 1, 1, 5, 5]
