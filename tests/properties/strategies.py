"""Hypothesis strategies for change logs that hit the hard cases often.

A change log is a list of `(topic, key, value or None, ts)`, in order of arrival. Few keys, few values and
few foreign keys, so that rows collide, repeat, move and come back; tombstones, also of absent rows;
timestamps that tie and come late. Shrinking removes records and moves time towards zero.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

Change: TypeAlias = tuple[str, str | None, str | None, int]
T = TypeVar("T")

# The order of their UTF-8 bytes is neither that of their numbers nor that of UTF-16.
LEFT_KEYS = ("l1", "l10", "l2", "l\uff5e", "l\U0001f600")
# One is a prefix of another, one is empty.
RIGHT_KEYS = ("x", "xx", "y", "")
# A value without a bar points nowhere.
LEFT_VALUES = ("a", "b")
RIGHT_VALUES = ("X", "Y")


def change_logs(
    rows: st.SearchStrategy[tuple[str, str | None, str | None]], *, max_size: int = 40
) -> st.SearchStrategy[list[Change]]:
    """Give `(topic, key, value)` timestamps that mostly advance, often tie, and sometimes come late."""
    advance = st.one_of(st.integers(0, 3), st.integers(-8, 0))
    return st.lists(st.tuples(rows, advance), max_size=max_size).map(_timed)


def key_changes(
    topics: Sequence[str] = ("L", "R"),
    keys: Sequence[str] = ("k1", "k2"),
    values: Sequence[str] = ("a", "b", "c"),
    *,
    null_keys: bool = False,
    max_size: int = 40,
) -> st.SearchStrategy[list[Change]]:
    """Change logs of tables that share a key."""
    rows = st.tuples(
        st.sampled_from(topics), _keys(keys, null_keys=null_keys), _values(st.sampled_from(values))
    )
    return change_logs(rows, max_size=max_size)


def foreign_key_changes(
    *,
    left_keys: Sequence[str] = LEFT_KEYS,
    right_keys: Sequence[str] = RIGHT_KEYS,
    null_keys: bool = False,
    max_size: int = 40,
) -> st.SearchStrategy[list[Change]]:
    """Change logs of `L`, whose values `a|x` point at `x` and whose values `a` point nowhere, and of `R`."""
    left = st.tuples(
        st.just("L"), _keys(left_keys, null_keys=null_keys), _values(pointing_values(right_keys))
    )
    right = st.tuples(
        st.just("R"), _keys(right_keys, null_keys=null_keys), _values(st.sampled_from(RIGHT_VALUES))
    )
    return change_logs(st.one_of(left, right), max_size=max_size)


def self_join_changes(
    *, keys: Sequence[str] = ("e1", "e2", "e3"), max_size: int = 40
) -> st.SearchStrategy[list[Change]]:
    """Change logs of one table `L` whose values `a|e1` point at rows of the same table, themselves too."""
    rows = st.tuples(st.just("L"), st.sampled_from(keys), _values(pointing_values(keys)))
    return change_logs(rows, max_size=max_size)


def pointing_values(right_keys: Sequence[str]) -> st.SearchStrategy[str]:
    """Values `a|x` that point at one of `right_keys`, and now and then `a`, which points nowhere."""
    pointing = st.builds("{}|{}".format, st.sampled_from(LEFT_VALUES), st.sampled_from(right_keys))
    return st.one_of(pointing, pointing, pointing, st.sampled_from(LEFT_VALUES))


@st.composite
def cuts(draw: st.DrawFn, sequence: Sequence[T]) -> list[list[T]]:
    """Cut a sequence at random places; pieces may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(sequence)), max_size=6)))
    return [list(sequence[start:end]) for start, end in pairwise([0, *places, len(sequence)])]


def _keys(keys: Sequence[str], *, null_keys: bool) -> st.SearchStrategy[str | None]:
    present = st.sampled_from(keys)
    return st.one_of(present, present, present, st.none()) if null_keys else present


def _values(values: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.one_of(values, values, values, st.none())


def _timed(rows: list[tuple[tuple[str, str | None, str | None], int]]) -> list[Change]:
    changes: list[Change] = []
    latest = 0
    for (topic, key, value), advance in rows:
        ts = max(0, latest + advance)
        changes.append((topic, key, value, ts))
        latest = max(latest, ts)
    return changes
