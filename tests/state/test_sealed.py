"""Texts with a checksum."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.errors import DamagedStateError, PlanChangedError
from tablestream.state.cache import NoCache
from tablestream.state.sealed import seal, unseal
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import TraceSpec

SPEC = TraceSpec("rows", pl.Schema({"_kh": pl.Int64, "_k0": pl.String, "_live": pl.Boolean}), key=("_k0",))


@given(st.text())
def test_what_is_sealed_comes_back(text: str) -> None:
    assert unseal(seal(text), "plan") == text


@given(st.text(min_size=1, alphabet="ab\n"), st.data())
def test_an_altered_character_is_found(text: str, data: st.DataObject) -> None:
    sealed = seal(text)
    place = data.draw(st.integers(0, len(sealed) - 1), "place")
    other = data.draw(st.sampled_from("0X\n").filter(lambda one: one != sealed[place]), "character")
    with pytest.raises(DamagedStateError, match="The text of the plan"):
        unseal(sealed[:place] + other + sealed[place + 1 :], "plan")


@pytest.mark.parametrize("text", ["[]", '{"version": 2}'])
def test_a_text_of_an_older_version_has_no_checksum(text: str) -> None:
    assert unseal(text, "plan") == text


@given(st.text(), st.data())
def test_a_text_that_is_cut_is_found(text: str, data: st.DataObject) -> None:
    sealed = seal(text)
    with pytest.raises(DamagedStateError, match="The text of the plan"):
        unseal(sealed[: data.draw(st.integers(0, len(sealed) - 1), "length")], "plan")


def a_store() -> MemoryStore:
    """The state of a shard, made by a plan."""
    store = MemoryStore()
    state = ShardState(store, NoCache(), [SPEC], "f00d", "the old plan", tables="{}")
    state.trace("rows").insert(pl.DataFrame({"_kh": [7], "_k0": ["a"], "_live": [True]}))
    state.commit()
    return store


def test_a_changed_plan_is_shown_from_its_sealed_text() -> None:
    with pytest.raises(PlanChangedError, match=r"-the old plan\n\+the new plan"):
        ShardState(a_store(), NoCache(), [SPEC], "beef", "the new plan").trace("rows")


def test_a_damaged_text_of_a_plan_is_not_shown_as_the_plan() -> None:
    store = a_store()
    assert store.plan is not None
    store.plan = store.plan.replace("old", "odd")
    with pytest.raises(DamagedStateError, match="The text of the plan"):
        ShardState(store, NoCache(), [SPEC], "beef", "the new plan").trace("rows")
