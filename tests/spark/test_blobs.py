"""Blobs: what is packed comes out again, whatever is written small on the way; no session is needed."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tablestream.errors import DamagedMessagesError
from tablestream.runtime.ports import EVERY_SHARD, METRICS, Port
from tablestream.spark import blobs

PORT = Port(3, 3, 1, "_kh", "rows")
EDGES = [-(1 << 63), (1 << 63) - 1, 0, -1, 1 << 32, (1 << 32) - 1]
INTS = st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-5, 5)
ROWS = st.lists(
    st.tuples(
        INTS, st.none() | INTS, st.sampled_from(["0000/a", "0001/b", ""]), st.none() | st.text(max_size=20)
    ),
    max_size=12,
)


def frame(rows: list[tuple[int, int | None, str, str | None]]) -> pl.DataFrame:
    types = {"_t": pl.Int64, "_k0": pl.Int64, "_p": pl.String, "text": pl.String}
    flat = pl.DataFrame(rows, schema=types, orient="row")
    return flat.with_columns(v=pl.when(pl.col("text").is_not_null()).then(pl.struct("_k0", "text")))


@given(ROWS)
def test_messages_come_out_as_they_went_in(rows: list[tuple[int, int | None, str, str | None]]) -> None:
    for times in (1, 1000):  # few messages, and so many that they are narrowed
        messages = pl.concat([frame(rows)] * times)
        (found,) = blobs.decode([blobs.encode(messages)])
        assert_frame_equal(found, messages)


def test_blobs_of_a_port_come_out_together() -> None:
    few, many = (pl.DataFrame({"_k0": range(count), "_p": ["f"] * count}) for count in (3, 5000))
    found = blobs.decode([blobs.encode(one) for one in (few, many, few, many, few)])
    assert sorted(one.height for one in found) == [9, 10_000]
    wider = few.with_columns(more=1)
    assert [one.width for one in blobs.decode([blobs.encode(few), blobs.encode(wider)])] == [2, 3]


@pytest.mark.parametrize("partitions", [1, 2, blobs._FEW_VALUES, blobs._FEW_VALUES + 1, 40])
def test_source_partitions_keep_their_names_however_many_there_are(partitions: int) -> None:
    names = [f"0000/{n * 7 % partitions}" for n in range(5000)]
    messages = pl.DataFrame({"_k0": range(5000), "_p": names})
    (found,) = blobs.decode([blobs.encode(messages)])
    assert_frame_equal(found, messages)


def test_blobs_that_come_out_together_have_their_own_source_partitions_and_bounds() -> None:
    """The first two have different numbers for the same name; in the third, integers are too far apart."""
    parts = [
        pl.DataFrame({"_k0": [low, high] * 1000, "_p": names * 1000, "v": [{"c0": low}] * 2000})
        for low, high, names in (
            (-5, 7, ["0000/a", "0001/b"]),
            (1 << 40, (1 << 40) + 1, ["0001/b", "0002/c"]),
            (-(1 << 63), (1 << 63) - 1, ["0000/a", "0000/a"]),
        )
    ]
    (found,) = blobs.decode(map(blobs.encode, parts))
    assert_frame_equal(found, pl.concat(parts))


def test_numbers_close_together_and_source_partitions_are_written_small() -> None:
    scattered = [n * 0x9E3779B97F4A7C15 % (1 << 62) for n in range(5000)]
    far, near = (pl.DataFrame({"_t": [n >> bits for n in scattered]}) for bits in (0, 31))
    assert len(blobs.encode(near)) < 0.6 * len(blobs.encode(far))
    short, long = (pl.DataFrame({"_p": [text] * 5000}) for text in ("f", "file" * 50))
    assert len(blobs.encode(long)) < len(blobs.encode(short)) + 400


def test_each_blob_says_how_many_rows_it_has() -> None:
    hashes = pl.DataFrame({"_kh": list(range(-50, 50)), "_p": ["f"] * 100})
    packed = list(blobs.pack(PORT, hashes, 4))
    assert {one.shard for one in packed} == set(blobs.shard_names(4))
    assert [one.rows for one in packed] == [blobs.decode([one.blob])[0].height for one in packed]
    assert sum(one.rows for one in packed) == 100


@pytest.mark.parametrize("route", ["_kh", EVERY_SHARD])
def test_large_rows_make_more_blobs_and_more_record_batches(
    monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """The limit is far below 2 GB, so that 300 values of 10 MB come through; here it is small."""
    monkeypatch.setattr(blobs, "MAX_BYTES", 10_000)
    sizes = [6_000] * 9 + [1] * 500 + [25_000]  # rows of uneven size, and one that is too large by itself
    noise = random.Random(1).randbytes
    rows = pl.DataFrame({"_kh": [3] * len(sizes), "v": [{"c0": noise(size)} for size in sizes]})
    packed = list(blobs.pack(Port(3, 3, 1, route, "rows"), rows, 2))
    shards = {one.shard for one in packed}
    for shard in shards:
        mine = [one for one in packed if one.shard == shard]
        assert len(mine) > 9
        assert_frame_equal(pl.concat(blobs.decode([one.blob])[0] for one in mine), rows)
    assert sorted(len(one.blob) for one in packed)[-len(shards) - 1] < 12_000
    batches = list(blobs.record_batches(packed))
    assert len(batches) > 5 * len(shards)
    assert [row for batch in batches for row in batch[blobs.BLOB].to_pylist()] == [one.blob for one in packed]
    assert list(blobs.record_batches([])) == []


@given(st.binary(max_size=100))
@example(b"\0\0\0\0")
def test_any_bytes_are_no_messages(data: bytes) -> None:
    with pytest.raises(DamagedMessagesError, match="are not what was sent"):
        blobs.decode([data])


@given(st.sampled_from([3, 5000]), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_byte_that_changed_on_the_way_is_found(rows: int, at: float, by: int) -> None:
    """Or Arrow might read another number, or make room for as many bytes as a broken length says."""
    blob = bytearray(blobs.encode(pl.DataFrame({"_k0": range(rows), "_p": ["f"] * rows})))
    blob[int(at * len(blob))] ^= by
    for damaged in (bytes(blob), bytes(blob[: int(at * len(blob))])):
        with pytest.raises(DamagedMessagesError):
            blobs.decode([damaged])


def test_counters_are_rows_of_their_own() -> None:
    (counter,) = blobs.counters(7, {("orders", "null-key"): 3})
    assert counter == blobs.Blob(7, METRICS, 3, b"orders: null-key")
