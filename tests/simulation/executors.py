"""Executors: processes with a cache, and what can happen to its files."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tablestream.state.cache import RunCache
from tests.simulation.setup import Setup
from tests.simulation.tuning import Sizes
from tests.simulation.world import Kind

#: What happens to the files of a cache.
CACHE_KINDS = (
    Kind.CACHE_LOST,
    Kind.CACHE_TRUNCATED,
    Kind.CACHE_FLIPPED,
    Kind.CACHE_SWAPPED,
    Kind.CACHE_DIRECTORY_LOST,
)


@dataclass
class Executor:
    """A process that runs attempts, one after the other."""

    number: int
    directory: Path
    sizes: Sizes
    cache: RunCache = field(init=False)

    def __post_init__(self) -> None:
        """Start the process."""
        self.restart()

    def restart(self) -> None:
        """Start another process on the same directory."""
        self.cache = RunCache(self.directory, max_bytes=self.sizes.cache_bytes)


def make_executors(setup: Setup, directory: Path, sizes: Sizes) -> list[Executor]:
    """Start the executors of a query; they find the caches of earlier ones."""
    if not sizes.has_disk:  # a file stands where the directory should be
        (directory / "none").write_bytes(b"")
        return [Executor(number, directory / "none", sizes) for number in range(setup.executors)]
    names = ["cache" if setup.shares_directory else f"cache{number}" for number in range(setup.executors)]
    return [Executor(number, directory / name, sizes) for number, name in enumerate(names)]


def damage_cache(kind: Kind, directory: Path, rng: random.Random) -> str | None:
    """Damage a file of a cache; return what happened, or None if there is no file.

    A damaged file takes the place of the good one by rename: a file that another attempt has mapped stays as it is.
    """
    if not directory.is_dir():
        return None
    files = sorted(directory.glob("*.chunk"))
    if not files:
        return None
    if kind is Kind.CACHE_DIRECTORY_LOST:
        shutil.rmtree(directory)
        return f"{len(files)} files"
    file = rng.choice(files)
    if kind is Kind.CACHE_LOST:
        file.unlink()
        return "1 file"
    others = [other for other in files if other != file]
    if kind is Kind.CACHE_SWAPPED and not others:
        return None
    data = _damaged(kind, file.read_bytes(), rng.choice(others or [file]).read_bytes(), rng)
    temporary = directory / "damaged"
    temporary.touch(mode=0o600)  # a file that others can read would not be looked at
    temporary.write_bytes(data)
    temporary.replace(file)
    return f"{len(data)} bytes"


def _damaged(kind: Kind, data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes that stand in a damaged file."""
    if kind is Kind.CACHE_TRUNCATED:
        return data[: rng.randrange(len(data))]
    if kind is Kind.CACHE_FLIPPED:
        return flipped(data, rng)
    return other


def flipped(data: bytes, rng: random.Random) -> bytes:
    """Flip one bit."""
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
