"""Elements of arrays become records."""

from __future__ import annotations

from collections import Counter

import polars as pl

from tablestream.operators.flat_map import FlatMap
from tablestream.operators.operator import Context
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces


def test_fields_are_taken_by_their_places_whatever_they_are_called() -> None:
    """Polars takes ``*`` and ``^...$`` for several fields."""
    element = pl.Struct({"*": pl.Int64, "^b$": pl.Int64, "b": pl.Int64})
    value = pl.Struct({"c0": pl.Int64, "c1": pl.Int64, "c2": pl.Int64})
    operator = FlatMap(
        pl.Schema({"_k0": pl.String()}), pl.Struct({"c0": pl.List(element)}), value, takes_apart=True
    )
    (schema,) = operator.inputs
    elements = [{"*": 1, "^b$": 2, "b": 3}, None, {"*": 4, "^b$": None, "b": 6}]
    row = {"_kh": 1, "_k0": "a", "_ts": 5, "_live": True, "v": {"c0": elements}, "_seq": 1, "_step": 1}
    frame = pl.DataFrame([row], schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
    state = ShardState(MemoryStore(), NoCache(), numbered_traces(operator.traces), "plan")
    (emission,) = operator.run([frame], Context(state.trace, Counter()))
    assert emission.rows["v"].to_list() == [
        {"c0": 1, "c1": 2, "c2": 3},
        None,
        {"c0": 4, "c1": None, "c2": 6},
    ]
    assert emission.rows["_live"].to_list() == [True, False, True]
