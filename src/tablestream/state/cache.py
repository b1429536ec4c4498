"""Decoded chunks on local disk, memory-mapped: only a cache, and safe to damage or delete at any moment.

A file is named by the checksum that the manifest has for the chunk, so it cannot be stale. Its header repeats the name
and has a CRC-32 of the rest, an uncompressed Arrow IPC file. The whole file is checked when this process first maps
it, and again whenever the file's identity (device, inode, size, times of change) differs from the one that was
checked. If a file is wrong, missing, unreadable or not writable, the chunk is decoded from the state of record again.

Several processes may share a directory. Files appear by rename, complete, and are never changed. Removing a file that
another process has mapped does not disturb that process. One instance belongs to one thread. Only one fault cannot be
survived: a file that is truncated during the milliseconds in which rows are gathered from it. The kernel then ends
the process, and Spark runs the task again.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import stat
import tempfile
import time
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa

from tablestream.state.positions import frame_of

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_MAGIC = b"TSCHUNK1"
_HEADER_SIZE_BYTES = 64  # aligns the columns after it
_SUFFIX = ".chunk"
_TEMPORARY = ".writing-"
_MAPPED_FILES = 128  # each one holds a file descriptor
_REMEMBERED_CHECKS = 4096
_TOUCH_AFTER_S = 60.0
_ABANDONED_AFTER_S = 3600.0


class ChunkCache(Protocol):
    """Keeps decoded chunks by checksum, for as long as it likes."""

    def open(self, checksum: str, rebuild: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the chunk, from the cache or else from `rebuild`."""

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        """Offer a chunk that will be opened soon; its strings must be its own (`run.compact`)."""

    def discard(self, checksum: str) -> None:
        """Mark a chunk as no longer needed."""


class NoCache:
    """Keeps nothing: every chunk is decoded from the state of record each time."""

    def open(self, checksum: str, rebuild: Callable[[], pl.DataFrame]) -> pl.DataFrame:  # noqa: ARG002
        """See `ChunkCache`."""
        return rebuild()

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        """See `ChunkCache`."""

    def discard(self, checksum: str) -> None:
        """See `ChunkCache`."""


class MemoryCache:
    """Keeps the most recently used chunks in memory.

    Parameters
    ----------
    max_bytes
        The limit on the estimated size of all chunks that it keeps.
    """

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._frames: OrderedDict[str, tuple[pl.DataFrame, int]] = OrderedDict()
        self._size_bytes = 0

    def get(self, checksum: str) -> pl.DataFrame | None:
        """Return a chunk if it is kept."""
        if checksum not in self._frames:
            return None
        self._frames.move_to_end(checksum)
        return self._frames[checksum][0]

    def open(self, checksum: str, rebuild: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """See `ChunkCache`."""
        frame = self.get(checksum)
        if frame is None:
            frame = rebuild()
            self.put(checksum, frame)
        return frame

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        """See `ChunkCache`."""
        self.discard(checksum)
        self._frames[checksum] = frame, int(frame.estimated_size())
        self._size_bytes += self._frames[checksum][1]
        while self._size_bytes > self._max_bytes:
            self.discard(next(iter(self._frames)))

    def discard(self, checksum: str) -> None:
        """See `ChunkCache`."""
        _, size_bytes = self._frames.pop(checksum, (None, 0))
        self._size_bytes -= size_bytes


@dataclass(frozen=True)
class _Identity:
    """The attributes that change when a file is replaced or written to."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Identity:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass
class _Mapped:
    frame: pl.DataFrame
    touch_at_s: float


class RunCache:
    """Keeps decoded chunks in a directory, and evicts the least recently used first.

    Parameters
    ----------
    directory
        Created if it is missing, readable by its owner only. If it cannot be created, or belongs to another user,
        chunks are kept in memory.
    max_bytes
        The size of the directory. Each process that shares it may overshoot by an eighth.
    memory_bytes
        How much is kept in memory if the disk is full or unusable. This is logged once, and every chunk is offered
        to the disk again.

    Attributes
    ----------
    rebuilds : int
        How often a chunk had to be decoded from the state of record.
    """

    def __init__(
        self, directory: str | Path, max_bytes: int = 4 * 1024**3, memory_bytes: int = 64 * 1024**2
    ) -> None:
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._memory = MemoryCache(memory_bytes)
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()
        self._checked: OrderedDict[str, _Identity] = OrderedDict()
        self._written_bytes = 0  # by this process, since the directory was last scanned
        self._used_bytes = 0  # at that scan
        self.rebuilds = 0
        self._logged = False  # whether the disk's refusal was logged
        self._usable = self._prepare()
        if self._usable:
            self._scan()

    def open(self, checksum: str, rebuild: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """See `ChunkCache`."""
        frame = self._find(checksum)
        if frame is None:
            frame = self._memory.get(checksum)
        if frame is None:
            self.rebuilds += 1
            frame = rebuild()
            self.put(checksum, frame)
        return frame

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        """See `ChunkCache`."""
        if not self._write(checksum, frame):
            self._memory.put(checksum, frame)

    def discard(self, checksum: str) -> None:
        """See `ChunkCache`."""
        self._memory.discard(checksum)
        self._forget(checksum)
        with contextlib.suppress(OSError):
            self._path(checksum).unlink()

    def _path(self, checksum: str) -> Path:
        return self._directory / (checksum + _SUFFIX)

    def _forget(self, checksum: str) -> None:
        self._mapped.pop(checksum, None)
        self._checked.pop(checksum, None)

    # Reading

    def _find(self, checksum: str) -> pl.DataFrame | None:
        """Return the chunk from its file, if there is one and it is intact."""
        path = self._path(checksum)
        try:
            held = self._mapped.get(checksum)
            if held is not None and time.monotonic() >= held.touch_at_s:
                self._forget(checksum)
            unchanged = _Identity.of(path.stat()) == self._checked.get(checksum)
            if not unchanged or checksum not in self._mapped:
                self._map(checksum, path)
        except OSError:
            self._forget(checksum)
            return None
        except ValueError as problem:  # pyarrow's format errors are ValueErrors, too
            _LOG.warning("Cached chunk %s is damaged and will be rebuilt: %s", path.name, problem)
            self.discard(checksum)
            return None
        self._mapped.move_to_end(checksum)
        return self._mapped[checksum].frame

    def _map(self, checksum: str, path: Path) -> None:
        """Map a file, and check it in full unless it is, unchanged, the one that this process wrote.

        A file in use is checked again, and touched, once a minute. Its access time orders eviction, whatever the mount
        options. The touch comes before the check, so that the check covers every change.
        """
        self._mapped.pop(checksum, None)
        written = self._checked.pop(checksum, None)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            identity = _Identity.of(os.fstat(descriptor))
            if identity != written:
                os.utime(descriptor, ns=(time.time_ns(), identity.modified_ns))
                identity = _Identity.of(os.fstat(descriptor))
            mapped = mmap.mmap(descriptor, identity.size_bytes, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        if identity != written:
            _check(mapped, checksum)
        table = pa.ipc.open_file(pa.py_buffer(mapped).slice(_HEADER_SIZE_BYTES)).read_all()
        self._checked[checksum] = identity
        self._mapped[checksum] = _Mapped(frame_of(table), time.monotonic() + _TOUCH_AFTER_S)
        while len(self._mapped) > _MAPPED_FILES:
            self._mapped.popitem(last=False)

    # Writing

    def _write(self, checksum: str, frame: pl.DataFrame) -> bool:
        """Write a file, completely or not at all."""
        if not self._usable:
            return False
        try:
            return self._write_file(checksum, frame)
        except FileNotFoundError:  # the directory itself was deleted
            self._usable = self._prepare()
        except OSError as problem:
            if not self._logged:
                _LOG.warning(
                    "Chunks stay in memory, which may be slower, because %s cannot be written: %s",
                    self._directory,
                    problem,
                )
            self._logged = True
        return False

    def _write_file(self, checksum: str, frame: pl.DataFrame) -> bool:
        body = _encode(frame)
        size_bytes = _HEADER_SIZE_BYTES + len(body)
        if size_bytes > self._max_bytes:
            return False
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self._directory)  # with mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_header(checksum, zlib.crc32(body)))
                file.write(body)
            Path(temporary).replace(self._path(checksum))
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
        self._forget(checksum)
        self._checked[checksum] = _Identity.of(self._path(checksum).stat())
        while len(self._checked) > _REMEMBERED_CHECKS:
            self._checked.popitem(last=False)
        self._account(size_bytes)
        return True

    def _account(self, size_bytes: int) -> None:
        """Scan the directory only when this process has written enough to matter."""
        self._written_bytes += size_bytes
        full = self._used_bytes + self._written_bytes > self._max_bytes
        if full or self._written_bytes > self._max_bytes // 8:
            self._scan()

    # The directory

    def _prepare(self) -> bool:
        """Create the directory, or make sure that it belongs to this user alone."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._directory.lstat()
            problem = None if _is_own_directory(status) else "it is not a directory of this user"
            if problem is None and stat.S_IMODE(status.st_mode) != 0o700:
                self._directory.chmod(0o700)
                for path in self._directory.glob(f"*{_SUFFIX}"):  # others could have written them
                    path.unlink(missing_ok=True)
        except OSError as refusal:
            problem = str(refusal)
        if problem is not None:
            _LOG.warning("Chunks stay in memory, because %s cannot be used: %s", self._directory, problem)
        return problem is None

    def _scan(self) -> None:
        """Sum up the directory's size, and evict down to four fifths of the limit if it is exceeded."""
        files = []
        with contextlib.suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    files.append((entry.stat(follow_symlinks=False), entry.path))
        abandoned_s = time.time() - _ABANDONED_AFTER_S
        total_bytes = sum(status.st_size for status, _ in files)
        over = total_bytes > self._max_bytes
        for status, path in sorted(files, key=lambda file: file[0].st_atime_ns):
            temporary = Path(path).name.startswith(_TEMPORARY)
            evicted = over and not temporary and total_bytes > self._max_bytes * 4 // 5
            if evicted or (temporary and status.st_mtime < abandoned_s):
                with contextlib.suppress(OSError):
                    Path(path).unlink()
                total_bytes -= status.st_size
        self._used_bytes, self._written_bytes = total_bytes, 0


def _is_own_directory(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _check(mapped: mmap.mmap, checksum: str) -> None:
    """Raise ValueError unless a mapped file is, bit for bit, what was written under this name."""
    if mapped[:_HEADER_SIZE_BYTES] != _header(checksum, zlib.crc32(memoryview(mapped)[_HEADER_SIZE_BYTES:])):
        raise ValueError("its checksum is wrong")


def _header(checksum: str, crc: int) -> bytes:
    return (_MAGIC + bytes.fromhex(checksum) + crc.to_bytes(4, "little")).ljust(_HEADER_SIZE_BYTES, b"\0")


def _encode(frame: pl.DataFrame) -> memoryview:
    """Encode as an Arrow IPC file that is used in place: strings stay views, nothing is compressed."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
