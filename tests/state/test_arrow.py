"""What wide tables of few rows take in Arrow."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from tablestream.state.arrow import in_types, ipc_stream

_ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")


def _written(table: pa.Table) -> bytes:
    data = ipc_stream(table, _ZSTD)
    assert pa.ipc.open_stream(data).read_all() == table
    return bytes(data)


def _plain(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("rows", "compressed"), [(0, False), (6, False), (1000, True)])
def test_only_buffers_that_are_not_tiny_are_compressed(rows: int, *, compressed: bool) -> None:
    table = pl.DataFrame({f"c{number}": range(rows) for number in range(50)}).to_arrow()
    assert (_written(table) == _plain(table)) is not compressed


def test_one_long_text_is_compressed() -> None:
    table = pa.table({"text": ["a" * 10_000], "number": [1]})
    assert len(_written(table)) < 2_000


def test_the_rows_of_a_slice_decide() -> None:
    table = pa.table({"number": range(10_000)})
    assert _written(table.slice(5_000, 3)) == _plain(table.slice(5_000, 3))


def test_columns_are_cast_where_their_types_differ() -> None:
    wanted = pa.schema([("text", pa.string()), ("number", pa.int64())], metadata={"by": "me"})
    table = in_types(pa.table({"text": pa.array(["a"], pa.large_string()), "number": [1]}), wanted)
    assert table.schema.equals(wanted, check_metadata=True)
    assert table.to_pylist() == [{"text": "a", "number": 1}]
