"""Where Spark looks for a path, and what is or can be there."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession

from tablestream.connectors.place import Place
from tablestream.connectors.shipping import has_context, is_local
from tablestream.errors import ArgumentError, MalformedRecordError

#: What Spark raises for what it cannot read, such as a file that is not whole, or is gone.
UNREADABLE = (PySparkException, Py4JJavaError)

#: The name of a file that does not exist.
_NOWHERE = "_tablestream_nowhere"
#: A path without a scheme that is no pattern, names no host, and has no dots to work out.
_PLAIN = re.compile(r"/?(?:[\w-][\w.-]*/)*[\w-][\w.-]*", re.ASCII)
#: What is a pattern to Hadoop.
_SIGNS = re.compile(r"[\[\]{}*?\\]")


def no_pattern(path: str) -> str:
    """Return a path for Spark's readers, which take it for a pattern: each sign of a pattern stands for itself."""
    return _SIGNS.sub(r"\\\g<0>", path)


def full_path(spark: SparkSession, path: str) -> str | None:
    """Return the path with its file system and in full, as Spark has it; None if that cannot be found out.

    Only Spark knows that place. Its file system may be another than this machine's, and its directory is the one in
    which its Java started. It says the place of what does not exist. The path is given twice for the reason that
    `tablestream.connectors.small_texts.small_lines` has: a single one can make Spark warn with a stack trace.

    Spark's answer is an error, which is slow to come. So it is asked once for all plain paths.
    """
    if _PLAIN.fullmatch(path) and ".." not in path:
        place = Place.of(path)
        with suppress(LookupError):
            above = _above(spark, spark.conf.get("fs.defaultFS", "") or "", is_relative=place.is_relative)
            return f"{above}/{place.path.lstrip('/')}"
        return None
    return _asked(spark, path)


@lru_cache(maxsize=4)
def _above(spark: SparkSession, default_fs: str, *, is_relative: bool) -> str:  # noqa: ARG001 (it decides)
    """What Spark puts before all plain paths, without a slash at its end; an error is not remembered."""
    found = _asked(spark, "." if is_relative else "")
    if found is None:
        raise LookupError
    return found


def _asked(spark: SparkSession, path: str) -> str | None:
    try:
        _ = spark.read.text([f"{path}/{_NOWHERE}"] * 2).schema
    except AnalysisException as error:
        full = (error.getMessageParameters() or {}).get("path", "")
        if full.endswith(f"/{_NOWHERE}"):
            return full.removesuffix(f"/{_NOWHERE}")
    except (
        IllegalArgumentException,
        Py4JJavaError,
    ):  # Java takes the path for a pattern or a URI, and it is none
        pass
    return None


def on_this_machine(spark: SparkSession, path: str) -> Path | None:
    """Return where a path is on this machine, on which all of Spark's processes run; None if it is not known to be."""
    if not _runs_here(spark):
        return None
    place = Place.of(path)
    if not place.scheme:
        # The session's default file system decides.
        place = Place.of(full_path(spark, path) or "")
    # Hadoop refuses others: of a host, and relative ones with a scheme.
    is_here = place.scheme == "file" and not place.host and place.path.startswith("/")
    return Path(place.path) if is_here else None


def _runs_here(spark: SparkSession) -> bool:
    return has_context(spark) and is_local(spark)


def seen_by_spark(spark: SparkSession, path: str) -> str:
    """Return a path for a message: a relative one with the place where Spark looks for it."""
    full = full_path(spark, path) if Place.of(path).is_relative else None
    return path if full is None else f"{path} ({full})"


def check_writable(spark: SparkSession, path: str, what: str) -> None:
    """Raise if nothing can be created at a local path, before a query starts: it would end with an error of Java.

    Other file systems, and those of other machines, are not looked at. `what` is wrong then, such as "The checkpoint
    out cannot be read or written".
    """
    found = _seen(spark, path, _obstacle)
    if found:
        raise ArgumentError(f"{what}: {found}.", hint="Give a directory that Spark can create and write.")


def check_no_file(spark: SparkSession, path: str, what: str) -> None:
    """Raise if a local path is a file, where Spark needs a directory and says so only when the query runs.

    Other file systems, and those of other machines, are not looked at.
    """
    if _seen(spark, path, lambda here: "a file" if os.path.isfile(here) else ""):  # noqa: PTH113 - never raises
        raise ArgumentError(
            f"{what} reads a directory, and {path} is a file.",
            hint=f"Give its directory: {posixpath.dirname(path) or '.'}.",
        )


def check_no_signs(spark: SparkSession, path: str) -> None:
    """Raise if a local directory is called like a pattern: Spark would read those that match it in its place."""
    if no_pattern(path) != path and _seen(spark, path, lambda here: here if Path(here).is_dir() else ""):
        raise ArgumentError(
            f"{path} is a directory, and Spark reads the directories that match its name as a pattern.",
            hint=f"Put a backslash before each sign of a pattern: {no_pattern(path)}",
        )


def check_no_empty(spark: SparkSession, path: str) -> None:
    """Raise if a local directory has a Parquet file without a byte: Spark passes over it, and never reads it again."""
    found = _seen(spark, path, _empty_file)
    if found:
        raise ArgumentError(
            f"The file {found} is empty, so it is no Parquet file. Spark would pass over it, even when it is complete.",
            hint="Delete it, or move the complete file in its place.",
        )


def check_none_came_empty(spark: SparkSession, path: str) -> None:
    """Do the same while a query runs: the micro-batch fails before Spark has passed over the file."""
    found = _seen(spark, path, _empty_file)
    if found:
        raise MalformedRecordError(
            f"The file {found} is empty, so it is no Parquet file.",
            hint="Move the complete file in its place, and start the query again."
            " If you delete it, its name counts as read.",
        )


def _empty_file(directory: str) -> str:
    """A visible file without a byte, below a directory; empty if there is none."""
    for here, below, names in os.walk(directory):
        below[:] = [one for one in below if one[0] not in "._"]
        for name in names:
            file = os.path.join(here, name)  # noqa: PTH118 - there may be many files
            with suppress(OSError):
                if name[0] not in "._" and os.stat(file).st_size == 0:  # noqa: PTH116 - the same
                    return file
    return ""


def _seen(spark: SparkSession, path: str, look: Callable[[str], str]) -> str:
    """Return what `look` says of a local path on a local master; empty if it is not known to be one."""
    maybe_local = Place.of(path).local_path
    if not _runs_here(spark) or maybe_local is None or not look(maybe_local):
        return ""
    here = on_this_machine(spark, path)
    return "" if here is None else look(str(here))


def _obstacle(path: str) -> str:
    """Say why nothing can be created at a path, which need not exist; empty if it can.

    The bits of a mode do not tell: root passes over them, and some file systems refuse files whatever they say.
    """
    there = Path(path)
    while not os.path.lexists(there):
        there = there.parent
    if not os.path.isdir(there):  # noqa: PTH112 - never raises
        return f"{there} is not a directory"
    try:
        Path(tempfile.mkdtemp(prefix=".tablestream-", dir=there)).rmdir()
    except OSError as error:
        return f"nothing can be created in {there} ({error.strerror})"
    return ""
