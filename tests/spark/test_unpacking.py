"""What unpacks blobs between two rounds; no session is needed."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from tablestream.spark import blobs, unpacking
from tablestream.spark.unpacking import ChangeUnpacker, Opened

SCHEMA = pa.schema([("__p3__k0", pa.int64()), ("__p3_v", pa.bool_()), ("__p3_v_c0", pa.string())])
OPENED = Opened(3, (("_k0", None), ("v", ""), ("v", "c0")), SCHEMA)


def messages(first: int, rows: int) -> pl.DataFrame:
    numbers = list(range(first, first + rows))
    return pl.DataFrame({"_k0": numbers, "v": [{"c0": str(n)} if n % 3 else None for n in numbers]})


def blob(shard: int, port: int, first: int, rows: int) -> blobs.Blob:
    return blobs.Blob(shard, port, rows, blobs.encode(messages(first, rows)))


def unpacked(*held: blobs.Blob) -> list[pa.RecordBatch]:
    return list(ChangeUnpacker((OPENED,))(blobs.record_batches(held)))


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[int, int, int, str | None]]:
    names = (blobs.SHARD, blobs.PORT, *SCHEMA.names)
    rows = [row for batch in batches for row in batch.select(names).to_pylist() if row[blobs.PORT] == 3]
    assert all(row["__p3_v"] == (row["__p3_v_c0"] is not None) for row in rows)
    return sorted((row[blobs.SHARD], row[blobs.PORT], row["__p3__k0"], row["__p3_v_c0"]) for row in rows)


def test_blobs_of_a_shard_and_port_become_one_record_batch() -> None:
    held = [blob(0, 3, 0, 5), blob(0, 3, 5, 5), blob(1, 3, 10, 5)]
    batches = unpacked(*held)
    assert [batch.num_rows for batch in batches] == [10, 5]
    expected = [(n // 10, 3, n, str(n) if n % 3 else None) for n in range(15)]
    assert rows_of(batches) == expected


def test_blobs_of_other_ports_pass_through_as_they_are() -> None:
    other = blob(0, 4, 0, 5)
    passing, rows = unpacked(blob(0, 3, 0, 5), other, blob(0, 3, 5, 5))
    assert passing.select(blobs.COLUMNS).to_pylist() == [dict(zip(blobs.COLUMNS, other, strict=True))]
    assert rows.num_rows == 10


@pytest.mark.parametrize(("rows", "batches"), [(100, 1), (10, 2), (5, 4), (1, 20)])
def test_record_batches_have_a_bounded_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, batches: int
) -> None:
    monkeypatch.setattr(unpacking, "ROWS", rows)
    found = unpacked(*(blob(0, 3, first, 5) for first in range(0, 20, 5)))
    assert len(found) == batches
    assert [key for _, _, key, _ in rows_of(found)] == list(range(20))


def test_blobs_are_unpacked_together_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few wide rows may need much memory."""
    given = [blob(0, 3, first, 5) for first in range(0, 20, 5)]
    monkeypatch.setattr(unpacking, "BYTES", 2 * max(len(one.blob) for one in given))
    found = unpacked(*given)
    assert len(found) == 2
    assert [key for _, _, key, _ in rows_of(found)] == list(range(20))
