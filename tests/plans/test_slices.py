"""Law 7: a large micro-batch is worked off in sorted slices, and that does not show."""

from __future__ import annotations

import polars as pl
import pytest

from tablestream.runtime import run_round
from tablestream.runtime.order import number_messages, slices, split_steps, undivided
from tablestream.runtime.rounds import RANKS
from tablestream.state.changes import PARTITION, POSITION, STEP_HOPS, TIME
from tablestream.topology.streams import Grace
from tests.marks import quick_each
from tests.plans.catalogue import SINGLE
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.logs import random_log
from tests.plans.test_versioned_plans import PLANS, beside_what_waits

WHERE = ("every shard has the versions", "at the versions")
GRACES = (Grace(2), Grace(6), Grace(3, table_advances=True))


@pytest.mark.parametrize("name", quick_each(sorted(SINGLE)))
def test_slices_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_round, "SLICE_ROWS", 5)
    nodes = SINGLE[name]()
    log = random_log(sources_of(nodes), seed=5, size=40)
    assert_like_twin(nodes, [log[:30], log[30:]])


@pytest.mark.parametrize(
    "name", [f"records look up left, {where}, {grace}" for where in WHERE for grace in GRACES]
)
def test_slices_do_not_show_where_records_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_round, "SLICE_ROWS", 5)
    nodes = (*PLANS[name](), *beside_what_waits())
    assert_like_twin(nodes, [random_log(sources_of(nodes), seed=5, size=80)], shards=1)


def test_a_slice_may_end_between_records_that_one_record_released() -> None:
    """But not between the messages of a step that stands around them."""
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
    (numbers,) = undivided(order, ["_h0", "_h1"], [numbers])
    assert numbers["_step"].to_list() == [1, 1, 1, 2, 3, 4]
    (split,) = split_steps(order, ["_h0", "_h1"], [numbers])
    assert split["_step"].to_list() == [1, 2, 3, 4, 5, 6]
    (whole,) = split_steps(order, ["_h0", "_h1"], [numbers.filter(pl.col("_seq").is_in([1, 3]))])
    assert whole["_step"].to_list() == [1, 1]


@pytest.mark.parametrize(
    ("steps", "rows", "cut"),
    [
        ([1, 2, 3, 4], 2, [(1, 2), (3, 4)]),
        ([1, 1, 1, 2, 3], 2, [(1, 1), (2, 3)]),
        ([1, 2, 2, 2, 2], 3, [(1, 1), (2, 2)]),
        ([1], 10, [(1, 1)]),
    ],
)
def test_a_slice_ends_with_a_step(steps: list[int], rows: int, cut: list[tuple[int, int]]) -> None:
    assert list(slices([pl.Series(steps[:2]), pl.Series(steps[2:], dtype=pl.Int64)], rows)) == cut


def test_no_slice_is_larger_than_asked_but_for_one_step() -> None:
    steps = pl.Series([1] * 5 + list(range(2, 40)))
    for first, last in slices([steps], 10):
        assert steps.is_between(first, last).sum() <= 10
