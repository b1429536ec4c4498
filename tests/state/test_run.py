"""Chunks: every type survives, sizes are bounded, and nothing is dragged along."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tablestream.state.cache import NoCache
from tablestream.state.run import RunInfo, RunStorage, checksum, compact, cut, decode, encode, own_strings
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import TraceSpec
from tests.state.tables import ONE_ROW_PER_KEY, frame

COLUMNS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "long strings": (pl.String(), ["x" * 40, "", None, "\N{GREEK SMALL LETTER ALPHA}"]),
    "binary": (pl.Binary(), [b"\x00\xff", b"", None, b"y" * 40]),
    "booleans": (pl.Boolean(), [True, None, False, True]),
    "small integers": (pl.Int8(), [-128, 127, None, 0]),
    "doubles": (pl.Float64(), [float("inf"), -0.0, None, 5e-324]),
    "decimals": (pl.Decimal(38, 18), [Decimal("1.5"), Decimal("-99999999999999999999.1"), None, Decimal(0)]),
    "dates": (pl.Date(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1970, 1, 1)]),
    "instants": (pl.Datetime("us", "UTC"), [dt.datetime(1, 1, 1, tzinfo=dt.UTC), None, None, None]),
    "local times": (pl.Datetime("us"), [dt.datetime(9999, 12, 31, 23), None, None, None]),
    "intervals": (pl.Duration("us"), [dt.timedelta(days=-1, microseconds=1), None, None, None]),
    "lists": (pl.List(pl.String()), [["a", None], [], None, ["z" * 40]]),
    "structs": (
        pl.Struct({"a": pl.Int64(), "b": pl.String()}),
        [{"a": None, "b": None}, None, {"a": 1}, None],
    ),
    "nested structs": (
        pl.Struct({"s": pl.Struct({"a": pl.Int64()})}),
        [None, {"s": None}, {"s": {"a": None}}, {"s": {"a": 1}}],
    ),
    "maps": (
        pl.List(pl.Struct({"key": pl.String(), "value": pl.Struct({"a": pl.Int64()})})),
        [[{"key": "k", "value": None}], [], None, [{"key": "k", "value": {"a": None}}]],
    ),
    "nothing but nulls": (pl.Struct({"a": pl.Int64()}), [None] * 4),
    "empty structs": (pl.Struct([]), [{}, None, {}, None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_and_every_null_survives(name: str) -> None:
    dtype, values = COLUMNS[name]
    before = pl.DataFrame({"v": pl.Series(values, dtype=dtype)})
    for after in (decode(encode(own_strings(before))), compact(before)):
        assert after.schema == before.schema
        assert after.equals(before)
        # equals() looks into structs; a null struct and a struct of nulls must stay apart.
        assert after["v"].is_null().to_list() == [value is None for value in values]


def test_encoding_is_deterministic_and_small() -> None:
    rows = frame({(f"k{n}", 0): n for n in range(5000)})
    assert encode(own_strings(rows)) == encode(own_strings(rows))
    assert len(encode(own_strings(rows))) < rows.estimated_size() / 3
    assert checksum(b"") == "e3b0c44298fc1c149afbf4c8996fb924"


def test_gathered_rows_do_not_drag_their_source_along() -> None:
    rows = frame({(f"k{n}", 0): n for n in range(20_000)})
    few = rows[list(range(0, 20_000, 1000))]
    assert len(encode(own_strings(few))) < 4000
    newest = pl.CompatLevel.newest()  # hands over the buffers as they are
    assert few.to_arrow(compat_level=newest).get_total_buffer_size() > 100_000
    assert compact(few).to_arrow(compat_level=newest).get_total_buffer_size() < 5000
    assert compact(few).equals(few)


def write(frames: list[pl.DataFrame], size_bytes: int, store: MemoryStore) -> RunInfo | None:
    numbers = iter([5])
    return RunStorage(ONE_ROW_PER_KEY, store, NoCache(), size_bytes).write(lambda: next(numbers), frames)


@pytest.mark.parametrize("size_bytes", [2000, 20_000, 10**7])
@pytest.mark.parametrize("inputs", [1, 40])
def test_chunks_are_bounded_and_together_are_the_run(size_bytes: int, inputs: int) -> None:
    store = MemoryStore()
    rows = frame({(f"k{n}", 0): n if n % 4 else None for n in range(1000)}).sort("_kh")
    info = write(list(rows.iter_slices(1000 // inputs)), size_bytes, store)
    assert info is not None
    assert (info.number, info.rows, info.dead) == (5, 1000, 250)
    assert list(store.chunks) == [(0, 5, index) for index in range(len(info.chunks))]
    sizes = [len(data) for data in store.chunks.values()]
    assert max(sizes) <= size_bytes
    assert (info.size_bytes, sum(sizes)) == (sum(sizes), store.written_bytes)
    assert pl.concat([decode(data) for data in store.chunks.values()]).equals(rows)
    assert (info.min_hash, info.max_hash) == (rows["_kh"].min(), rows["_kh"].max())
    bounds = [bound for chunk in info.chunks for bound in (chunk.min_hash, chunk.max_hash)]
    assert bounds == sorted(bounds)
    assert (size_bytes == 10**7) == (len(info.chunks) == 1)


def test_rows_of_uneven_size_are_halved_until_they_fit() -> None:
    rng = random.Random(1)
    schema = pl.Schema({"_kh": pl.Int64(), "k": pl.Binary(), "_live": pl.Boolean()})
    spec = TraceSpec("t", schema, key=("k",))
    sizes = [10] * 200 + [30_000] * 6 + [10] * 200
    values = [rng.randbytes(size) for size in sizes]
    rows = pl.DataFrame({"_kh": range(len(sizes)), "k": values, "_live": [True] * len(sizes)}, schema=schema)
    store = MemoryStore()
    info = RunStorage(spec, store, NoCache(), 50_000).write(lambda: 0, [rows])
    assert info is not None
    assert max(len(data) for data in store.chunks.values()) <= 50_000
    assert pl.concat([decode(data) for data in store.chunks.values()]).equals(rows)


def test_a_row_larger_than_a_chunk_is_a_chunk() -> None:
    store = MemoryStore()
    info = write([frame({("a", 0): 1, ("b", 0): 2}).sort("_kh")], 1, store)
    assert info is not None
    assert [chunk.rows for chunk in info.chunks] == [1, 1]


def test_no_rows_are_no_run_and_take_no_number() -> None:
    store = MemoryStore()
    assert RunStorage(ONE_ROW_PER_KEY, store, NoCache()).write(lambda: 1 // 0, [frame({})]) is None
    assert store.writes == 0


def test_cut_regroups_and_loses_nothing() -> None:
    rows = frame({(f"k{n}", 0): n for n in range(300)})
    total = rows.estimated_size()
    for inputs in (1, 7, 300):
        parts = list(cut(rows.iter_slices(inputs), int(total / 5)))
        assert pl.concat(parts).equals(rows)
        assert 5 <= len(parts) <= 7
    assert list(cut([], 10)) == []
