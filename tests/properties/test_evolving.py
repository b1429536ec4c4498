"""Random plans that evolve into themselves, with other shards, at a random place in random logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.plans.engine import stable_hash
from tests.plans.evolving import assert_evolves, evolves
from tests.properties.test_plans import Case, cases


@given(
    case=cases(ordered=False, fits=lambda node: evolves([node])),
    place=st.integers(0, 4),
    shards=st.sampled_from([1, 4]),
)
def test_a_random_plan_that_evolves_says_what_it_would_have_said(case: Case, place: int, shards: int) -> None:
    hasher = (lambda parts: 7) if case.colliding else stable_hash  # noqa: ARG005 - every key collides
    first, rest = case.pieces[:place], case.pieces[place:]
    assert_evolves(case.nodes, case.nodes, first, rest, shards=(case.shards, shards), hasher=hasher)
