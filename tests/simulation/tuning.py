"""Sizes and limits that a world makes small, so that rare paths of the code are frequent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

from tablestream.operators.joins import foreign_key_answer, subscriptions
from tablestream.runtime.slices import SLICE_ROWS
from tablestream.state import cache, positions, trace
from tablestream.state.run import CHUNK_SIZE_BYTES
from tests.simulation.world import Tuning


@dataclass(frozen=True)
class Sizes:
    """What a world decides about sizes.

    Attributes
    ----------
    chunk_bytes, slice_rows
        As for `ShardState` and `sliced`.
    cache_bytes
        The size of an executor's cache.
    has_disk
        Whether the cache has a directory.
    """

    chunk_bytes: int = CHUNK_SIZE_BYTES
    slice_rows: int = SLICE_ROWS
    cache_bytes: int = 1 << 30
    has_disk: bool = True

    @classmethod
    def of(cls, tunings: Collection[Tuning]) -> Sizes:
        """Return the sizes of a world."""
        return cls(
            chunk_bytes=100 if Tuning.SMALL_CHUNKS in tunings else CHUNK_SIZE_BYTES,
            slice_rows=3 if Tuning.SMALL_SLICES in tunings else SLICE_ROWS,
            cache_bytes=3000 if Tuning.SMALL_CACHE in tunings else 1 << 30,
            has_disk=Tuning.NO_DISK not in tunings,
        )


#: The constants and functions that a tuning replaces: owner, name, and the value.
_REPLACED: dict[Tuning, list[tuple[object, str, object]]] = {
    Tuning.MERGE_AT_ONCE: [(trace, "runs_to_merge", len)],
    Tuning.NEVER_MERGE: [(trace, "runs_to_merge", lambda rows: min(1, len(rows)))],
    Tuning.SMALL_CACHE: [(cache, "_MAPPED_FILES", 1), (cache, "_REMEMBERED_CHECKS", 1)],
    Tuning.SMALL_FAN_OUT: [(foreign_key_answer, "FAN_OUT_ROWS", 1), (subscriptions, "PART_ROWS", 1)],
    Tuning.SORTS: [(positions, "_FEW", 1)],
}
#: The tunings that do not change which runs and chunks a state has.
SAME_RUNS = frozenset({Tuning.SMALL_CACHE, Tuning.NO_DISK, Tuning.SMALL_FAN_OUT, Tuning.SORTS})


@contextmanager
def tuned(tunings: Collection[Tuning]) -> Iterator[None]:
    """Replace the constants for a while."""
    with ExitStack() as stack:
        for owner, name, value in (one for tuning in tunings for one in _REPLACED.get(tuning, ())):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
