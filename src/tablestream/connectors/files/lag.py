"""How many files of its directories a query has not read, by the log of Spark's file source."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tablestream.connectors.file_log import directories_of, files_read, files_there
from tablestream.connectors.lag import Behind


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
    unread = [modified_ms for path, modified_ms in there.items() if path not in read]
    late_ms = max(max(unread, default=0) - max(read.values()), 0)
    return Behind("files", len(unread), "files", 0 if not unread else None, late_ms / 1000)
