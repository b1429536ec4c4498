"""Read a directory of changelogs as a stream.

The notes of `from_files` say how Spark 4.2 treats malformed rows, as tested format by format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tablestream.arguments.kinds import check_mapping, check_session, checked_count, columns_of
from tablestream.connectors.files.rows import csv_defaults, has_header, kept_types, own_rows, typed_rows
from tablestream.connectors.sink import checked_path
from tablestream.connectors.source import (
    CORRUPT_RECORD,
    OF_PARQUET,
    UNREADABLE,
    OnMalformed,
    Option,
    Origin,
    note_of,
    with_origin,
)
from tablestream.connectors.spark_place import check_no_empty, check_no_file, check_no_signs, seen_by_spark
from tablestream.connectors.texts import Texts, Units, checked_units
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import ArgumentError, PlanError

ReadFormat = Literal["json", "csv", "parquet"]

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
    columns = columns_of(schema)
    if columns is None:
        raise ArgumentError(
            f"The schema {schema!r} cannot be parsed.", hint="Write it as in 'id BIGINT, name STRING'."
        )
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
        )


def _check_parquet(spark: SparkSession, path: str, times: Units) -> None:
    """Refuse a unit of times, which Parquet has itself, and files without a byte."""
    if times is not None:
        raise ArgumentError(
            "times= does not apply to Parquet: its times have a type.",
            hint="Omit times=. Convert a number with select(...), as in timestamp_millis(at).",
        )
    check_no_empty(spark, path)


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
