"""The log of Spark's file source in a checkpoint: which files a query has read, and which there are."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tablestream.connectors.lag import Behind
from tablestream.connectors.place import Place
from tablestream.connectors.small_texts import json_object, small_lines
from tablestream.connectors.spark_place import UNREADABLE, no_pattern

_LOG_OFFSET = "logOffset"
#: The formats of files, by their endings, that say how many records they have.
_COUNTED = frozenset({"parquet", "orc"})
#: How many files are opened for it at most.
_MOST_OPENED = 1_000


def files_read(spark: SparkSession, checkpoint: str, number: int, offset: Any) -> dict[str, int] | None:
    """Return the files that a source has read, and when they were modified, in ms since 1970; None: it reads no files.

    `number`: the source's among those of the query. `offset`: how far it has come.
    """
    if not isinstance(offset, dict) or offset.keys() != {_LOG_OFFSET}:
        return None
    lines = small_lines(spark, f"{checkpoint}/sources/{number}", "[0-9]*")
    entries = [found for line in lines if (found := json_object(line)) is not None and "path" in found]
    return {_place(one["path"]): one["timestamp"] for one in entries if one["batchId"] <= offset[_LOG_OFFSET]}


def files_there(spark: SparkSession, directories: list[str]) -> dict[str, int] | None:
    """Return the files in directories in the same way; None if a directory is gone."""
    try:
        found = spark.read.format("binaryFile").load([no_pattern(one) for one in directories])
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    modified = F.unix_millis("_metadata.file_modification_time")
    return {_place(row[0]): row[1] for row in found.select("_metadata.file_path", modified).collect()}


def directories_of(files: dict[str, int]) -> list[str]:
    """The directories in which files are."""
    return sorted({unquote(path).rpartition("/")[0] for path in files})


def files_behind(spark: SparkSession, checkpoint: str, number: int, offset: Any) -> Behind | None:
    """Compare the log of a source with the directories of the files that it names; None for another system's offset.

    Files in directories of which none was read yet are not seen: the checkpoint does not say where the source looks.
    """
    read = files_read(spark, checkpoint, number, offset)
    if read is None:
        return None
    if not read:
        return Behind("files", why="no file was read yet, so the directory is not known")
    places = directories_of(read)
    there = files_there(spark, places)
    if there is None:
        return Behind("files", why=f"a directory of files that were read is gone: {', '.join(places)}")
    unread = {path: modified_ms for path, modified_ms in there.items() if path not in read}
    late_ms = max(max(unread.values(), default=0) - max(read.values()), 0)
    return Behind("files", len(unread), "files", _records(spark, list(unread)), late_ms / 1000)


def _records(spark: SparkSession, files: list[str]) -> int | None:
    """How many records files have, which formats say that count them; None: only reading the records would tell."""
    if not files:
        return 0
    (ending, *others) = {file.rpartition(".")[2] for file in files}
    if others or ending not in _COUNTED or len(files) > _MOST_OPENED:
        return None
    try:
        return spark.read.format(ending).load([no_pattern(unquote(one)) for one in files]).count()
    except UNREADABLE:  # a file is not whole, or gone by now
        return None


def _place(path: str) -> str:
    """The log writes ``file:///``, and the metadata of rows ``file:/``."""
    return str(Place.of(path))
