"""Arrow tables of many columns and few rows, for which Arrow does more than is needed."""

from __future__ import annotations

import pyarrow as pa

#: Each buffer takes microseconds to compress and to open again, however small it is. Buffers that are smaller than so
#: many bytes on average are written as they are.
_SMALL_BYTES = 128
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)


def ipc_stream(table: pa.Table, compressed: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    """Write a table as an Arrow IPC stream, compressed if it is large enough; a reader need not know."""
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    buffers = sum(one is not None for chunk in chunks for one in chunk.buffers())
    options = _PLAIN if table.nbytes < _SMALL_BYTES * buffers else compressed
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def in_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of a table that have other types than a schema, whose columns may all be null."""
    if table.column_names != schema.names:
        raise ValueError(f"Columns {table.column_names} are not {schema.names}.")
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
