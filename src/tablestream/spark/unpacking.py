"""Unpacking: blobs of messages become rows of a DataFrame again, in order per key, or are written.

Runs in `mapInArrow` on Spark's workers: between two rounds if expressions have to be evaluated, and after the last
shuffle. Rows that Spark has computed for a target are written here, too: no row comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Self

import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from tablestream.connectors.sink import NUMBER, Stage, StagedFiles
from tablestream.runtime.order import in_order
from tablestream.runtime.ports import NOTICES
from tablestream.spark import blobs
from tablestream.spark.processes import begin_task
from tablestream.state.arrow import in_types
from tablestream.state.changes import PARTITION, POSITION, ROW_TS, TIME, hop_columns

#: The most rows of one Arrow record batch, and the most values in it.
ROWS, CELLS = 50_000, 10_000_000
#: Packed blobs that are unpacked together; wide rows make more of a few.
BYTES = 8 << 20
#: Shards are unpacked together up to so many bytes: what a few rows of many wide outputs take is mostly by the shard.
SHARDS_BYTES = 1 << 20
#: The column with a notice about drops: its count, its name and an example, parted by zeros.
NOTE = "__note"
#: The column with the port of a row, or of a report.
_PORT = "__port"
_REPORTS = pa.schema([(_PORT, pa.int32()), (NOTE, pa.string())])
#: The column with a change's place in the total order.
ORDER = "order"
#: The property in which Spark passes the number of the micro-batch to its workers.
_MICRO_BATCH = "streaming.sql.batchId"
#: The property with the id of the query.
_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True)
class Opened:
    """A port whose messages become rows, and the columns of these rows."""

    port: int
    columns: tuple[tuple[str, str | None], ...]
    """The place of each column in a message: the message's column, and for a struct the field, or ``""`` for whether
    the struct exists; ``None`` for the column itself."""
    fields: pa.Schema
    """The columns' names and Arrow types."""
    numbered_by: tuple[str, ...] = ()
    """The key columns by which messages are numbered, 0, 1, ..., in ``order``; if empty, they are not numbered."""
    nested: bool = False
    """Whether the columns are the fields of one struct."""

    def record_batches(
        self, frame: pl.DataFrame, rows: int = ROWS
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Turn messages into columns of the Arrow types, a bounded number of rows at a time; yield both.

        A hop that a message did not take is 0, and an absent row time null; any other column must exist.
        """
        fields = pa.schema(list(self.fields.field(0).type)) if self.nested else self.fields
        for piece in cut(self.taken(frame, fields.names), fields, rows):
            arrays = [_array(column) for column in piece.columns]
            if self.nested:
                arrays = [pa.StructArray.from_arrays(arrays, fields=list(fields))]
            yield piece.num_rows, dict(zip(self.fields.names, arrays, strict=True))

    def taken(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """Take the columns out of messages, under their names in the DataFrame."""
        # A tenth of what an expression for each field takes.
        fields = {
            source: frame[source].struct.unnest() for source in {one for one, part in self.columns if part}
        }
        return frame.select(
            (fields[source][part] if part else _take(frame, source, part)).alias(name)
            for (source, part), name in zip(self.columns, names, strict=True)
        )


@dataclass(frozen=True)
class Shown:
    """The columns of an output's changes, where the workers compute them."""

    opened: Opened
    """The port of its messages, not nested."""
    columns: tuple[tuple[str, str], ...]
    """The names of the columns, and what they are, as SQL over the port's columns that Polars reads."""
    fields: pa.Schema
    """Their Arrow types."""

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Compute the columns from those of the port."""
        return rows.select(_parsed(text).alias(name) for name, text in self.columns)

    def tables(self, messages: pl.DataFrame) -> Iterator[pa.Table]:
        """Turn messages into changes, in the Arrow types, a bounded number of rows at a time."""
        rows = self.opened.taken(messages, self.opened.fields.names)
        yield from cut(self.of(rows), self.fields, max(1, min(ROWS, CELLS // len(self.fields))))


@lru_cache(maxsize=50_000)
def _parsed(text: str) -> pl.Expr:
    """An expression of Polars; parsing it takes three times as long as computing it for the rows of a shard."""
    return pl.sql_expr(text)


@dataclass(frozen=True)
class StagedPort:
    """A port whose messages the workers write, instead of giving their rows to Spark."""

    shown: Shown
    stage: Stage

    @property
    def number(self) -> int:
        """The port."""
        return self.shown.opened.port


def cut(frame: pl.DataFrame, fields: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Turn a frame into tables of the Arrow types, of so many rows at most."""
    for part in frame.iter_slices(rows):
        for piece in blobs.pieces(part.to_arrow(compat_level=pl.CompatLevel.oldest()), rows):
            yield in_types(piece, fields)


def _array(column: pa.ChunkedArray) -> pa.Array:
    """Make one array of a column; combining a single chunk would copy it."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _take(frame: pl.DataFrame, source: str, part: str | None) -> pl.Expr:
    if source not in frame.columns and source == ROW_TS:
        return pl.lit(None, pl.Int64)
    if source not in frame.columns and source.startswith("_h"):
        return pl.lit(0)
    if part is None:
        return pl.col(source)
    return pl.col(source).is_not_null()


@dataclass(frozen=True)
class ChangeUnpacker:
    """Unpacks the blobs of some ports between two rounds; other blobs pass through.

    Returns the columns of blobs (``rows`` and ``blob`` are null in unpacked rows) and those of the unpacked
    ports.
    """

    opened: tuple[Opened, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack all record batches of a task."""
        by_port = {one.port: one for one in self.opened}
        for batch in batches:
            passing = batch.filter(
                pa.array([port not in by_port for port in batch[blobs.PORT].to_pylist()], pa.bool_())
            )
            if passing.num_rows:
                yield self._wide(
                    passing.num_rows, dict(zip(passing.schema.names, passing.columns, strict=True))
                )
            mine = (one for one in _blobs(batch) if one.port in by_port)
            for (shard, port), together in groupby(mine, key=lambda one: (one.shard, one.port)):
                head = {blobs.SHARD: shard, blobs.PORT: port}
                for held in blobs.up_to(BYTES, together, ROWS):
                    yield from self._unpacked(by_port[port], head, held)

    def _unpacked(
        self, one: Opened, head: dict[str, int], held: Sequence[blobs.Blob]
    ) -> Iterator[pa.RecordBatch]:
        for messages in blobs.decode(other.blob for other in held):
            for rows, part in one.record_batches(messages, rows_together(self.opened)):
                yield self._wide(rows, {name: _repeat(number, rows) for name, number in head.items()} | part)

    def _wide(self, rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        kinds = {one.name: one.type for opened in self.opened for one in opened.fields}
        return wide(blobs.KINDS | kinds, rows, columns)


@dataclass
class TaskFiles:
    """What one task writes of outputs, by their ports. As a context: it lets go of everything if the task fails."""

    micro_batch: int
    _open: dict[int, StagedFiles] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Nothing is written yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what is not closed."""
        with ExitStack() as all_of_them:  # also behind one that fails
            for one in self._open.values():
                all_of_them.callback(one.abandon)

    def of(self, port: int, stage: Stage) -> StagedFiles:
        """Return what is written of an output, which begins with the first call."""
        if port not in self._open:
            self._open[port] = stage.open(self.micro_batch, query_id())
        return self._open[port]

    def close(self) -> Iterator[tuple[int, str]]:
        """End one output after the other; its port, and what the commit needs to know of it."""
        for port, one in list(self._open.items()):
            said = one.close()
            del self._open[port]
            yield port, said


@dataclass(frozen=True)
class OutputUnpacker:
    """Unpacks the blobs of the plan's outputs in the total order: shard by shard, small ones together.

    Returns ``__port`` and the columns of the outputs, including `ORDER`. Reports of shards without state have only
    their port, notices about drops their port and `NOTE`.
    """

    opened: tuple[Opened, ...]
    hops: int
    micro_batch: int | None = None
    """The number of the micro-batch; None: that of Spark's task."""
    noted: bool = False
    """Whether there is a column `NOTE`."""
    staged: tuple[StagedPort, ...] = ()
    """The ports whose messages are written here. What their stages return stands in `NOTE`, beside the port."""
    first: int = 0
    """The number that targets give to the first micro-batch of the checkpoint."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack all record batches of a task; its blobs come sorted by shard."""
        with TaskFiles(self._number) as files:
            yield from self._unpacked(batches, files)
            for port, said in files.close():
                yield self._wide(1, {_PORT: _repeat(port, 1), NOTE: pa.array([said], pa.string())})

    def _unpacked(self, batches: Iterable[pa.RecordBatch], files: TaskFiles) -> Iterator[pa.RecordBatch]:
        shard, held, held_bytes = -1, list[blobs.Blob](), 0
        for batch in batches:
            for one in _blobs(batch):
                if one.shard != shard and held_bytes > SHARDS_BYTES:
                    yield from self._shards(held, files)
                    held, held_bytes = [], 0
                shard, held_bytes = one.shard, held_bytes + len(one.blob)
                held.append(one)
        yield from self._shards(held, files)

    def _order(self, numbered_by: tuple[str, ...]) -> pl.Expr:
        """The place of a change as users see it: the micro-batch comes first."""
        hops = (pl.col(hop).alias(f"hop_{number}") for number, hop in enumerate(hop_columns(self.hops)))
        place = (
            pl.col(TIME).alias("time"),
            pl.col(PARTITION).alias("partition"),
            pl.col(POSITION).alias("position"),
        )
        number = (
            [pl.int_range(pl.len(), dtype=pl.Int64).over(numbered_by).alias(NUMBER)] if numbered_by else []
        )
        micro_batch = pl.lit(self._number, pl.Int64).alias("micro_batch")
        return pl.struct(micro_batch, *place, *hops, *number).alias(ORDER)

    def _shards(self, held: list[blobs.Blob], files: TaskFiles) -> Iterator[pa.RecordBatch]:
        reports = [one for one in held if one.port < 0]
        if reports:
            notes = [_note(one) if one.port == NOTICES else None for one in reports]
            ports = pa.array([one.port for one in reports], pa.int32())
            yield self._wide(len(reports), {_PORT: ports, NOTE: pa.array(notes, pa.string())})
        for one in self.opened:
            frames = blobs.decode(other.blob for other in held if other.port == one.port)
            if frames:
                for rows, part in one.record_batches(self._ordered(one, frames), rows_together(self.opened)):
                    yield self._wide(rows, {_PORT: _repeat(one.port, rows), **part})
        for to in self.staged:
            frames = blobs.decode(other.blob for other in held if other.port == to.number)
            if frames:
                file = files.of(to.number, to.stage)
                for changes in to.shown.tables(self._ordered(to.shown.opened, frames)):
                    file.add(changes)
                file.end_keys()

    def _ordered(self, one: Opened, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Messages in the total order, with their place."""
        return in_order(frames, hop_columns(self.hops)).with_columns(self._order(one.numbered_by))

    @property
    def _number(self) -> int:
        return self.first + micro_batch_id() if self.micro_batch is None else self.micro_batch

    def _wide(self, rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        kinds: dict[str, pa.DataType] = {_PORT: pa.int32()}
        kinds |= {NOTE: pa.string()} if self.noted else {}
        kinds |= {one.name: one.type for opened in self.opened for one in opened.fields}
        return wide(kinds, rows, columns)


def output_column(port: int) -> str:
    """The column of a query's frame with the rows of an output, as structs."""
    return f"__out{port}"


@dataclass(frozen=True)
class StagedRows:
    """An output whose columns Spark computes, and whose rows the workers write."""

    number: int
    """The output's port."""
    fields: pa.Schema
    """The Arrow types of the columns."""
    stage: Stage
    """Writes them."""

    @property
    def column(self) -> str:
        """The struct with the output's rows."""
        return output_column(self.number)

    def rows(self, batch: pa.RecordBatch, ports: pa.Array) -> pa.Table:
        """Take the output's rows."""
        import pyarrow.compute as pc  # takes time to load, and only rows that Spark has computed need it

        mine = batch[self.column].filter(pc.equal(ports, self.number))
        return pa.Table.from_arrays(mine.flatten(), names=self.fields.names).cast(self.fields)


@dataclass(frozen=True)
class RowStager:
    """Writes the rows of outputs; passes on reports, and what each task has written is one more.

    `first`: as in `OutputUnpacker`.
    """

    outputs: tuple[StagedRows, ...]
    first: int = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work off all record batches of a task."""
        import pyarrow.compute as pc

        by_port = {one.number: one for one in self.outputs}
        with TaskFiles(self.first + micro_batch_id()) as files:
            for batch in batches:
                ports = batch[_PORT]
                there = set(pc.unique(ports).to_pylist())
                for number in sorted(there & by_port.keys()):
                    files.of(number, by_port[number].stage).add(by_port[number].rows(batch, ports))
                if there - by_port.keys():
                    others = pc.invert(pc.is_in(ports, pa.array(list(by_port), pa.int32())))
                    yield batch.select([_PORT, NOTE]).filter(others)
            for number, said in files.close():
                yield pa.RecordBatch.from_pydict({_PORT: [number], NOTE: [said]}, _REPORTS)


def _note(one: blobs.Blob) -> str:
    return f"{one.rows}\0{bytes(one.blob).decode()}"


def rows_together(opened: Sequence[Opened]) -> int:
    """Return the number of rows per record batch: each has the columns of every port, and most of them are null."""
    return max(1, min(ROWS, CELLS // max(1, sum(1 + len(one.columns) for one in opened))))


def micro_batch_id() -> int:
    """Return the number of the micro-batch that the current task belongs to; 0 outside a streaming query."""
    return int(_of_task(_MICRO_BATCH) or 0)


def query_id() -> str:
    """Return the id of the query that the current task belongs to; empty outside a streaming query."""
    return _of_task(_QUERY)


def _of_task(name: str) -> str:
    """A property of the current task; empty outside of one."""
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context is not None else None) or ""


def by_batches(
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make a function one that Spark's workers call; its annotations tell Spark to pass batch by batch."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield from function(batches)

    return run


def wide(kinds: dict[str, pa.DataType], rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Make a record batch of all columns; missing ones are null."""
    arrays = [
        pa.nulls(rows, kind)
        if name not in columns
        else columns[name]
        if columns[name].type == kind  # a cast to the same type takes microseconds
        else columns[name].cast(kind)
        for name, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _blobs(batch: pa.RecordBatch) -> Iterator[blobs.Blob]:
    for shard, port, rows, blob in zip(*(batch[name] for name in blobs.COLUMNS), strict=True):
        yield blobs.Blob(shard.as_py(), port.as_py(), rows.as_py(), blob.as_buffer())


def _repeat(number: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), rows)
