"""A file of lines that a worker writes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


@dataclass
class LinesFile:
    """One file with a text on each line, which a task writes."""

    directory: Path
    """Where it is; made if it is not there."""
    name: str = field(default_factory=lambda: f"part-{uuid.uuid4()}.json")
    _file: BinaryIO | None = None

    def add(self, rows: pa.Table) -> None:
        """Write rows, which have the text in their only column."""
        self._open().writelines(f"{line}\n".encode() for line in rows.column(0).to_pylist())

    def end_keys(self) -> None:
        """Do nothing: every change is written."""

    def close(self) -> str:
        """End the file, and return its name."""
        self._open().close()
        return self.name

    def abandon(self) -> None:
        """End the file as it is."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _open(self) -> BinaryIO:
        if self._file is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._file = (self.directory / self.name).open("wb")
        return self._file
