"""Change logs for plans: random ones by seed, and ways to cut them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from tests.plans.tables import Key, Record, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Source

T = TypeVar("T")

#: One is a prefix of another; the order of their UTF-8 bytes is not that of UTF-16.
KEYS = ("k1", "k10", "k\uff5e", "k\U0001f600")
LETTERS = ("a", "b")
#: Of ten random changes, so many are tombstones.
TOMBSTONES = 3


def random_log(sources: Sequence[Source], seed: int, size: int, *, worlds: int = 4) -> list[Record]:
    """Make a log that hits the hard cases often: few keys, few values, tombstones, ties, late times.

    All tables have the same keys, and values point at them. Keys of different worlds never meet, so a log of
    many worlds is as good as many logs.
    """
    rng = random.Random(seed)
    keys = [[f"{world}{key}" for key in rng.sample(KEYS, 3)] for world in range(worlds)]
    log, latest = [], 0
    for _ in range(size):
        world = rng.choice(keys)
        source = rng.choice(sources)
        ts = max(0, latest + rng.choice((0, 0, 1, 2, 3, -2, -6)))
        latest = max(latest, ts)
        log.append(Record(source, _key(rng, source, world), _value(rng, world), ts))
    return log


def _key(rng: random.Random, source: Source, world: Sequence[str]) -> Key | None:
    if rng.random() < 0.03:
        return None
    return tuple(rng.choice(world) for _ in source.key)


def _value(rng: random.Random, world: Sequence[str]) -> Value:
    if rng.randrange(10) < TOMBSTONES:
        return None
    pointers = "".join(f"|{rng.choice(world)}" for _ in range(rng.choice((0, 1, 2, 2, 2))))
    return rng.choice(LETTERS) + pointers


def random_cuts(sequence: Sequence[T], seed: int, pieces: int) -> list[list[T]]:
    """Cut a sequence at random places; pieces may be empty."""
    rng = random.Random(seed)
    places = sorted(rng.randint(0, len(sequence)) for _ in range(pieces - 1))
    return [list(sequence[start:end]) for start, end in pairwise([0, *places, len(sequence)])]
