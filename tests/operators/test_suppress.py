"""Suppression of values of any type by their bytes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tablestream.connectors.infinity import AFTER_ALL, BEFORE_ALL
from tablestream.operators.buffer.suppress import Suppress
from tablestream.operators.cells import column
from tablestream.operators.operator import Context
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

TEXT = "x" * 300


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        (pl.String(), "", TEXT),
        (pl.Binary(), b"\xff", bytes(300)),
        (pl.Struct({"b": pl.Binary, "n": pl.Int64}), {"b": None, "n": 1}, {"b": bytes(300), "n": 1}),
        (pl.List(pl.Struct({"b": pl.Binary})), [None, {"b": b""}], [{"b": bytes(300)}]),
        (pl.List(pl.List(pl.Binary)), [None, []], [[bytes(300), None]]),
        (pl.Map(pl.Int64, pl.Binary), {1: b"x"}, {1: bytes(300), 2: None}),
        (pl.Map(pl.Date, pl.String), {date(2024, 1, 1): ""}, {date(2024, 1, 1): TEXT}),
        (pl.Struct({"m": pl.Map(pl.Boolean, pl.Decimal(9, 2))}), {"m": {True: Decimal(1)}}, None),
        (
            pl.Map(pl.Binary, pl.Datetime("us", "UTC")),
            {b"": datetime(2024, 1, 1, tzinfo=UTC)},
            {bytes(300): None},
        ),
        (pl.Float64(), float("nan"), None),
        (pl.Struct([]), {}, None),
        (pl.Struct({"*": pl.String, "^a$": pl.Int8}), {"*": "", "^a$": 1}, {"*": TEXT, "^a$": None}),
    ],
)
def test_values_of_every_type_have_bytes(kind: pl.DataType, small: Any, large: Any) -> None:
    """Of two rows with 350 bytes in all the first one leaves exactly if one of them is large."""
    operator = Suppress(pl.Schema({"_k0": pl.Binary()}), pl.Struct({"c0": kind}), 1000, max_bytes=350)
    (schema,) = operator.inputs
    left = []
    for values in ([small, None], [large, small]):
        rows = [
            {"_kh": n, "_k0": bytes([n]), "_ts": n, "_live": True, "v": {"c0": one}, "_seq": n, "_step": n}
            for n, one in enumerate(values, 1)
        ]
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        state = ShardState(MemoryStore(), NoCache(), numbered_traces(operator.traces), "plan")
        (emission,) = operator.run([frame], Context(state.trace, Counter()))
        left.append(emission.rows["_k0"].to_list())
    assert left == [[], [] if large is None else [b"\x01"]]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_and_times_beyond_all_years_have_bytes(zone: str | None) -> None:
    time, day = pl.Datetime("us", zone), pl.Date()
    value = pl.Struct({"c0": time, "c1": day, "c2": pl.List(time), "c3": pl.Map(day, pl.Struct({"t": time}))})
    operator = Suppress(pl.Schema({"_k0": time}), value, 1000, max_bytes=1000)
    (schema,) = operator.inputs
    cells = [
        {"c0": at, "c1": on, "c2": [at], "c3": [{"key": on, "value": {"t": at}}]}
        for at, on in ((AFTER_ALL, 2**31 - 1), (BEFORE_ALL, -(2**31)))
    ]
    frame = pl.DataFrame(
        {
            "_kh": [1, 2],
            "_k0": column([AFTER_ALL, BEFORE_ALL], time),
            "_ts": [1, 2],
            "_live": [True, True],
            "v": column(cells, value),
            "_seq": [1, 2],
            "_step": [1, 2],
        }
    ).select(*schema, "_seq", "_step")
    state = ShardState(MemoryStore(), NoCache(), numbered_traces(operator.traces), "plan")
    context = Context(state.trace, Counter())
    (emission,) = operator.run([frame], context)
    assert emission.rows.is_empty()
    assert 200 < context.marks["bytes"] < 500


def test_ordinary_dates_and_times_have_the_bytes_that_older_states_counted() -> None:
    value = pl.Struct({"c0": pl.Datetime("us", "UTC"), "c1": pl.Date()})
    operator = Suppress(pl.Schema({"_k0": pl.Int64()}), value, 1000, max_bytes=1000)
    cells = column([{"c0": 1_700_000_000_123_456, "c1": 19_000}], value)
    rows = pl.DataFrame({"_k0": [1], "v": cells})
    assert operator._sizes(rows) == [
        len(
            pl.select(pl.struct(pl.lit(1).alias("_k0"), pl.lit(cells).alias("v")).struct.json_encode()).item()
        )
    ]
