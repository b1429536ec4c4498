"""Directories of files: changelogs to read, and changelogs to write.

The notes of `from_files` say how Spark 4.2 treats malformed rows, as tested format by format.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tablestream.arguments.kinds import check_mapping, check_session, checked_count
from tablestream.base.calling import user_line
from tablestream.connectors.file_batches import MICRO_BATCH, FileBatches
from tablestream.connectors.file_rows import (
    Option,
    csv_defaults,
    has_header,
    kept_types,
    own_rows,
    typed_rows,
)
from tablestream.connectors.json_text import json_options
from tablestream.connectors.marks import (
    Found,
    Mark,
    MarkingSink,
    OnMismatch,
    Verdict,
    checked_on_mismatch,
    judged,
    no_rebuild,
)
from tablestream.connectors.sink import ORDER, checked_path
from tablestream.connectors.small_texts import first_line, write_line
from tablestream.connectors.source import (
    CORRUPT_RECORD,
    OF_PARQUET,
    UNREADABLE,
    OnMalformed,
    Origin,
    note_of,
    with_origin,
)
from tablestream.connectors.spark_place import (
    check_no_empty,
    check_no_file,
    check_no_signs,
    check_writable,
    seen_by_spark,
)
from tablestream.connectors.texts import Texts, Units, checked_units
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import ArgumentError, PlanError, ReservedNameError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

ReadFormat = Literal["json", "csv", "parquet"]
WriteFormat = Literal["parquet", "json"]

OWNER = "_tablestream_owner"
_HEADLESS = ' If the row is the header of a CSV file, give options={"header": True}.'
_UNITLESS = ' If it has a number for a time, give its unit, as in times="milliseconds".'

#: Spark never reads a file that is so much older than the newest it has seen, and says nothing. Its default is 7 days.
_EVER = "1000000d"
_OPTIONS_BY_ARGUMENT = {
    "mode": "mode",
    "columnnameofcorruptrecord": "mode",
    "maxfilespertrigger": "max_files_per_trigger",
}


def from_files(
    spark: SparkSession,
    path: str | os.PathLike[str],
    format: ReadFormat,  # noqa: A002 (Spark's word)
    schema: StructType | str,
    *,
    mode: OnMalformed = "fail",
    times: Units = None,
    options: Mapping[str, Option] | None = None,
    max_files_per_trigger: int | None = None,
) -> DataFrame:
    r"""Read a directory of JSON, CSV or Parquet changelogs as a stream, in a stable order.

    Files are read in the order of their modification time, and rows in their order in the file. A file must appear
    as a whole: write it elsewhere and move it in. Directories inside the directory are read as well. Files and
    directories whose names begin with ``_`` or ``.`` are passed over.

    Parameters
    ----------
    spark
        The session.
    path
        A directory, or a glob pattern.
    format
        ``"json"`` (one record per line), ``"csv"`` or ``"parquet"``.
    schema
        The columns, as a DDL string or a struct; a stream's schema is never inferred.
    mode
        How to handle a row that does not fit the schema: ``"fail"`` ends the query with `MalformedRecordError`,
        ``"drop"`` drops and counts it, ``"keep"`` also makes it available in ``Table.rejected()``. Parquet has no
        such rows, only files that cannot be read, which always fail.
    times
        The unit of numbers in timestamps and dates of JSON and CSV, for all columns or by the column's name:
        ``"days"``, ``"seconds"``, ``"milliseconds"``, ``"microseconds"``, ``"nanoseconds"`` since 1970 in UTC, or
        ``"isostring"``: no number is a time. Texts in ISO form are read as well. Default: a number in JSON counts
        seconds in a timestamp, and is no other time; in CSV it is none.
    options
        Spark's options for the format, such as ``{"header": True, "sep": ";"}``. They win over what is said here.
    max_files_per_trigger
        The largest number of files per micro-batch; default: all files that are there.

    Returns
    -------
    DataFrame
        Streaming, with the schema's columns and, for JSON and CSV, ``_corrupt_record``: the raw text of a malformed
        row, else null. The column carries the mode in its metadata (`tablestream.Origin`), through ``select``,
        ``filter``, ``withColumn`` and renaming; a frame without the column has no mode. The hidden ``_metadata``,
        which gives a row its position, stays with the frame, but a union or a SQL view loses it.

    Raises
    ------
    ArgumentError
        An unknown format or mode, a schema that cannot be parsed, a path that is empty or contains a password, an
        option that has an argument here or that would break the order (``latestFirst``) or the rows
        (``recursiveFileLookup=False``); `times` for a column without times. On a local master, a local path that is
        a file, or a directory with an empty Parquet file.
    PlanError
        The path does not exist.

    Notes
    -----
    A row is malformed if Spark's parser refuses its text for any column of the schema, even one that nobody
    selects: Spark alone would not look at such a column. In detail:

    ======================================  =============  ==================
    row                                     JSON           CSV
    ======================================  =============  ==================
    value of another type, out of range     malformed      malformed
    digits that a decimal does not have     malformed      malformed
    a time that is a number, without unit   see `times`    malformed
    a year that is not of four digits       malformed      malformed
    field missing                           null           malformed
    field too many                          ignored        malformed
    nothing                                                null
    nothing between quotes                  an empty text  an empty text;
                                                           null in no string
    broken or cut off syntax                malformed      if a field is
                                                           missing (!)
    bytes that are not UTF-8                malformed      read as U+FFFD
    something after the record              ignored (!)    field too many
    a line ``[]``                           no row         malformed
    empty line                              no row         no row
    ======================================  =============  ==================

    The lines with (!) are Spark's behaviour: of ``{"id": 1}{"id": 2}`` on one line, the second record is lost
    silently. In CSV, a quote that is never closed takes in the rest of the file: it is malformed unless it is in the
    last column. The page on semantics says which texts are values of which type ("Values in texts").

    CSV is what Python's ``csv``, pandas and RFC 4180 write: quotes are doubled inside quotes, a backslash is an
    ordinary character, and quotes may hold line ends. So one task reads a file from its begin to its end. With
    ``{"multiLine": False}`` several tasks share a large file, and no value may hold a line end.

    A file is read however old it is. Spark alone passes over a file that is seven days older than the newest one that
    it has seen; here its option ``maxFileAge`` is a million days unless you set it. A file that comes late counts
    after those that were read before it. The driver remembers the path of every file that it has read: if files arrive
    by the million, set an age, and keep to it.

    A ``filter`` before ``ts.table`` sees a malformed row with nulls in the columns that could not be read, so it
    may remove the row before the mode applies.

    With a CSV header, the names are compared with the schema, and a file with other columns fails the query.
    ``{"enforceSchema": True}`` goes by position instead, which is Spark's default.

    Within a micro-batch, files with the same modification time are ordered by their paths. If
    ``max_files_per_trigger`` cuts between them, the file system's listing decides which of them come first. Give
    every file its own time if cuts must not matter.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> (directory / "1.json").write_text('{"ticker": "A", "price": 1.5}\n')
    30
    >>> quotes = from_files(spark, directory, "json", "ticker string, price double", mode="drop")
    >>> quotes.columns
    ['ticker', 'price', '_corrupt_record']
    """
    check_session(spark)
    check_mapping(options, "options")
    max_files = checked_count(max_files_per_trigger, "max_files_per_trigger")
    _check_choices(format, mode)
    path = checked_path(path, "from_files")
    check_no_file(spark, path, "from_files")
    check_no_signs(spark, path)
    settings = _read_settings(format, options or {}, max_files)
    columns = _struct(schema)
    if format == "parquet":
        _check_parquet(spark, path, times)
        is_lenient = str(settings.get("ignorecorruptfiles", "false")).lower() == "true"
        note = {} if is_lenient else note_of(OF_PARQUET, path)
        return own_rows(_load(spark, path, format, columns, settings), note)
    given = {name.lower(): value for name, value in (options or {}).items()}
    columns = _with_corrupt_record(columns)
    values = StructType([one for one in columns if one.name != CORRUPT_RECORD])
    texts = Texts(values, format, checked_units(times, values), kept_types(given))
    raw = StructType([*texts.raw.fields, columns[CORRUPT_RECORD]])
    rows = typed_rows(_load(spark, path, format, raw, settings), columns, texts, given)
    remedy = UNREADABLE
    remedy += _HEADLESS if format == "csv" and not has_header(given) else ""
    remedy += _UNITLESS if texts.unitless else ""
    return with_origin(rows, CORRUPT_RECORD, Origin(malformed="{}", on_malformed=mode, remedy=remedy))


def _check_choices(format_: str, mode: str) -> None:
    if format_ not in get_args(ReadFormat):
        raise ArgumentError(
            f"from_files cannot read the format {format_!r}.",
            hint="Choose 'json', 'csv' or 'parquet'; ts.table takes any streaming DataFrame.",
        )
    if mode not in get_args(OnMalformed):
        raise ArgumentError(
            f"There is no mode {mode!r} for malformed rows.", hint="Choose 'fail', 'drop' or 'keep'."
        )
    if format_ == "parquet" and mode != "fail":
        raise ArgumentError(
            f"mode={mode!r} does not apply to Parquet: it has no malformed rows, only files that cannot be read.",
            hint="Omit mode=; options={'ignoreCorruptFiles': True} skips such files.",
        )


def _read_settings(format_: str, options: Mapping[str, Option], max_files: int | None) -> dict[str, Option]:
    """Collect Spark's options, and refuse those that would override this reader's mode or order."""
    given = {name.lower(): value for name, value in options.items()}
    _check_options(given)
    if max_files is not None:
        given["maxfilespertrigger"] = max_files
    defaults: dict[str, Option] = {"maxFileAge": _EVER, "recursiveFileLookup": True}
    if format_ == "csv":
        defaults |= csv_defaults(given)
    permissive = (
        {} if format_ == "parquet" else {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_RECORD}
    )
    return {name.lower(): value for name, value in defaults.items()} | given | permissive


def _check_options(given: Mapping[str, Option]) -> None:
    """Refuse options, by their names in lower case, that would override this reader's mode or order."""
    for name in given:
        if name in _OPTIONS_BY_ARGUMENT:
            raise ArgumentError(
                f"The option {name!r} is an argument of from_files.",
                hint=f"Give {_OPTIONS_BY_ARGUMENT[name]}= instead.",
            )
    if str(given.get("latestfirst", "false")).lower() == "true":
        raise ArgumentError(
            "latestFirst reads later changes before earlier ones.",
            hint="Omit it: a changelog must be read in order.",
        )
    if str(given.get("recursivefilelookup", "true")).lower() != "true":
        raise ArgumentError(
            "Without recursiveFileLookup, Spark takes the name of a directory such as id=7 for the column of every row"
            " in it, and reads rows twice where the name of a file has a sign of a pattern.",
            hint="Omit it. To have a directory's name as a column, take it from _metadata.file_path.",
            where=user_line(),
        )


def _check_parquet(spark: SparkSession, path: str, times: Units) -> None:
    """Refuse a unit of times, which Parquet has itself, and files without a byte."""
    if times is not None:
        raise ArgumentError(
            "times= does not apply to Parquet: its times have a type.",
            hint="Omit times=. Convert a number with select(...), as in timestamp_millis(at).",
            where=user_line(),
        )
    check_no_empty(spark, path)


def _struct(schema: StructType | str) -> StructType:
    try:
        columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except ParseException as error:
        raise ArgumentError(
            f"The schema {schema!r} cannot be parsed.", hint="Write it as in 'id BIGINT, name STRING'."
        ) from error
    if not isinstance(columns, StructType) or not columns.fields:
        raise ArgumentError(
            "The schema of from_files has no columns.", hint="Write it as in 'id BIGINT, name STRING'."
        )
    return columns


def _with_corrupt_record(columns: StructType) -> StructType:
    if CORRUPT_RECORD not in columns.fieldNames():
        return StructType([*columns.fields, StructField(CORRUPT_RECORD, StringType())])
    if columns[CORRUPT_RECORD].dataType != StringType():
        raise ArgumentError(
            f"The column {CORRUPT_RECORD} is reserved for the text of malformed rows.",
            hint="Remove it from the schema, or make it a string.",
        )
    return columns


def _load(
    spark: SparkSession,
    path: str,
    format_: str,
    columns: StructType,
    settings: Mapping[str, Option],
) -> DataFrame:
    use_driver_python(spark)
    try:
        frame = spark.readStream.format(format_).schema(columns).options(**settings).load(path)
        _ = frame.schema  # Spark Connect finds out no earlier
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise PlanError(
            f"There is no directory {seen_by_spark(spark, path)} to read.",
            hint="Create it first; it may be empty.",
        ) from error
    return frame


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
                where=user_line(),
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
        spark, moment = changes.sparkSession, self.moment
        batches = FileBatches(spark, self.path)
        self._claim(batches, query_id, micro_batch_id)
        mark = batches.mark(micro_batch_id) if moment is None else batches.last_mark(moment, starting=False)
        verdict = judged(self._found(spark, mark), micro_batch_id, moment, self.on_mismatch)
        if verdict is Verdict.DONE:
            return
        if verdict is Verdict.SETTLE:
            batches.remove(batches.numbers())
        defaults = {}
        if self.format == "json":
            changes, defaults = _sortable_in_json(changes), json_options(spark)
        writer = changes.write.format(self.format).options(**(defaults | dict(self.options)))
        batches.write(writer, Mark(micro_batch_id, self.proof))

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
    hops = [name for name in order.names if name.startswith("hop_")]
    numbers = {name: f"position_{at:0{len(str(len(hops) - 1))}}" for at, name in enumerate(hops)}
    names = _JSON_NAMES | numbers
    fields = (F.col(f"{ORDER}.{name}").alias(names.get(name, name)) for name in order.names)
    return changes.withColumn(ORDER, F.struct(*fields))


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
        on_mismatch=checked_on_mismatch(on_mismatch),
    )
