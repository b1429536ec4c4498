"""A checkpoint that was moved or copied: Spark's description of the state has full paths, which must be rewritten.

Only one kind of file in a checkpoint has full paths: ``state/<stage>/_metadata/v2/<micro-batch>`` names the files that
have the schema of the state.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

from tablestream.base.calling import user_line
from tablestream.connectors.place import Place
from tablestream.connectors.sink import checked_path
from tablestream.connectors.small_texts import small_lines
from tablestream.connectors.spark_place import seen_by_spark
from tablestream.errors import ArgumentError, CheckpointMovedError
from tablestream.spark.checkpoint_files import CheckpointFiles
from tablestream.spark.generations import GENERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_METADATA = "_metadata/v2"
_SCHEMAS = "stateSchemaFilePaths"


def relocate_checkpoint(checkpoint: str | os.PathLike[str]) -> int:
    """Make a checkpoint usable that was moved or copied to another place.

    Spark stores full paths in a checkpoint, so `start` and `read_state` refuse a checkpoint that was moved. This
    function replaces these paths. Call it once, after the move and while no query uses the checkpoint.

    Parameters
    ----------
    checkpoint
        The directory of the checkpoint at its new place: a local path, or a URI such as ``s3://bucket/checkpoint``
        or ``hdfs://host/checkpoint``, as it will be given to `start`. Arrow's file systems read and write it.

    Returns
    -------
    int
        How many files were rewritten; 0 if the checkpoint is where its paths say.

    Raises
    ------
    ArgumentError
        The directory is not a checkpoint with state, or Arrow has no such file system.

    Notes
    -----
    A query that was started from `Table.changes` with Spark's own ``writeStream`` is not checked when it starts:
    relocate its checkpoint as well.

    Copy or move the whole directory while the query is stopped. Do not start queries on both copies: they would
    write the same outputs. A sink that marks its micro-batches knows the query by an id in the checkpoint, which a
    copy shares.

    Examples
    --------
    >>> import tablestream as ts
    >>> ts.relocate_checkpoint("/new/place/of/checkpoint")  # doctest: +SKIP
    2
    """
    place = Place.of(checked_path(checkpoint, "the checkpoint"))
    files = CheckpointFiles.of(place)
    rewritten, found = 0, False
    for directory in ("", *(f"{GENERATIONS}/{name}/" for name in files.names(GENERATIONS))):
        for name in _metadata_files(files, directory):
            found = True
            old = files.read(name)
            new = _with_paths(old, f"{_qualified(place)}/{directory}".rstrip("/"))
            if new != old:
                files.replace(name, new)
                rewritten += 1
    if not found:
        raise ArgumentError(
            f"{place.in_full} is not a checkpoint with state.",
            hint="Give the directory at its new place, as checkpoint= of ts.start.",
            where=user_line(),
        )
    return rewritten


def check_place(spark: SparkSession, checkpoint: str) -> None:
    """Raise if Spark would look for the schema of the state elsewhere: the checkpoint was moved or copied."""
    for path in _stored_paths(spark, checkpoint):
        before = path.rpartition("/state/")[0]
        if not is_same_place(before, checkpoint):
            whole = _without_generation(checkpoint)
            raise CheckpointMovedError(
                f"The checkpoint {seen_by_spark(spark, whole)} was moved or copied from {_without_generation(before)},"
                " where Spark would still look for files.",
                hint=f"Run `tablestream relocate {shlex.quote(whole)}` or call ts.relocate_checkpoint once.",
                where=user_line(),
            )


def _without_generation(checkpoint: str) -> str:
    """The directory of the query, which is what is moved and relocated, also after the query has evolved."""
    return checkpoint.partition(f"/{GENERATIONS}/")[0]


def _stored_paths(spark: SparkSession, checkpoint: str) -> list[str]:
    """The paths of schema files in the metadata of all stages; none before the first micro-batch."""
    lines = small_lines(spark, checkpoint, f"state/*/{_METADATA}/[0-9]*")
    documents = [json.loads(line) for line in lines if line.startswith("{")]  # other lines are versions
    stores = [store for document in documents for store in document["stateStoreInfo"]]
    return [path for store in stores for path in store.get(_SCHEMAS, [])]


def is_same_place(stored: str, given: str) -> bool:
    """Whether a path in the checkpoint names the given directory, which may be relative or have another scheme."""
    mine, its = Place.of(given), Place.of(stored)
    if its.scheme == "file":
        path = mine.local_path
        return path is not None and os.path.realpath(path) == os.path.realpath(its.path)
    if mine.scheme == "file":
        return False
    if not mine.scheme and not mine.path.startswith("/"):
        # Relative to the user's directory in the session's default file system.
        return its.path.endswith(f"/{mine.path}")
    return mine.path == its.path and mine.host in ("", its.host)


def _metadata_files(files: CheckpointFiles, directory: str) -> Iterator[str]:
    for stage in files.names(f"{directory}state"):
        entries = f"{directory}state/{stage}/{_METADATA}"
        yield from (f"{entries}/{number}" for number in files.numbers(entries))


def _with_paths(text: str, root: str) -> str:
    """The file's text with paths below another directory; its first line is a version."""
    version, _, content = text.partition("\n")
    document = json.loads(content)
    for store in document["stateStoreInfo"]:
        names = [path.rpartition("/state/")[2] for path in store.get(_SCHEMAS, [])]
        store[_SCHEMAS] = [f"{root}/state/{name}" for name in names]
    return f"{version}\n{json.dumps(document, separators=(',', ':'))}"


def _qualified(place: Place) -> str:
    """A path as Spark writes it: with a scheme."""
    return str(place) if place.local_path is None else f"file:{place.local_path}"
