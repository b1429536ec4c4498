"""Rare places of the code, and how often a world reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tablestream.operators.buffer import time_index
from tablestream.state import cache, merge, run, shard, trace
from tests.plans import slicing


@dataclass(frozen=True)
class Point:
    """A place of the code: a function, and which of its calls count.

    Attributes
    ----------
    name
        What happens there.
    owner, function
        Where it is called.
    counts
        Whether a call with these arguments and this result counts; by default every call does.
    raises
        Whether only calls count that raise an error.
    """

    name: str
    owner: Any
    function: str
    counts: Callable[[Any, Any], bool] = lambda _arguments, _result: True
    raises: bool = False


POINTS = (
    Point("a run is merged", trace, "merge", lambda call, _: len(call[0][0]) > 1),
    Point("tombstones are dropped", trace, "merge", lambda call, _: call[1]["drop_tombstones"]),
    Point("rows expire", merge, "_expired"),
    Point("a run has several chunks", run.RunStorage, "write", lambda _, info: info and len(info.chunks) > 1),
    Point("a run is removed", run.RunStorage, "remove"),
    Point("keys of equal hash are looked up", trace.Trace, "_find_slowly"),
    Point("rows of equal hash are merged", merge, "_first_by_columns"),
    Point("a chunk has no key of a lookup", trace.Trace, "_find", lambda _, found: found is None),
    Point("a buffer is read by time", time_index.TimeIndex, "until", lambda _, rows: rows.height > 0),
    Point("a micro-batch is sliced", slicing, "slice_numbers"),
    Point("a cached chunk is found", cache.RunCache, "_find", lambda _, frame: frame is not None),
    Point("a cached file is damaged", cache, "_check", raises=True),
    Point("the cache is scanned", cache.RunCache, "_scan"),
    Point("a chunk stays in memory", cache.MemoryCache, "put"),
    Point("a chunk is fetched", run.RunStorage, "_fetch"),
    Point("a manifest is missing", shard, "manifest_missing"),
)


@contextmanager
def counted(points: Counter[str]) -> Iterator[None]:
    """Count the points that are reached."""
    with ExitStack() as stack:
        for point in POINTS:
            replacement = _counting(point, getattr(point.owner, point.function), points)
            stack.enter_context(mock.patch.object(point.owner, point.function, replacement))
        yield


def _counting(point: Point, function: Callable[..., Any], points: Counter[str]) -> Callable[..., Any]:
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            result = function(*arguments, **options)
        except Exception:
            points[point.name] += point.raises
            raise
        points[point.name] += not point.raises and bool(point.counts((arguments, options), result))
        return result

    return called
