"""Every plan of the catalogue against its twin of reference operators, in both modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_each, quick_first
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.logs import random_cuts, random_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.plans.tables import Value

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
default_is_quick = pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])
#: Records of one log.
SIZE = 120


def same_for_all(key: Sequence[Value]) -> int:
    """Hash a key so that all keys collide."""
    del key
    return -7


@both_modes
@pytest.mark.parametrize("name", quick_each(SINGLE | COMPOSED))
def test_a_plan_gives_what_its_reference_operators_give(name: str, *, compat: bool) -> None:
    nodes = (SINGLE | COMPOSED)[name]()
    log = random_log(sources_of(nodes), seed=len(name), size=SIZE)
    pieces = [log] if compat else random_cuts(log, len(name), 3)
    assert_like_twin(nodes, pieces, compat=compat, shards=1, ordered=name in SINGLE, restarts=True)


@default_is_quick
@pytest.mark.parametrize(
    "name",
    [
        "key outer",
        "foreign key left",
        "foreign key outer, both sides filtered",
        "one to many left",
        "foreign key self inner",
        "outer foreign keys joined by both their keys",
        "pairs pointed at",
        "groups by two parts",
        "groups by pointer, counted",
        "groups of groups",
        "top of groups by two parts",
    ],
)
@pytest.mark.parametrize("shards", quick_first([5, 1]))
def test_keys_are_told_apart_though_all_hashes_are_equal(name: str, shards: int, *, compat: bool) -> None:
    nodes = (SINGLE | COMPOSED)[name]()
    log = random_log(sources_of(nodes), seed=2, size=SIZE)
    pieces = random_cuts(log, 3, 3)
    assert_like_twin(nodes, pieces, compat=compat, shards=shards, hasher=same_for_all, ordered=name in SINGLE)


@default_is_quick
@pytest.mark.parametrize(
    "name",
    [
        "key outer",
        "foreign key outer",
        "one to many self left",
        "A five times",
        "groups by pointer",
        "groups by key, counted",
        "A foreign key left (groups of A)",
        "top of groups by key",
    ],
)
def test_slices_of_a_micro_batch_do_not_show(name: str, *, compat: bool) -> None:
    nodes = (SINGLE | COMPOSED)[name]()
    log = random_log(sources_of(nodes), seed=4, size=SIZE)
    assert_like_twin(nodes, [log], compat=compat, shards=1, slice_rows=13, ordered=name in SINGLE)
