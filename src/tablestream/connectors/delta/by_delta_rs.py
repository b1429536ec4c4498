"""A Delta table by delta-rs, the package ``deltalake``: no jars, and no settings of the session.

Small micro-batches are merged by this process from memory. Larger ones are first written as Parquet files by Spark's
workers, next to the table, where no reader of it looks, and are then streamed into it.

=====================================================  ============================================================
what                                                   is left to Spark, or refused if the session has no Delta Lake
=====================================================  ============================================================
a table whose protocol asks for more than              yes: delta-rs does not write it, or not as Delta would
`FEATURES`: column mapping, deletion vectors,
change data feed, clustering, row tracking ...
a column that is generated, or ``varchar(n)``          yes: delta-rs does not compute or check it
constraints                                            yes: delta-rs reads ``k / 2 < 0.5`` as integers
partitions by a time or by bytes                       yes: delta-rs writes other texts for them
a new table whose names need column mapping            yes
a type that Delta or Arrow lacks                       yes
=====================================================  ============================================================
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.type_parts import within
from tablestream.connectors.delta.by_spark import last_changes
from tablestream.connectors.delta.columns import DECLARED, as_texts, needs_mapping
from tablestream.connectors.delta.marks import Commit, DeltaMark
from tablestream.connectors.parquet_file import ParquetFile
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE, ORDER, quoted
from tablestream.connectors.spark_types import arrow_schema, nullable
from tablestream.state.positions import frame_of

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, WriterProperties

#: What a table may ask of its writers.
FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})
#: What stands in the metadata of a column that delta-rs does not compute, or not as Delta does.
_OF_A_COLUMN = {
    "delta.generationExpression": "generated",
    "delta.invariants": "constrained by an expression",
    DECLARED: "a text of limited length",
}
#: Up to the protocol's writer version 6, a table's properties say what it asks for.
_PROPERTIES = {
    "delta.enablechangedatafeed": ("true", "a change data feed"),
    "delta.columnmapping.mode": ("name id", "column mapping"),
}
_CONSTRAINT = "delta.constraints."
#: How properties begin by which Spark's writer keeps the files of a table large.
_KEPT = "delta.autooptimize."
#: Partitions of these types are written as texts that other readers take for other values.
_NO_PARTITIONS = (T.BinaryType, T.TimestampType)
_TYPES = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.ArrayType,
    T.MapType,
    T.StructType,
)
#: Up to so many rows come to this process; more are written by the workers.
FEW_ROWS = 20_000
#: Where the workers write, below the table. Readers and VACUUM pass over what begins with an underscore.
_STAGING = "_tablestream"
#: From this version of writers on, a protocol lists what it asks for.
_LISTS = 7
#: A double holds so many digits.
_EXACT_DIGITS = 15


class RsTable:
    """A table at a place, as delta-rs sees it now: a local path, or a URI that delta-rs knows.

    It has the methods of `SparkTable`, which say what they do. `has_few`: whether the rows that will be written are
    known to be few.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        self.uri, self._options, self.has_few = uri, dict(storage_options), False
        self._unreadable = ""
        self._table: DeltaTable | None = None
        try:
            self._table = DeltaTable(uri, storage_options=self._options)
        except TableNotFoundError:
            pass
        except DeltaError as error:  # such as a feature that it does not know
            self._unreadable = f"cannot be opened ({str(error).splitlines()[0]})"

    @property
    def columns(self) -> T.StructType | None:
        if self._table is None:
            return None
        return T.StructType.fromJson(json.loads(self._table.schema().to_json()))

    def why_not(self, output: T.StructType) -> str | None:
        """Say why delta-rs cannot write an output to the table; None if it can."""
        others = [one for column in output for one in within(column.dataType) if type(one) not in _TYPES]
        if self._unreadable or others:
            return self._unreadable or f"gets a value of type {others[0].simpleString()}"
        if self._table is None:
            return "gets a name that needs column mapping" if needs_mapping(output) else None
        return _of_protocol(self._table) or _of_columns(self.columns) or self._of_partitions()

    def _of_partitions(self) -> str | None:
        names = set() if self._table is None else {*self._table.metadata().partition_columns}
        kinds = [one.dataType for one in self.columns or () if one.name in names]
        wrong = [one.simpleString() for one in kinds if isinstance(one, _NO_PARTITIONS)]
        return f"is partitioned by a {wrong[0]}" if wrong else None

    def is_empty(self) -> bool:
        return self._table is None or not self._finds("SELECT 1 AS found FROM t LIMIT 1")

    def _finds(self, query: str) -> bool:
        """Whether a query of the table, which is t, has rows."""
        from deltalake import QueryBuilder

        return bool(pa.table(QueryBuilder().register("t", self._there).execute(query)).num_rows)

    def commits(self, limit: int | None = None) -> list[Commit]:
        return [] if self._table is None else [_commit(one) for one in self._table.history(limit)]

    def last_version(self, app_id: str) -> int | None:
        return None if self._table is None else self._table.transaction_version(app_id)

    def append(self, rows: DataFrame, said: DeltaMark) -> None:
        with self._source(rows, said.query) as source:
            self._write(source, said)

    def mark(self, columns: T.StructType, said: DeltaMark) -> None:
        self._write(arrow_schema(self.columns or columns).empty_table(), said)

    def add_columns(self, columns: T.StructType) -> None:
        from deltalake import Schema

        if columns.names:
            self._there.alter.add_columns(Schema.from_arrow(arrow_schema(columns)).fields)

    def merge(self, changes: DataFrame, key_columns: Sequence[str], said: DeltaMark) -> None:
        with self._source(changes, said.query, key_columns) as source:
            self._merge(source, changes.columns, key_columns, said)

    def _merge(
        self, source: Any, columns: Sequence[str], key_columns: Sequence[str], said: DeltaMark
    ) -> None:
        """Merge one change per key, whose columns are called as `short_names` says."""
        table, names = self._there, short_names(columns)
        given = {quoted(name): f"c.{short}" for name, short in names.items()}
        on = " AND ".join(f"(t.{quoted(one)} IS NOT DISTINCT FROM c.{names[one]})" for one in key_columns)
        values = {column: value for column, value in given.items() if column not in map(quoted, key_columns)}
        before = table.version()
        merge = table.merge(
            source,
            on,
            source_alias="c",
            target_alias="t",
            writer_properties=self._statistics(),
            commit_properties=_properties(said),
        ).when_matched_delete(f"c.{CHANGE_TYPE} = 'delete'")
        if values:
            merge = merge.when_matched_update(values)
        merge = merge.when_not_matched_insert(given, f"c.{CHANGE_TYPE} <> 'delete'")
        (merge.when_not_matched_by_source_delete() if said.whole else merge).execute()
        if table.version() == before:  # delta-rs commits nothing if nothing changes
            self.mark(T.StructType(), said)

    def add_files(self, columns: T.StructType, files: Sequence[Mapping[str, Any]], said: DeltaMark) -> None:
        """Commit files that the workers wrote in their place: names, sizes and statistics."""
        from deltalake.transaction import AddAction, RemoveAction

        table = self._made(arrow_schema(columns))
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(one["path"], one["bytes"], {}, now_ms, True, one["statistics"]) for one in files
        ]
        mode = "overwrite" if said.whole else "append"
        table.create_write_transaction(actions, mode, table.schema(), commit_properties=_properties(said))

    def merge_files(
        self, columns: T.StructType, files: Sequence[str], key_columns: Sequence[str], said: DeltaMark
    ) -> None:
        """Bring the table to the state after the changes, one per key, in files that the workers wrote beside it.

        Their columns are called as `short_names` says. A table without rows is created, or filled, by an append.
        """
        names = short_names(columns.names)
        kinds = {one.name: one.type for one in arrow_schema(columns)}
        schema = pa.schema(
            [*((short, kinds[name]) for name, short in names.items()), (CHANGE_TYPE, pa.string())]
        )
        store = file_system(self.uri, self._options)
        changes = ds.dataset(list(files), schema=schema, format="parquet", filesystem=store)
        if self._table is not None and (said.whole or self._table.file_uris()):
            self._merge(changes.scanner().to_reader(), columns.names, key_columns, said)
            return
        rows = changes.scanner(columns=list(names.values()), filter=ds.field(CHANGE_TYPE) != "delete")
        self._write(_under_names(rows.to_reader(), list(names)), said)

    def why_not_files(self, output: T.StructType) -> str | None:
        """Say why the workers cannot write what is appended or merged; None if they can."""
        if self._table is None or self.columns is None:
            return None
        if self._table.metadata().partition_columns:
            return "has partitions"
        there = {one.name: one for one in self.columns}
        if any(not one.nullable or one.dataType != nullable(one.dataType) for one in self.columns):
            return "has a column in which something cannot be null"
        wrong = [one.name for one in output if one.name not in there or not _is_same(one, there[one.name])]
        return f"lacks the column {wrong[0]!r} in the output's type" if wrong else None

    def has_twice(self, key_columns: Sequence[str]) -> bool:
        keys = ", ".join('"' + name.replace('"', '""') + '"' for name in key_columns)
        return self._finds(f"SELECT 1 AS found FROM t GROUP BY {keys} HAVING count(*) > 1 LIMIT 1")

    def take_back(self, number: int, said: DeltaMark) -> None:
        self._there.delete(f"{ORDER}['micro_batch'] >= {number}", writer_properties=self._statistics())
        self.mark(T.StructType(), said)

    def _write(self, source: pa.Table | pa.RecordBatchReader, said: DeltaMark) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            self._made(source.schema),
            source,
            mode="overwrite" if said.whole else "append",
            schema_mode="merge",
            writer_properties=self._statistics(),
            commit_properties=_properties(said),
        )

    @property
    def is_kept_by_spark(self) -> bool:
        """Whether Spark's writer puts its small files together, which delta-rs leaves as they are."""
        said = {} if self._table is None else self._table.metadata().configuration
        return any(name.lower().startswith(_KEPT) for name in said)

    @property
    def size_bytes(self) -> int:
        if self._table is None:
            return 0
        files = pa.table(self._table.get_add_actions())
        return sum(files.column("size_bytes").to_pylist())

    @property
    def _there(self) -> DeltaTable:
        """The table, of which the caller knows that it is there."""
        assert self._table is not None  # noqa: S101 - see above
        return self._table

    def _made(self, columns: pa.Schema) -> DeltaTable:
        """The table, created without rows if there is none.

        Only where a table is does delta-rs refuse the second of two equal marks.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError

        if self._table is None:
            DeltaTable.create(self.uri, columns, mode="ignore", storage_options=self._options)
            self._table = DeltaTable(self.uri, storage_options=self._options)
            if self._table.version() > 0 or self._table.file_uris():
                raise CommitFailedError(
                    f"Concurrent writers: another one has written to {self.uri} meanwhile."
                )
        return self._table

    def _statistics(self) -> WriterProperties:
        """Leave out statistics that delta-rs rounds: by those of long decimals and of NaN, readers skip files."""
        from deltalake import ColumnProperties, WriterProperties

        none = ColumnProperties(statistics_enabled="NONE")
        rounded = [one for one in self.columns or () if any(map(_is_rounded, within(one.dataType)))]
        if any(isinstance(one.dataType, T.StructType) for one in rounded):  # its fields cannot be named
            return WriterProperties(default_column_properties=none)
        return WriterProperties(column_properties={one.name: none for one in rounded})

    @contextmanager
    def _source(self, frame: DataFrame, query: str, merged_by: Sequence[str] = ()) -> Iterator[Any]:
        """Bring rows where delta-rs reads them: from memory, or as a stream from files that the workers wrote.

        For MERGE, `merged_by` is the key: the last change of each remains, under the names c0, c1, ...
        """
        fitted = self._fitted(frame)
        short = {name: name for name in fitted.columns}
        if merged_by:
            short = short_names(fitted.columns) | {CHANGE_TYPE: CHANGE_TYPE}
        if self.has_few:
            table = fitted.toArrow().cast(arrow_schema(fitted.schema))
            rows = _last_in_memory(table, merged_by) if merged_by else table
            yield rows.select(list(short)).rename_columns(list(short.values()))
            return
        rows = last_changes(fitted, merged_by) if merged_by else fitted
        with self._staged(rows.select(*map(quoted, short)), query) as files:
            yield _under_names(files, list(short.values()))

    @contextmanager
    def _staged(self, rows: DataFrame, query: str) -> Iterator[pa.RecordBatchReader]:
        """Let the workers write rows as files, and stream these. Their columns are c0, c1, ..."""
        # PySpark does not find a column whose name has a dot.
        named = rows.toDF(*(f"c{number}" for number, _ in enumerate(rows.columns)))
        schema, store = arrow_schema(named.schema), file_system(self.uri, self._options)
        self.clean(query)
        place = f"{staging(query)}/{uuid.uuid4().hex}"
        store.create_dir(place)
        try:
            write = _writer(self.uri, self._options, place, schema)
            files = named.mapInArrow(write, "file string").toArrow().column("file").to_pylist()
            dataset = ds.dataset(files, schema=schema, format="parquet", filesystem=store)
            yield dataset.scanner().to_reader()
        finally:
            # The rows are in the table, or an error is on its way. A slow task may still write a file here.
            with suppress(OSError):
                store.delete_dir(place)

    def clean(self, query: str) -> None:
        """Delete what a process of a query left beside the table that ended before it could do so itself."""
        store, place = file_system(self.uri, self._options), staging(query)
        with suppress(OSError):  # such as another process that does the same
            if store.get_file_info(place).type is not fs.FileType.NotFound:
                store.delete_dir(place)

    def _fitted(self, frame: DataFrame) -> DataFrame:
        """Cast rows to the types of the table, as MERGE on Spark would; an order may have hops that the table lacks."""
        columns = self.columns
        if columns is None:
            return frame
        texts = as_texts(columns, frame.schema)
        kinds = {one.name: one.dataType for one in columns if one.name != ORDER}
        rows = frame.alias("c").select(
            *(
                F.expr(texts[name]).alias(name) if name in texts else F.col(f"c.{quoted(name)}")
                for name in frame.columns
            )
        )
        wanted = T.StructType(
            [T.StructField(one.name, nullable(kinds.get(one.name, one.dataType))) for one in rows.schema]
        )
        return rows if arrow_schema(wanted) == arrow_schema(rows.schema) else rows.to(wanted)


def _is_same(one: T.StructField, other: T.StructField) -> bool:
    """Whether two columns have one type, but for what can be null."""
    return bool(arrow_schema([one]) == arrow_schema([other]))


def short_names(columns: Iterable[str]) -> dict[str, str]:
    """Return the names c0, c1, ... of the columns of key and value, which no sign in a name disturbs."""
    stored = (name for name in columns if name not in CHANGE_COLUMNS)
    return {name: f"c{number}" for number, name in enumerate(stored)}


def _last_in_memory(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keep the last change per key, as `last_changes` does."""
    order = frame_of(changes.select([CHANGE_TYPE, ORDER]))
    after = order.with_row_index("__at").filter(pl.col(CHANGE_TYPE) != "update_preimage")
    return last_of_keys(changes.take(after.sort(ORDER, maintain_order=True)["__at"].to_arrow()), key)


def last_of_keys(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keep the last change of each key; those of a key are in their order."""
    keys = frame_of(changes.select(list(key)))
    last = keys.with_row_index("__at").unique(list(key), keep="last", maintain_order=True)["__at"]
    return changes if len(last) == len(keys) else changes.take(last.to_arrow())


def _of_protocol(table: DeltaTable) -> str | None:
    """Say what a table asks of its writers that delta-rs does not do; None if there is nothing."""
    protocol = table.protocol()
    said = {name.lower(): (text or "").lower() for name, text in table.metadata().configuration.items()}
    if any(name.startswith(_CONSTRAINT) for name in said):
        return "has constraints, which delta-rs reads otherwise than Spark"
    if protocol.min_writer_version >= _LISTS:
        more = sorted({*(protocol.writer_features or ())} - FEATURES - {"checkConstraints"})
        return f"has the feature {more[0]}" if more else None
    return next(
        (f"has {what}" for name, (on, what) in _PROPERTIES.items() if said.get(name) in on.split()), None
    )


def _of_columns(columns: T.StructType | None) -> str | None:
    """Say which column delta-rs does not compute or check; None if there is none."""
    return next(
        (
            f"has the column {one.name!r}, which is {what}"
            for one in columns or ()
            for name, what in _OF_A_COLUMN.items()
            if name in (one.metadata or {})
        ),
        None,
    )


def _commit(said: Mapping[str, Any]) -> Commit:
    """Read what delta-rs says of a commit. Its times are milliseconds; Spark writes that of a RESTORE as text."""
    where = said.get("operationParameters") or {}
    version, text, time = (where.get(name) for name in ("version", "timestamp", "datetime"))
    if text is not None:
        time = datetime.fromisoformat(text).timestamp() * 1000
    return Commit(
        said["version"],
        said.get("timestamp", 0) * 1000,
        said.get("operation", ""),
        said.get("userMetadata"),
        None if version is None else int(version),
        None if time is None else round(float(time) * 1000),
    )


def _is_rounded(kind: T.DataType) -> bool:
    """Whether delta-rs rounds values of a type in its statistics, or leaves some out."""
    wide = isinstance(kind, T.DecimalType) and kind.precision > _EXACT_DIGITS
    return wide or isinstance(kind, T.FloatType | T.DoubleType)


def _properties(said: DeltaMark) -> CommitProperties:
    """What a commit carries: the mark as text, and Delta's own of a writer, by which one of two processes fails."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"userMetadata": said.text},
        app_transactions=[Transaction(said.app_id, said.micro_batch)],
    )


def file_system(uri: str, storage_options: Mapping[str, str]) -> fs.FileSystem:
    """The files below a table's place."""
    if "://" not in uri:
        return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(uri, dict(storage_options)))


def staging(query: str) -> str:
    """Where the workers write for a query, below the table."""
    return f"{_STAGING}/{query}"


def _writer(
    uri: str, storage_options: Mapping[str, str], place: str, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function with which a worker writes its rows as one file, whose name it returns."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = (batch for batch in batches if batch.num_rows)
        first = next(there, None)
        if first is None:
            return
        file = ParquetFile(file_system(uri, storage_options), place, schema)
        for batch in chain((first,), there):
            file.add(pa.Table.from_batches([batch]))
        file.close()
        yield pa.RecordBatch.from_pydict({"file": [file.path]})

    return write


def _under_names(batches: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    """Give the columns of a stream other names."""
    schema = pa.schema([field.with_name(name) for field, name in zip(batches.schema, names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, renamed)
