"""Where Spark looks for a path, and whether something can be created there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from tablestream.calling import user_line
from tablestream.connectors.place import Place
from tablestream.connectors.shipping import has_context, is_local
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The name of a file that does not exist.
_NOWHERE = "_tablestream_nowhere"


def full_path(spark: SparkSession, path: str) -> str | None:
    """Return the path with its file system and in full, as Spark has it; None if that cannot be found out.

    Only Spark knows that place. Its file system may be another than this machine's, and its directory is the one in
    which its Java started. It says the place of what does not exist.
    """
    try:
        _ = spark.read.text(f"{path}/{_NOWHERE}").schema
    except AnalysisException as error:
        full = (error.getMessageParameters() or {}).get("path", "")
        if full.endswith(f"/{_NOWHERE}"):
            return full.removesuffix(f"/{_NOWHERE}")
    return None


def check_writable(spark: SparkSession, path: str, what: str) -> None:
    """Raise if nothing can be created at a local path, before a query starts: it would end with an error of Java.

    Other file systems, and those of other machines, are not looked at.

    Parameters
    ----------
    what
        What is wrong, such as "The checkpoint out cannot be read or written".

    Raises
    ------
    ArgumentError
        Nothing can be created there.
    """
    if not (has_context(spark) and is_local(spark)):
        return
    here = Place.of(path).local_path
    if here is None or not _obstacle(here):
        return
    # The path may have looked local only because it has no scheme.
    place = Place.of(full_path(spark, path) or "")
    found = _obstacle(place.path) if place.scheme == "file" else ""
    if found:
        raise ArgumentError(
            f"{what}: {found}.",
            hint="Give a directory that Spark can create and write.",
            where=user_line(),
        )


def _obstacle(path: str) -> str:
    """Say why nothing can be created at a path, which need not exist; empty if it can.

    The bits of a mode do not tell: root passes over them, and some file systems refuse files whatever they say.
    """
    there = Path(path)
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a directory"
    try:
        Path(tempfile.mkdtemp(prefix=".tablestream-", dir=there)).rmdir()
    except OSError as error:
        return f"nothing can be created in {there} ({error.strerror})"
    return ""
