"""Law 7: a large micro-batch is worked off in sorted slices, and that does not show."""

from __future__ import annotations

import polars as pl
import pytest

from tablestream.runtime import run_round
from tablestream.runtime.order import slices
from tests.marks import quick_each
from tests.plans.catalogue import SINGLE
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.logs import random_log


@pytest.mark.parametrize("name", quick_each(sorted(SINGLE)))
def test_slices_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_round, "SLICE_ROWS", 5)
    nodes = SINGLE[name]()
    log = random_log(sources_of(nodes), seed=5, size=40)
    assert_like_twin(nodes, [log[:30], log[30:]])


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
