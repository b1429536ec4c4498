"""Joins of a table with a versioned table, as of a time of each row."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_first
from tests.plans.comparing import assert_like_twin
from tests.plans.logs import random_cuts
from tests.plans.tables import Record, as_of_join, materialized, source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestream.topology.nodes import How, Node, Source

FOREVER = 1_000_000


def logged(left: Source, right: Source, seed: int, size: int, late: int) -> Iterator[Record]:
    """Make a log of orders, which name a key and a time, and of versions that come up to `late` after their time."""
    rng, now = random.Random(seed), 20
    for _ in range(size):
        now += rng.choice((0, 0, 1, 2))
        if rng.random() < 0.5:
            value = None if rng.random() < 0.25 else rng.choice("ab")
            yield Record(right, rng.choice("xyz"), value, now - rng.randint(0, late))
            continue
        pointer = rng.choice(("|x", "|y", "|z", "|z", ""))
        time = rng.choice(("@", *(f"@{now + rng.randint(-late - 3, 3)}" for _ in range(5))))
        value = None if rng.random() < 0.25 else rng.choice("ab") + pointer + time
        yield Record(left, rng.choice("pqrs"), value, now)


def joined(
    how: How, history: int, *, forward: bool = False, strict: bool = False
) -> tuple[Source, Source, Node]:
    left, right = source("L"), source("R")
    return left, right, as_of_join(left, materialized(right, history), how, forward=forward, strict=strict)


kinds = pytest.mark.parametrize("how", ["left", "inner"])
ways = pytest.mark.parametrize("forward", [False, True], ids=["backward", "forward"])


@kinds
@ways
@pytest.mark.parametrize("history", quick_first([6, 0, 20, FOREVER]))
def test_every_change_is_that_of_the_reference(how: How, history: int, *, forward: bool) -> None:
    for seed in range(6):
        left, right, node = joined(how, history, forward=forward, strict=seed % 2 == 1)
        log = list(logged(left, right, seed, 150, late=12))
        assert_like_twin([node], [log], shards=1, ordered=True)
        assert_like_twin([node], random_cuts(log, seed, 6), shards=3, restarts=True)
