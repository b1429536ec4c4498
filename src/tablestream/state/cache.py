"""Decoded chunks on local disk, memory-mapped: only a cache, and safe to damage or delete at any moment.

A file is named by the checksum that the manifest has for the chunk, so it cannot be stale. Its header repeats the name
and has a CRC-32 of the rest, an uncompressed Arrow IPC file. The whole file is checked when this process first maps
it, and again whenever the file's identity (device, inode, size, times of change) differs from the one that was
checked. If a file is wrong, missing, unreadable or not writable, the chunk is decoded from the state of record again.

Nobody else's files are trusted: a checksum tells damage, not malice. The directory is opened once, as one that belongs
to this user alone, and files are opened within what was opened, whatever its path names later. A file that another
user owns or could write to is not read.

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
import secrets
import stat
import time
import weakref
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
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: What other users may do to a file.
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
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
        return rebuild()

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        """See `ChunkCache`."""

    def discard(self, checksum: str) -> None:
        """See `ChunkCache`."""


class MemoryCache:
    """Keeps the most recently used chunks in memory.

    `max_bytes`: the limit on the estimated size of all chunks that it keeps.
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
        frame = self.get(checksum)
        if frame is None:
            frame = rebuild()
            self.put(checksum, frame)
        return frame

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        self.discard(checksum)
        self._frames[checksum] = frame, int(frame.estimated_size())
        self._size_bytes += self._frames[checksum][1]
        while self._size_bytes > self._max_bytes:
            self.discard(next(iter(self._frames)))

    def discard(self, checksum: str) -> None:
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

    `directory`: created if it is missing, readable by its owner only. If it cannot be created, or belongs to another
    user, chunks are kept in memory. `max_bytes`: the size of the directory. Each process that shares it may overshoot
    by an eighth. `memory_bytes`: how much is kept in memory if the disk is full or unusable. This is logged once, and
    every chunk is offered to the disk again. `rebuilds`: how often a chunk had to be decoded from the state of record.
    """

    def __init__(
        self, directory: str | Path, max_bytes: int = 4 * 1024**3, memory_bytes: int = 64 * 1024**2
    ) -> None:
        self._directory = Path(directory)
        self._opened: int | None = None  # the directory, if it can be used
        self._close: Callable[[], object] = lambda: None
        self._max_bytes = max_bytes
        self._memory = MemoryCache(memory_bytes)
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()
        self._checked: OrderedDict[str, _Identity] = OrderedDict()
        self._written_bytes = 0  # by this process, since the directory was last scanned
        self._used_bytes = 0  # at that scan
        self.rebuilds = 0
        self._logged = False  # whether the disk's refusal was logged
        self._prepare()
        self._scan()

    def open(self, checksum: str, rebuild: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        frame = self._find(checksum)
        if frame is None:
            frame = self._memory.get(checksum)
        if frame is None:
            self.rebuilds += 1
            frame = rebuild()
            self.put(checksum, frame)
        return frame

    def put(self, checksum: str, frame: pl.DataFrame) -> None:
        if not self._write(checksum, frame):
            self._memory.put(checksum, frame)

    def discard(self, checksum: str) -> None:
        self._memory.discard(checksum)
        self._forget(checksum)
        if self._opened is not None:
            with contextlib.suppress(OSError):
                os.unlink(checksum + _SUFFIX, dir_fd=self._opened)

    def _forget(self, checksum: str) -> None:
        self._mapped.pop(checksum, None)
        self._checked.pop(checksum, None)

    # Reading

    def _find(self, checksum: str) -> pl.DataFrame | None:
        """Return the chunk from its file, if there is one and it is intact."""
        if self._opened is None:
            return None
        name = checksum + _SUFFIX
        try:
            held = self._mapped.get(checksum)
            if held is not None and time.monotonic() >= held.touch_at_s:
                self._forget(checksum)
            status = os.stat(name, dir_fd=self._opened, follow_symlinks=False)
            unchanged = _Identity.of(status) == self._checked.get(checksum)
            if not unchanged or checksum not in self._mapped:
                self._map(checksum, name)
        except OSError:
            self._forget(checksum)
            return None
        except ValueError as problem:  # pyarrow's format errors are ValueErrors, too
            _LOG.warning("Cached chunk %s is damaged and will be rebuilt: %s", name, problem)
            self.discard(checksum)
            return None
        self._mapped.move_to_end(checksum)
        return self._mapped[checksum].frame

    def _map(self, checksum: str, name: str) -> None:
        """Map a file, and check it in full unless it is, unchanged, the one that this process wrote.

        A file in use is checked again, and touched, once a minute. Its access time orders eviction, whatever the mount
        options. The touch comes before the check, so that the check covers every change.
        """
        self._mapped.pop(checksum, None)
        written = self._checked.pop(checksum, None)
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._opened)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid() or status.st_mode & _OF_OTHERS:
                raise ValueError("it is not a file of this user alone")
            identity = _Identity.of(status)
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
        if self._opened is None:
            return False
        try:
            return self._write_file(checksum, frame, self._opened)
        except FileNotFoundError:  # the directory itself was deleted
            self._prepare()
        except OSError as problem:
            if not self._logged:
                _LOG.warning(
                    "Chunks stay in memory, which may be slower, because %s cannot be written: %s",
                    self._directory,
                    problem,
                )
            self._logged = True
        return False

    def _write_file(self, checksum: str, frame: pl.DataFrame, directory: int) -> bool:
        body = _encode(frame)
        size_bytes = _HEADER_SIZE_BYTES + len(body)
        if size_bytes > self._max_bytes:
            return False
        name, temporary = checksum + _SUFFIX, _TEMPORARY + secrets.token_hex(8)
        descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_header(checksum, zlib.crc32(body)))
                file.write(body)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        self._forget(checksum)
        self._checked[checksum] = _Identity.of(os.stat(name, dir_fd=directory, follow_symlinks=False))
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

    def _prepare(self) -> None:
        """Create the directory, or make sure that it belongs to this user alone, and open it."""
        self._close()
        self._opened = None
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._close = weakref.finalize(self, os.close, opened)
            status = os.fstat(opened)
            if status.st_uid != os.geteuid():
                raise PermissionError("it is a directory of another user")
            if stat.S_IMODE(status.st_mode) != 0o700:
                os.fchmod(opened, 0o700)
                for name in _own_files(opened):  # others could have written them
                    os.unlink(name, dir_fd=opened)
        except OSError as refusal:
            _LOG.warning("Chunks stay in memory, because %s cannot be used: %s", self._directory, refusal)
            return
        self._opened = opened

    def _scan(self) -> None:
        """Sum up the directory's size, and evict down to four fifths of the limit if it is exceeded."""
        if self._opened is None:
            return
        files = []
        with contextlib.suppress(OSError):
            for name in _own_files(self._opened):
                with contextlib.suppress(OSError):
                    files.append((os.stat(name, dir_fd=self._opened, follow_symlinks=False), name))
        abandoned_s = time.time() - _ABANDONED_AFTER_S
        total_bytes = sum(status.st_size for status, _ in files)
        over = total_bytes > self._max_bytes
        for status, name in sorted(files, key=lambda file: file[0].st_atime_ns):
            temporary = name.startswith(_TEMPORARY)
            evicted = over and not temporary and total_bytes > self._max_bytes * 4 // 5
            if evicted or (temporary and status.st_mtime < abandoned_s):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._opened)
                total_bytes -= status.st_size
        self._used_bytes, self._written_bytes = total_bytes, 0


def _own_files(directory: int) -> list[str]:
    """The names of the cache's files in a directory, which may hold others."""
    return [one for one in os.listdir(directory) if one.endswith(_SUFFIX) or one.startswith(_TEMPORARY)]


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
