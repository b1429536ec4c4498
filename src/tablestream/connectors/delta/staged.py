"""What the workers do for a table that delta-rs commits: they write its files, or the changes to merge into it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import types as T

from tablestream.connectors.delta.by_delta_rs import RsTable, file_system, last_of_keys, short_names, staging
from tablestream.connectors.delta.marks import DeltaMark
from tablestream.connectors.parquet_file import ParquetFile
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE

#: The longest texts that statistics have: a longer one would have to be cut, and the greatest one rounded up.
_LONGEST = 32
_Leaf: TypeAlias = tuple[tuple[str, ...], pa.DataType | None]


@dataclass(frozen=True)
class DeltaStage:
    """What the workers do for a table."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    columns: T.StructType
    schema: pa.Schema
    """The columns of the changes."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """A name for what one start of the query writes."""

    def line(self, columns: Mapping[str, str]) -> None:
        """See `Stage`."""


@dataclass(frozen=True)
class LogStage(DeltaStage):
    """Each task writes a file of the table; no reader knows it before the commit. VACUUM removes what none names."""

    def open(self, micro_batch_id: int, query_id: str) -> LogFile:  # noqa: ARG002 (the protocol's)
        if "://" not in self.uri:
            Path(self.uri).mkdir(parents=True, exist_ok=True)
        return LogFile(file_system(self.uri, self.storage_options), "", self.schema)

    def commit(self, table: RsTable, written: Sequence[str], said: DeltaMark) -> None:
        """Commit what the tasks wrote."""
        if written or said.whole:
            table.add_files(self.columns, list(map(json.loads, written)), said)
        else:
            table.mark(self.columns, said)

    def clean(self, micro_batch_id: int, query_id: str, unused: Sequence[str] | None) -> None:  # noqa: ARG002 (as for tables)
        """Remove files that no commit will name: another process has committed the micro-batch. None: this one has."""
        store = file_system(self.uri, self.storage_options)
        for one in unused or ():
            with suppress(OSError):
                store.delete_file(json.loads(one)["path"])


@dataclass
class LogFile(ParquetFile):
    """A file of a table."""

    def close(self) -> str:
        """End the file, and return its path, size and statistics as JSON."""
        super().close()
        size = self.store.get_file_info(self.path).size
        said = {"path": self.name, "bytes": size, "statistics": statistics(self.metadata, self.schema)}
        return json.dumps(said)


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return what a file says of its columns, as Delta's JSON: rows, nulls, the least and the greatest values.

    Integers and short texts have least and greatest values. Others would have to be rounded, or be of years that Python
    has not.
    """
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, (path, kind) in enumerate(_leaves(schema)):
        if kind is None:
            continue
        found = [group.column(number).statistics for group in groups if group.num_rows]
        if any(one is None or not one.has_null_count for one in found):
            continue
        _put(nulls, path, sum(one.null_count for one in found))
        if _has_bounds(kind) and all(one.has_min_max or one.num_values == 0 for one in found):
            bounds = [(one.min, one.max) for one in found if one.has_min_max]
            if bounds and all(_is_short(value) for both in bounds for value in both):
                _put(least, path, min(one for one, _ in bounds))
                _put(greatest, path, max(one for _, one in bounds))
    rows = {"numRecords": metadata.num_rows}
    return json.dumps(rows | {"minValues": least, "maxValues": greatest, "nullCount": nulls})


def _leaves(fields: pa.Schema | pa.StructType, above: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    """The columns of a Parquet file in their order: where a column or field of a struct stands, and its type.

    What is in lists and maps has no type here: it has no statistics.
    """
    for one in fields:
        path = (*above, one.name)
        if pa.types.is_struct(one.type):
            yield from _leaves(one.type, path)
        elif pa.types.is_map(one.type):
            inner = (*_leaves(pa.struct([one.type.key_field, one.type.item_field])),)
            yield from ((path, None) for _ in inner)
        elif pa.types.is_list(one.type):
            yield from ((path, None) for _ in _leaves(pa.struct([one.type.value_field])))
        else:
            yield path, one.type


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether statistics hold all values of a type as they are, or all but long ones."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= _LONGEST


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Put a value where Delta has it: structs are objects."""
    *above, name = path
    for part in above:
        values = values.setdefault(part, {})
    values[name] = value


@dataclass(frozen=True)
class TableStage(DeltaStage):
    """Each task writes the last change of each of its keys, beside the table; the driver merges them.

    `key`: the key columns.
    """

    key: tuple[str, ...] = ()

    def open(self, micro_batch_id: int, query_id: str) -> ChangesFile:
        names = short_names(self.columns.names) | {CHANGE_TYPE: CHANGE_TYPE}
        kept = pa.schema([pa.field(names[one.name], one.type) for one in self.schema if one.name in names])
        store = file_system(self.uri, self.storage_options)
        return ChangesFile(ParquetFile(store, self.place(micro_batch_id, query_id), kept), names, self.key)

    def place(self, micro_batch_id: int, query_id: str) -> str:
        """Where the changes of a micro-batch are, in the table's directory."""
        return f"{staging(query_id)}/{self.run}/{micro_batch_id}"

    def commit(self, table: RsTable, written: Sequence[str], said: DeltaMark) -> None:
        """Merge what the tasks wrote."""
        if written or said.whole:
            table.merge_files(self.columns, written, self.key, said)
        else:
            stored = [one for one in self.columns.fields if one.name not in CHANGE_COLUMNS]
            table.mark(T.StructType(stored), said)

    def clean(self, micro_batch_id: int, query_id: str, unused: Sequence[str] | None) -> None:
        """Remove the changes of a micro-batch; and what other runs left, unless another process has committed it."""
        store = file_system(self.uri, self.storage_options)
        places = [self.place(micro_batch_id, query_id)]
        if unused is None:
            found = store.get_file_info(fs.FileSelector(staging(query_id), allow_not_found=True))
            places += [one.path for one in found if one.base_name != self.run]
        for place in places:
            with suppress(OSError):  # another process may do the same, and a slow task may still write
                store.delete_dir(place)


@dataclass
class ChangesFile:
    """The last change of each key that a task has."""

    file: ParquetFile
    """Where they are written."""
    names: Mapping[str, str]
    """The columns that are kept, and their names in the file."""
    key: tuple[str, ...]
    """The key columns."""
    _held: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Keep changes until all of their keys have come."""
        self._held.append(rows.select(list(self.names)))

    def end_keys(self) -> None:
        """Write the last change of each key."""
        if self._held:
            rows = last_of_keys(pa.concat_tables(self._held), self.key)
            self.file.add(rows.rename_columns([self.names[name] for name in rows.column_names]))
        self._held = []

    def close(self) -> str:
        """End the file, and return its path."""
        self.end_keys()
        self.file.close()
        return self.file.path

    def abandon(self) -> None:
        self._held = []
        self.file.abandon()
