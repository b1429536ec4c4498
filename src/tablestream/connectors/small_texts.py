"""Texts of a line or a few that a checkpoint or a log keeps for the library, such as whose it is.

On a local master they are read and written here: each of Spark's jobs takes a tenth of a second, and the first ones of
a process seconds. Anywhere else only Spark has the file system, its settings and its credentials.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

from tablestream.base.data_text import data_text
from tablestream.connectors.spark_place import no_pattern, on_this_machine
from tablestream.errors import DamagedStateError


def documents(spark: SparkSession, directory: str, pattern: str) -> list[dict[str, Any]]:
    """Read small texts with a JSON object on each line, as `small_lines` does, or raise `DamagedStateError`."""
    found = []
    for line in small_lines(spark, directory, pattern):
        document = json_object(line)
        if document is None:
            raise DamagedStateError(
                f"{directory}/{pattern} has a line that is not a JSON object: {data_text(line)}.",
                hint="Restore the checkpoint from a copy, or start with a new one.",
            )
        found.append(document)
    return found


def json_object(text: str) -> dict[str, Any] | None:
    """Return what a text has as a JSON object; None if it is something else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def first_line(spark: SparkSession, directory: str, pattern: str) -> str | None:
    """Read the only line of a small text; None if the file does not exist."""
    return next(iter(small_lines(spark, directory, pattern)), None)


def small_lines(spark: SparkSession, directory: str, pattern: str) -> list[str]:
    """Read the different lines of small texts in the order in which they are first found; none if no file exists.

    Only `pattern` is a pattern: the name of a directory may contain ``[`` or ``*``. `OSError`: something on this
    machine cannot be read, which Spark would say with an exception of its own.
    """
    here = on_this_machine(spark, directory)
    lines = _lines_by_spark(spark, directory, pattern) if here is None else lines_here(here, pattern)
    return list(dict.fromkeys(lines))


def whole_text(spark: SparkSession, directory: str, name: str) -> str | None:
    """Read a small text as it is, with lines that are equal; None if the file does not exist."""
    here = on_this_machine(spark, directory)
    if here is not None:
        return _text(here / name) if (here / name).exists() else None
    path = f"{no_pattern(directory)}/{name}"
    row = None
    with if_there():
        row = spark.read.text([path] * 2, wholetext=True).first()  # twice: see `_lines_by_spark`
    return None if row is None else str(row[0])


def numbered_names(spark: SparkSession, directory: str, prefix: str = "") -> list[int]:
    """List the files or directories in a directory that are called by a number behind a prefix; only the numbers.

    Directories without files may be missing where Spark has the file system.
    """
    here = on_this_machine(spark, directory)
    if here is None:
        depth = len(prefix) > 0  # what has a prefix is a directory
        found, path = list[str](), f"{no_pattern(directory)}/{prefix}[0-9]*{'/*' if depth else ''}"
        with if_there():
            found = spark.read.text([path] * 2).inputFiles()  # twice: see `_lines_by_spark`
        names = [path.split("/")[-2 if depth else -1] for path in found]
    else:
        names = [path.name for path in _matching(here, f"{prefix}[0-9]*")]
    numbers = (name.removeprefix(prefix) for name in names)
    return sorted({int(number) for number in numbers if number.isdecimal()})


def write_line(
    spark: SparkSession, directory: str, line: str, *, mode: Literal["append", "overwrite"]
) -> None:
    """Write a file ``part-...`` in addition to those in a directory, or in place of all that is in it.

    The line has no end of a line in it.
    """
    here = on_this_machine(spark, directory)
    if here is None:
        frame = spark.createDataFrame([(line,)], "value string").coalesce(1)
        frame.write.mode(mode).text(directory)
        return
    if mode == "overwrite" and here.exists():
        shutil.rmtree(here)
    write_here(here, line)


def write_here(directory: Path, line: str) -> None:
    """Write such a file on this machine."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"part-00000-{uuid.uuid4()}.txt"
    # Spark's readers leave out what begins with a dot.
    unfinished = directory / f".{name}"
    unfinished.write_text(f"{line}\n", encoding="utf-8")
    unfinished.rename(directory / name)


@contextmanager
def if_there() -> Iterator[None]:
    """Leave what reads a path, and go on behind it, if Spark says that there is no such path."""
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise


def _lines_by_spark(spark: SparkSession, directory: str, pattern: str) -> list[str]:
    """Read lines in a job.

    The pattern is given twice: for a single path, Spark looks for the log of its own file sink, and warns with a stack
    trace if there is none.
    """
    rows = list[Row]()
    with if_there():
        rows = spark.read.text([f"{no_pattern(directory)}/{pattern}"] * 2).collect()
    return [row[0] for row in rows]


def lines_here(directory: Path, pattern: str) -> list[str]:
    """Read the lines of small texts on this machine; none if no file exists."""
    return [line for path in _matching(directory, pattern) for line in _cut(_text(path))]


def _matching(directory: Path, pattern: str) -> list[Path]:
    """Find files, sorted by their paths. `Path.glob` takes a directory that it cannot read for an empty one."""
    name, _, below = pattern.partition("/")
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - which raises only when it is read
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [directory / one for one in names if fnmatchcase(one, name)]
    return [path for one in found for path in _matching(one, below)] if below else found


def _text(path: Path) -> str:
    """Return the text of a file, with each end of a line as a newline; empty if it was removed meanwhile."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _cut(text: str) -> list[str]:
    """Cut a text where Spark does. `str.splitlines` also cuts at characters such as U+2028, which JSON may hold."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
