"""The files of a checkpoint as Arrow's file systems have them: read, copied, replaced and removed without Spark.

Spark writes directories of files, and a checkpoint needs files of certain names.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pyarrow import fs

from tablestream.base.calling import user_line
from tablestream.connectors.place import Place
from tablestream.connectors.spark_place import full_path
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's names of a file system that Arrow has under another name.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class CheckpointFiles:
    """The files below a directory."""

    system: fs.FileSystem
    root: str
    """Arrow's file system, and the directory in it."""

    @classmethod
    def of(cls, place: Place) -> Self:
        """Open a directory, which need not exist; refuse one in a file system that Arrow does not have."""
        if place.local_path is not None:
            return cls(fs.LocalFileSystem(), place.local_path)
        try:
            system, root = fs.FileSystem.from_uri(
                str(replace(place, scheme=_SCHEMES.get(place.scheme, place.scheme)))
            )
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"{place} cannot be opened: {error}",
                hint="Arrow opens local paths, s3://, gs:// and hdfs://. Copy the checkpoint to one of these, and"
                " give its path there.",
                where=user_line(),
            ) from error
        return cls(system, str(root))

    @classmethod
    def seen_by(cls, spark: SparkSession, path: str) -> Self:
        """Open a directory of which only Spark knows the file system."""
        return cls.of(Place.of(full_path(spark, path) or path))

    def path(self, name: str) -> str:
        """The path of a file."""
        return posixpath.join(self.root, name)

    def names(self, directory: str) -> list[str]:
        """What a directory holds, without what begins with a dot; nothing if it does not exist."""
        there = fs.FileSelector(self.path(directory), allow_not_found=True)
        names = (one.base_name for one in self.system.get_file_info(there))
        return sorted(name for name in names if not name.startswith("."))

    def numbers(self, directory: str) -> list[int]:
        """The files of a directory that are called by a number."""
        return sorted(int(name) for name in self.names(directory) if name.isdecimal())

    def read(self, name: str) -> str:
        """The text of a file."""
        with self.system.open_input_file(self.path(name)) as file:
            return str(file.read().decode())

    def replace(self, name: str, text: str) -> None:
        """Replace a file by a rename, and remove the checksum that Hadoop keeps beside a local file."""
        folder, own = posixpath.split(self.path(name))
        temporary, checksum = posixpath.join(folder, f".{own}.written"), posixpath.join(folder, f".{own}.crc")
        self.system.create_dir(folder)
        with self.system.open_output_stream(temporary) as file:
            file.write(text.encode())
        if self.system.get_file_info(checksum).type != fs.FileType.NotFound:
            self.system.delete_file(checksum)
        self.system.move(temporary, self.path(name))

    def copy(self, name: str, other: CheckpointFiles, its: str) -> None:
        """Copy a file or a directory to another place; nothing if it does not exist."""
        found, target = self.system.get_file_info(self.path(name)).type, other.path(its)
        if found != fs.FileType.NotFound:
            is_file = found == fs.FileType.File
            other.system.create_dir(posixpath.dirname(target) if is_file else target)
            fs.copy_files(self.path(name), target, self.system, other.system)

    def remove(self, name: str) -> None:
        """Remove a directory with all that is in it; nothing if it does not exist."""
        found = self.system.get_file_info(self.path(name)).type
        if found == fs.FileType.Directory:
            self.system.delete_dir(self.path(name))
        elif found == fs.FileType.File:
            self.system.delete_file(self.path(name))
