"""A Parquet file that a worker writes itself, in the types of those that Spark writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.types import StructType

from tablestream.connectors.sink import ORDER, TIMESTAMP
from tablestream.state.arrow import in_types

#: Where Spark's readers look for the types of a file, and for who wrote it: times of other writers are taken for those
#: of the calendar before 1582 under some settings.
_SPARK_TYPES, _SPARK_VERSION = "org.apache.spark.sql.parquet.row.metadata", "org.apache.spark.version"
_VERSION = "4.1.0"
#: How Spark and PyArrow call the compressions that both know.
CODECS = {"none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"}
#: The rows of a row group. They are gathered: a micro-batch comes as hundreds of small parts.
_ROWS = 200_000
#: A column whose different values take more is written without a dictionary. With the default, a megabyte, values that
#: hardly repeat fill a dictionary in vain: they take twice the time, and more bytes.
_DICTIONARY_BYTES = 512 << 10

#: Columns that grow from row to row, or nearly: their differences take a quarter of the bytes of their values.
_GROWING = {TIMESTAMP, f"{ORDER}.time", f"{ORDER}.position"}


def spark_schema(schema: pa.Schema, columns: StructType) -> pa.Schema:
    """Return a schema that also says which types the columns have in Spark."""
    return schema.with_metadata({_SPARK_TYPES: columns.json(), _SPARK_VERSION: _VERSION})


@dataclass
class ParquetFile:
    """One Parquet file, which a task writes."""

    store: fs.FileSystem
    directory: str
    """Where it is; the directory is made if it is not there."""
    schema: pa.Schema
    """See `spark_schema`."""
    codec: str = "snappy"
    """One of the values of `CODECS`."""
    name: str = field(default_factory=lambda: f"part-{uuid.uuid4()}.parquet")
    _held: list[pa.Table] = field(default_factory=list)
    _held_rows: int = 0
    _writer: pq.ParquetWriter | None = None
    _metadata: list[pq.FileMetaData] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}" if self.directory else self.name

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._metadata[0]

    def add(self, rows: pa.Table) -> None:
        """Write rows, once there are enough for a row group."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        if self._held_rows >= _ROWS:
            self._write()

    def end_keys(self) -> None:
        """Do nothing: every change is written."""

    def close(self) -> str:
        """Write what is left, and return the file's name."""
        writer = self._write()
        if self.schema.metadata:
            # Arrow's own description, which no other reader needs, is left out, and this would go with it.
            writer.add_key_value_metadata(self.schema.metadata)
        writer.close()
        return self.name

    def abandon(self) -> None:
        """Let go of the file; what is there of it stays, as if the process had been killed."""
        self._held, self._writer = [], None

    def _write(self) -> pq.ParquetWriter:
        if self._writer is None:
            if self.directory:
                self.store.create_dir(self.directory, recursive=True)
            self._writer = pq.ParquetWriter(
                self.path,
                self.schema,
                filesystem=self.store,
                compression=self.codec,
                store_schema=False,
                store_decimal_as_integer=True,
                metadata_collector=self._metadata,
                dictionary_pagesize_limit=_DICTIONARY_BYTES,
                **_encodings(self.schema),
            )
        rows = pa.concat_tables(self._held) if self._held else self.schema.empty_table()
        self._writer.write_table(in_types(rows, self.schema), row_group_size=_ROWS)
        self._held, self._held_rows = [], 0
        return self._writer


@lru_cache(maxsize=256)
def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written: as differences, or as usual, by way of a dictionary."""
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    found = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    leaves = {found.column(number).path: found.column(number) for number in range(len(found))}
    growing = [path for path in leaves if path in _GROWING and leaves[path].physical_type == "INT64"]
    return {
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED") or None,
        "use_dictionary": [path for path in leaves if path not in growing],
    }
