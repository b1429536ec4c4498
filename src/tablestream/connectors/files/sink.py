"""Write the changes of an output to a directory of files, each micro-batch exactly once."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tablestream.arguments.kinds import check_mapping
from tablestream.base.calling import user_line
from tablestream.connectors.files.batches import MICRO_BATCH, FileBatches, attempt_in, live_keys, with_deletes
from tablestream.connectors.json_text import json_options, json_sql
from tablestream.connectors.marks import Found, Mark, MarkingSink, OnMismatch, Verdict, judged, no_rebuild
from tablestream.connectors.parquet_file import CODECS, ParquetFile, spark_schema
from tablestream.connectors.sink import (
    CHANGE_TYPE,
    LATEST,
    ORDER,
    TIMESTAMP,
    Stage,
    aliased,
    checked_path,
    struct_of,
)
from tablestream.connectors.small_texts import first_line, write_line
from tablestream.connectors.source import Option
from tablestream.connectors.spark_place import check_writable, seen_by_spark
from tablestream.errors import ArgumentError, ReservedNameError, TargetError

WriteFormat = Literal["parquet", "json"]
OWNER = "_tablestream_owner"


#: Which compression Spark takes for Parquet files.
_CODEC = "spark.sql.parquet.compression.codec"


@dataclass
class LinesFile:
    """One file with a text on each line, which a task writes."""

    directory: Path
    """Where it is; made if it is not there."""
    name: str = field(default_factory=lambda: f"part-{uuid.uuid4()}.json")
    _file: BinaryIO | None = None

    def add(self, rows: pa.Table) -> None:
        self._open().writelines(f"{line}\n".encode() for line in rows.column(0).to_pylist())

    def end_keys(self) -> None:
        """Do nothing: every change is written."""

    def close(self) -> str:
        self._open().close()
        return self.name

    def abandon(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _open(self) -> BinaryIO:
        if self._file is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._file = (self.directory / self.name).open("wb")
        return self._file


@dataclass(frozen=True)
class FileStage:
    """What the workers do for a log of files: each task with changes writes one file into the directory of an attempt.

    `run`: a name for what one start of the query writes.
    """

    log: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def attempt(self, micro_batch_id: int) -> Path:
        """The directory of a micro-batch, where no reader looks."""
        return attempt_in(Path(self.log), micro_batch_id, self.run)


@dataclass(frozen=True, kw_only=True)
class ParquetStage(FileStage):
    """Files in the format Parquet."""

    schema: pa.Schema
    codec: str

    def line(self, columns: Mapping[str, str]) -> None:
        """See `Stage`."""

    def open(self, micro_batch_id: int, query_id: str) -> ParquetFile:  # noqa: ARG002 (the protocol's)
        return ParquetFile(fs.LocalFileSystem(), str(self.attempt(micro_batch_id)), self.schema, self.codec)


@dataclass(frozen=True, kw_only=True)
class JsonStage(FileStage):
    """Files with a change as JSON on each line; `order`: the type of ``_order``."""

    order: StructType

    def line(self, columns: Mapping[str, str]) -> str:
        names = _sortable_names(self.order)
        order = {names.get(name, name): f"{columns[ORDER]}.{name}" for name in self.order.names}
        return json_sql(struct_of(aliased(dict(columns) | {ORDER: struct_of(aliased(order))})))

    def open(self, micro_batch_id: int, query_id: str) -> LinesFile:  # noqa: ARG002 (the protocol's)
        return LinesFile(self.attempt(micro_batch_id))


@dataclass(frozen=True, slots=True)
class FileSink(MarkingSink):
    """A directory of changelogs as a sink; made by `to_files`."""

    path: str
    format: WriteFormat = "parquet"
    options: Mapping[str, Option] = field(default_factory=dict, repr=False)

    @property
    def target(self) -> str:
        return f"files {self.path}"

    @property
    def harm(self) -> str:
        return "its readers would find"

    @property
    def retells(self) -> bool:
        return True

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:
        """Refuse a place where nothing can be created, and a column with the name of the directories.

        Readers would use their number for such a column.
        """
        taken = [name for name in columns if name.lower() == MICRO_BATCH]
        if taken:
            raise ReservedNameError(
                f"The directories of {self.target} are read as a column {MICRO_BATCH}, and the changes have a column"
                f" {taken[0]}: it would be read as their number.",
                hint="Rename the column with select(...), or use another kind of sink.",
            )
        check_writable(spark, self.path, f"The directory {self.path} cannot be written")

    def settle(self, spark: SparkSession, columns: StructType, stored: Callable[[], DataFrame]) -> None:  # noqa: ARG002 (a log is not in the state)
        """Refuse a log that does not fit the checkpoint, or settle it, before the query starts."""
        moment = self.starting
        owner, batches = self._owner(spark), FileBatches(spark, self.path)
        if owner not in {None, moment.query_id}:
            if self.on_mismatch != "rebuild" or moment.number > 0:
                raise self._of_another(spark, str(owner), user_line())
            return
        mark = batches.last_mark(moment, starting=True)
        found = self._found(spark, mark)
        if judged(found, moment.number, moment, self.on_mismatch, starting=True) is not Verdict.SETTLE:
            return
        done = moment.earlier
        if self.on_mismatch == "rebuild" and batches.mark(done.number) != Mark(done.number, done.proof):
            raise no_rebuild(found.place)
        batches.remove([number for number in batches.numbers() if number >= moment.number])
        batches.set_mark(Mark(done.number, done.proof))

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (it may change; the target may not)
        """Write the directory of one micro-batch, and replace what a failed attempt left."""
        spark = changes.sparkSession
        batches = FileBatches(spark, self.path)
        if self._has(batches, micro_batch_id, query_id):
            return
        if self.tells_anew and batches.numbers():
            live = live_keys(self._log(changes), self.key_columns)
            changes = with_deletes(changes, live, self.key_columns, micro_batch_id)
        if self.format == "json":
            changes = _sortable_in_json(changes)
        batches.write(
            changes.write.format(self.format).options(**self._settings(spark)),
            Mark(micro_batch_id, self.proof),
        )

    def _settings(self, spark: SparkSession) -> dict[str, Option]:
        return (json_options(spark) if self.format == "json" else {}) | dict(self.options)

    def _log(self, changes: DataFrame) -> DataFrame:
        """What the log has, with the types of the changes. Its ``_order`` is that of the plans that wrote it."""
        spark, added = changes.sparkSession, (CHANGE_TYPE, TIMESTAMP, LATEST)
        reader = spark.read.format(self.format).options(**self._settings(spark)).option("mergeSchema", "true")
        order = reader.load(self.path).schema[ORDER]
        known = [one for one in changes.schema if one.name in {*self.key_columns, *added}]
        return reader.schema(StructType([*known, order])).load(self.path)

    def stage(self, spark: SparkSession, columns: StructType, schema: pa.Schema) -> FileStage | str:
        """Return what the workers do, or why Spark writes the log."""
        here = FileBatches(spark, self.path).here
        if here is None:
            return "only Spark reaches its directory"
        if self.tells_anew:
            return "Spark finds the keys that are gone"
        given = {name.lower(): str(value).lower() for name, value in self.options.items()}
        codec = given.pop("compression", "")
        if given:
            return f"only Spark knows the option {min(given)}"
        if self.format == "json":
            return "only Spark compresses JSON" if codec else JsonStage(str(here), order=_order_of(columns))
        codec = codec or (spark.conf.get(_CODEC, None) or "snappy").lower()
        if codec not in CODECS:
            return f"only Spark knows the compression {codec}"
        return ParquetStage(str(here), schema=spark_schema(schema, columns), codec=CODECS[codec])

    def commit(
        self, spark: SparkSession, stage: Stage, written: Sequence[str], micro_batch_id: int, query_id: str
    ) -> None:
        """Show what the workers wrote for one micro-batch as its directory."""
        assert isinstance(stage, FileStage)  # noqa: S101 - it made it
        batches, attempt = FileBatches(spark, self.path), stage.attempt(micro_batch_id)
        if self._has(batches, micro_batch_id, query_id):
            shutil.rmtree(attempt, ignore_errors=True)
            return
        # A log without changes has an empty file, in which readers find its columns.
        files = written or [stage.open(micro_batch_id, query_id).close()]
        batches.finish(attempt, files, Mark(micro_batch_id, self.proof))

    def _has(self, batches: FileBatches, micro_batch_id: int, query_id: str) -> bool:
        """Whether the log has a micro-batch already. Otherwise it is ready for it."""
        moment = self.moment
        self._claim(batches, query_id, micro_batch_id)
        mark = batches.mark(micro_batch_id) if moment is None else batches.last_mark(moment, starting=False)
        verdict = judged(self._found(batches.spark, mark), micro_batch_id, moment, self.on_mismatch)
        if verdict is Verdict.SETTLE:
            batches.remove([number for number in batches.numbers() if number >= micro_batch_id])
        return verdict is Verdict.DONE

    def _found(self, spark: SparkSession, mark: Mark | None) -> Found:
        return Found(f"The log {seen_by_spark(spark, self.path)}", mark, is_empty=True, follows=False)

    def _claim(self, batches: FileBatches, owner: str, number: int) -> None:
        """Mark the directory as the query's own; refuse one with another query's log."""
        if _OWNERS.get(self.path) == owner:
            return
        spark = batches.spark
        found = self._owner(spark)
        if found not in {None, owner}:
            if self.on_mismatch != "rebuild" or number > 0:
                raise self._of_another(spark, str(found))
            batches.remove(batches.numbers())
        if found != owner:
            write_line(spark, f"{self.path}/{OWNER}", owner, mode="overwrite")
        _OWNERS[self.path] = owner

    def _owner(self, spark: SparkSession) -> str | None:
        """The id of the query whose log the directory holds; None if it holds none."""
        found = first_line(spark, f"{self.path}/{OWNER}", "part-*")
        return None if found is None else found.partition("/")[0]  # older versions added the output's name

    def _of_another(self, spark: SparkSession, owner: str, where: str = "") -> TargetError:
        return TargetError(
            f"The directory {seen_by_spark(spark, self.path)} holds the changelog of another query ({owner}).",
            hint="A new checkpoint is a new query: write to another path, delete the old log, or give"
            ' on_mismatch="rebuild", which deletes it when the first micro-batch is written.',
            where=where,
        )


#: The fields of ``_order`` that have other names in JSON, where names must sort as the fields stand: micro_batch,
#: observed_time, partition, position, position_0, ..., row_image.
_JSON_NAMES = {"time": "observed_time", "image": "row_image"}


def _sortable_in_json(changes: DataFrame) -> DataFrame:
    """Give the fields of ``_order`` names that sort as the fields stand: Spark reads those of JSON sorted by name."""
    order = changes.schema[ORDER].dataType if ORDER in changes.columns else None
    if not isinstance(order, StructType):
        return changes
    names = _sortable_names(order)
    fields = (F.col(f"{ORDER}.{name}").alias(names.get(name, name)) for name in order.names)
    return changes.withColumn(ORDER, F.struct(*fields))


def _sortable_names(order: StructType) -> dict[str, str]:
    """Other names of fields, by which they sort as they stand."""
    hops = [name for name in order.names if name.startswith("hop_")]
    return _JSON_NAMES | {name: f"position_{at:0{len(str(len(hops) - 1))}}" for at, name in enumerate(hops)}


def _order_of(columns: StructType) -> StructType:
    order = columns[ORDER].dataType
    assert isinstance(order, StructType)  # noqa: S101 - the engine makes it
    return order


_OWNERS: dict[str, str] = {}
"""Directories that this process has found to be a query's own, so that the mark is read once."""


def to_files(
    path: str | os.PathLike[str],
    format: WriteFormat = "parquet",  # noqa: A002 (the same)
    *,
    options: Mapping[str, Option] | None = None,
    on_mismatch: OnMismatch = "refuse",
) -> FileSink:
    """Write every change of an output to files, each micro-batch exactly once.

    Parameters
    ----------
    path
        The directory of the log. It gets a directory ``micro_batch=<number>`` per micro-batch, which Spark, DuckDB,
        Polars and others read as a column ``micro_batch``.
    format
        ``"parquet"`` or ``"json"`` (one change per line).
    options
        Spark's options for the format, such as ``{"compression": "zstd"}``.
    on_mismatch
        What to do when the query starts and the log does not fit the checkpoint, because one of them was restored from
        a backup. ``"refuse"``: the start is an error. ``"rebuild"``: remove the directories of the micro-batches that
        the checkpoint lacks; with a new checkpoint, remove the log of the other query. ``"accept"``: the same, and go
        on if the log lacks some. Remove the argument when the query has started.

    Returns
    -------
    FileSink
        For ``table.to(...)``.

    Raises
    ------
    ArgumentError
        The format is unknown, or the path is empty or contains a password. By ``ts.start``: on a local master,
        nothing can be created at a local path.
    ReservedNameError
        By ``ts.start``: a column is called ``micro_batch``, in any case.
    TargetError
        By ``ts.start``, or in a micro-batch: the directory holds the log of another query, one with another checkpoint;
        or the log does not fit the checkpoint.

    Notes
    -----
    On a local master with local files, an attempt writes into a hidden directory of its own, and one rename makes it
    the micro-batch's: readers see all of it or nothing, also if two processes work at it. Elsewhere only Spark has the
    file system. There the directory fills file by file, and a crash can leave a part of it until the query is
    restarted and writes it again; if two processes wrote it, the micro-batch fails. ``_tablestream_mark`` in the
    directory comes last, and says that it is complete. Use a Delta sink there if readers must never see an incomplete
    micro-batch. Earlier directories are never touched; you may delete them, but not the last one.

    Within a file a key's changes are in order, and all changes of a key in a micro-batch are in one file (unless
    ``maxRecordsPerFile`` splits it). Across micro-batches, sort by ``_order``. JSON has timestamps in microseconds, and
    names the fields of ``_order`` so that they also sort as Spark reads them back, by name: ``micro_batch``,
    ``observed_time``, ``partition``, ``position``, ``position_0``, ..., ``row_image``.

    Examples
    --------
    >>> to_files("out/changes", format="json").target
    'files out/changes'
    """
    if format not in get_args(WriteFormat):
        raise ArgumentError(
            f"A file sink cannot write the format {format!r}.", hint="Choose 'parquet' or 'json'."
        )
    check_mapping(options, "options")
    return FileSink(
        checked_path(path, "a file sink"),
        format,
        dict(options or {}),
        on_mismatch=on_mismatch,
    )
