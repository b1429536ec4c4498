"""A checkpoint that was moved or copied: Spark's description of the state has full paths, which must be rewritten.

Only one kind of file in a checkpoint has full paths: ``state/<stage>/_metadata/v2/<micro-batch>`` names the files that
have the schema of the state.
"""

from __future__ import annotations

import json
import os
import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from tablestream.calling import user_line
from tablestream.connectors.files import first_line
from tablestream.connectors.sink import checked_path
from tablestream.errors import ArgumentError, CheckpointMovedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

_METADATA = "_metadata/v2"
_SCHEMAS = "stateSchemaFilePaths"
#: Spark's names of a file system that Arrow has under another name.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def relocate_checkpoint(checkpoint: str | os.PathLike[str]) -> int:
    """Make a checkpoint usable that was moved or copied to another place.

    Spark stores full paths in a checkpoint, so a query does not start on a checkpoint that was moved. This function
    replaces these paths. Call it once, after the move and while no query uses the checkpoint.

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
        The directory is not a checkpoint with state.

    Notes
    -----
    Copy or move the whole directory while the query is stopped. Do not start queries on both copies: they would
    write the same outputs. A sink that marks its micro-batches knows the query by an id in the checkpoint, which a
    copy shares.

    Examples
    --------
    >>> import tablestream as ts
    >>> ts.relocate_checkpoint("/new/place/of/checkpoint")  # doctest: +SKIP
    2
    """
    place = checked_path(checkpoint, "the checkpoint")
    system, root = _file_system(place)
    rewritten, found = 0, False
    for path in _metadata_files(system, root):
        found = True
        with system.open_input_file(path) as file:
            old = file.read().decode()
        new = _with_paths(old, _qualified(place))
        if new != old:
            _replace(system, path, new)
            rewritten += 1
    if not found:
        raise ArgumentError(
            f"{place} is not a checkpoint with state.",
            hint="Give the directory at its new place, as checkpoint= of ts.start.",
            where=user_line(),
        )
    return rewritten


def check_place(spark: SparkSession, checkpoint: str) -> None:
    """Raise if Spark would look for the schema of the state in another directory than the checkpoint.

    Raises
    ------
    CheckpointMovedError
        The checkpoint was moved or copied, and not relocated.
    """
    text = first_line(spark, f"{checkpoint}/state/0/{_METADATA}/*", starting="{")
    for path in [] if text is None else _schema_paths(json.loads(text)):
        before = path.split("/state/")[0]
        if not is_same_place(before, checkpoint):
            raise CheckpointMovedError(
                f"The checkpoint {checkpoint} was moved or copied from {before}, where Spark would still look for"
                " files.",
                hint=f"Run `tablestream relocate {checkpoint}` or call ts.relocate_checkpoint once.",
                where=user_line(),
            )


def _file_system(place: str) -> tuple[fs.FileSystem, str]:
    local = _local_path(place)
    if local is not None:
        return fs.LocalFileSystem(), local
    scheme, _, rest = place.partition("://")
    system, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    return system, str(root)


def _local_path(place: str) -> str | None:
    """The absolute path of a local directory; None for a URI of another file system."""
    parts = urlsplit(place)
    return os.path.abspath(parts.path) if parts.scheme in ("", "file") else None  # noqa: PTH100 - as for Spark


def _metadata_files(system: fs.FileSystem, root: str) -> Iterator[str]:
    stages = fs.FileSelector(posixpath.join(root, "state"), allow_not_found=True)
    for stage in system.get_file_info(stages):
        entries = fs.FileSelector(posixpath.join(stage.path, _METADATA), allow_not_found=True)
        yield from (one.path for one in system.get_file_info(entries) if one.base_name.isdecimal())


def _replace(system: fs.FileSystem, path: str, text: str) -> None:
    """Replace a file by a rename, and remove the checksum that Hadoop keeps beside a local file."""
    temporary = f"{path}.relocated"
    with system.open_output_stream(temporary) as file:
        file.write(text.encode())
    checksum = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.crc")
    if system.get_file_info(checksum).type != fs.FileType.NotFound:
        system.delete_file(checksum)
    system.move(temporary, path)


def _with_paths(text: str, place: str) -> str:
    """The file's text with paths below another directory; its first line is a version."""
    version, _, content = text.partition("\n")
    document = json.loads(content)
    for store in document["stateStoreInfo"]:
        store[_SCHEMAS] = [f"{place}/state/{path.split('/state/')[-1]}" for path in store.get(_SCHEMAS, [])]
    return f"{version}\n{json.dumps(document, separators=(',', ':'))}"


def _schema_paths(document: dict[str, Any]) -> Sequence[str]:
    return [path for store in document["stateStoreInfo"] for path in store.get(_SCHEMAS, [])]


def _qualified(place: str) -> str:
    """A path as Spark writes it: with a scheme."""
    local = _local_path(place)
    return place.rstrip("/") if local is None else f"file:{local}"


def is_same_place(stored: str, given: str) -> bool:
    """Whether a path in the checkpoint names the given directory, which may have no scheme or another one."""
    mine, its = urlsplit(given), urlsplit(stored)
    if its.scheme == "file":
        return os.path.realpath(mine.path) == os.path.realpath(its.path)
    if (
        not mine.scheme
    ):  # in the session's default file system; a relative path starts at the user's directory there
        path = mine.path.rstrip("/")
        return its.path == path if path.startswith("/") else its.path.endswith(f"/{path}")
    return (mine.netloc, mine.path.strip("/")) == (its.netloc, its.path.strip("/"))
