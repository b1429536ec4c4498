"""Recordings, cut into micro-batches."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.cdc.recording import Record, points, records


def interleaved(some: Iterable[Record], order: random.Random) -> list[Record]:
    """Mix records; those of a topic partition stay in order."""
    lanes: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for one in some:
        lanes[one.topic, one.partition].append(one)
    turns = [lane for lane, lined in lanes.items() for _ in lined]
    order.shuffle(turns)
    ahead = {lane: iter(lined) for lane, lined in lanes.items()}
    return [next(ahead[lane]) for lane in turns]


def cut(
    capture: str,
    database: str,
    tables: Sequence[str],
    seed: int,
    *,
    transactions: bool = False,
    most: int = 2,
) -> tuple[list[list[Record]], list[int]]:
    """Cut a recording into micro-batches; return how many there are up to each quiescent point.

    Between two points it is cut at most `most` times.
    """
    order, batches, ends = random.Random(seed), [], []
    topics = {*(f"shop.{name}" for name in tables), *(["transaction"] if transactions else [])}
    left = [one for one in records(capture) if one.topic.split(".", 1)[1] in topics]
    for point in points(database):
        covered = interleaved((one for one in left if point.covers(one)), order)
        left = [one for one in left if not point.covers(one)]
        bounds = sorted(order.choices(range(len(covered) + 1), k=order.randint(0, most)))
        batches += [
            covered[begin:end] for begin, end in zip([0, *bounds], [*bounds, len(covered)], strict=True)
        ]
        ends.append(len(batches))
    return batches, ends
