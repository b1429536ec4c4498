"""Functions whose operations on frames stay on their thread."""

from __future__ import annotations

import resource

import polars as pl
import pytest

from tests.simulation.one_thread import on_one_thread


def switches() -> int:
    """How often the threads of this process changed places during many small operations."""
    rows, order = pl.DataFrame({"a": [1, 2, 3]}), pl.Series([2, 0])
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(2000):
        rows[order]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw


@pytest.mark.skipif(pl.thread_pool_size() != 1, reason="it is for a pool of one thread")
def test_operations_are_not_handed_to_another_thread() -> None:
    assert switches() > 2000
    assert on_one_thread(switches) < 1000


def test_what_a_function_raises_arrives_as_it_is() -> None:
    wrong = ValueError("wrong")

    def fails() -> None:
        raise wrong

    with pytest.raises(ValueError, match="wrong") as caught:
        on_one_thread(fails)
    assert caught.value is wrong
