"""The cache on disk: whatever happens to it, the rows are right, and nobody else can read them."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablestream.state import cache as caching
from tablestream.state.cache import MemoryCache, NoCache, RunCache
from tablestream.state.run import checksum
from tests.state.tables import frame

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    import polars as pl

ROWS = frame({(f"k{n}", 0): n for n in range(200)})
NAME = checksum(b"some chunk")


def never() -> pl.DataFrame:
    raise AssertionError("the chunk was in the cache")


def name(number: int) -> str:
    return checksum(str(number).encode())


def file_of(directory: Path) -> Path:
    (file,) = directory.glob("*.chunk")
    return file


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)


def test_what_was_put_is_opened_and_mapped(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    cache.put(NAME, ROWS)
    assert cache.open(NAME, never).equals(ROWS)
    assert file_of(tmp_path).name in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert cache.rebuilds == 0


def test_another_process_finds_it(tmp_path: Path) -> None:
    RunCache(tmp_path).put(NAME, ROWS)
    code = (
        "import sys; from tablestream.state.cache import RunCache\n"
        "print(RunCache(sys.argv[1]).open(sys.argv[2], lambda: 1 / 0).height)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path, NAME], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["200"]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        RunCache(tmp_path / "a" / "cache").put(NAME, ROWS)
    finally:
        os.umask(old)
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o777 == 0o700
    assert file_of(tmp_path / "a" / "cache").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_others_could_write_to_is_closed_and_not_trusted(tmp_path: Path) -> None:
    RunCache(tmp_path).put(NAME, ROWS)
    tmp_path.chmod(0o777)
    cache = RunCache(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    cache.open(NAME, lambda: ROWS)
    assert cache.rebuilds == 1


def test_what_else_is_in_the_directory_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "other.txt").write_text("x" * 100_000)
    RunCache(tmp_path, max_bytes=50_000).put(NAME, ROWS)
    for mode in (0o777, 0o700):
        tmp_path.chmod(mode)
        RunCache(tmp_path, max_bytes=50_000).put(NAME, ROWS)
        assert {one.name for one in tmp_path.iterdir()} == {"below", "other.txt", file_of(tmp_path).name}


def test_a_directory_that_was_made_anew_is_not_the_one_that_was_looked_at(tmp_path: Path) -> None:
    """Another user may make it, once it is deleted, and put chunks with right checksums into it."""
    place, forged = tmp_path / "cache", frame({("forged", 0): 1})
    cache = RunCache(place)
    cache.put(NAME, ROWS)
    shutil.rmtree(place)
    RunCache(tmp_path / "theirs").put(NAME, forged)
    (tmp_path / "theirs").rename(place)
    place.chmod(0o777)
    for rebuilt in (1, 2):
        assert cache.open(NAME, lambda: ROWS).equals(ROWS)
        assert cache.rebuilds == rebuilt
        cache.discard(NAME)
    assert place.stat().st_mode & 0o777 == 0o700
    cache.put(NAME, ROWS)
    assert RunCache(place).open(NAME, never).equals(ROWS)


@pytest.mark.parametrize("opened", [False, True], ids=["new", "mapped"])
def test_a_file_that_others_could_write_to_is_not_read(tmp_path: Path, *, opened: bool) -> None:
    cache = RunCache(tmp_path)
    cache.put(NAME, ROWS)
    if opened:
        cache.open(NAME, never)
    file_of(tmp_path).chmod(0o620)
    assert cache.open(NAME, lambda: ROWS).equals(ROWS)
    assert cache.rebuilds == 1
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "file", "foreign"])
def test_a_directory_that_is_not_ours_is_not_used(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, place = tmp_path / "target", tmp_path / "cache"
    target.mkdir()
    if kind == "link":
        place.symlink_to(target)
    elif kind == "file":
        place.write_text("mine")
    else:
        place.mkdir(mode=0o700)
        monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    cache = RunCache(place)
    cache.put(NAME, ROWS)
    assert cache.open(NAME, never).equals(ROWS)
    assert list(target.iterdir()) == []
    assert not place.is_dir() or list(place.iterdir()) == []
    assert "Chunks stay in memory" in caplog.text


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache")
    cache.put(NAME, ROWS)
    file = file_of(tmp_path / "cache")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache.open(NAME, lambda: ROWS).equals(ROWS)
    assert cache.rebuilds == 1


DAMAGE: dict[str, Callable[[Path], object]] = {
    "delete": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut in the header": lambda file: os.truncate(file, 20),
    "cut after the header": lambda file: os.truncate(file, 64),
    "cut in the middle": lambda file: os.truncate(file, file.stat().st_size // 2),
    "cut by a byte": lambda file: os.truncate(file, file.stat().st_size - 1),
    "a byte more": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "flip in the magic": lambda file: flip(file, 0),
    "flip in the name": lambda file: flip(file, 10),
    "flip in the checksum": lambda file: flip(file, 25),
    "flip in the padding": lambda file: flip(file, 60),
    "flip in the schema": lambda file: flip(file, 120),
    "flip in the rows": lambda file: flip(file, file.stat().st_size // 2),
    "flip in the footer": lambda file: flip(file, file.stat().st_size - 20),
    "delete the directory": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("again", [False, True], ids=["this process", "a new process"])
@pytest.mark.parametrize("opened", [False, True], ids=["not mapped", "mapped"])
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_seen_and_repaired(tmp_path: Path, how: str, opened: bool, again: bool) -> None:
    directory = tmp_path / "cache"
    cache = RunCache(directory)
    cache.put(NAME, ROWS)
    if opened:
        cache.open(NAME, never)
    DAMAGE[how](file_of(directory))
    if again:
        cache = RunCache(directory)
    assert cache.open(NAME, lambda: ROWS).equals(ROWS)
    assert cache.rebuilds == 1
    cache.put(NAME, ROWS)
    assert cache.open(NAME, never).equals(ROWS)
    assert file_of(directory).exists()


def test_damage_that_keeps_the_times_is_seen(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    cache.put(NAME, ROWS)
    cache.open(NAME, never)
    file = file_of(tmp_path)
    status = file.stat()
    flip(file, status.st_size // 2)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.open(NAME, lambda: ROWS).equals(ROWS)
    assert cache.rebuilds == 1


def test_a_file_under_another_name_is_not_taken_for_it(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    cache.put(NAME, ROWS)
    file_of(tmp_path).rename(tmp_path / f"{name(1)}.chunk")
    assert cache.open(name(1), lambda: ROWS[:3]).height == 3


def test_a_file_is_checked_once_and_then_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []
    check = caching._check

    def counted(mapped: mmap.mmap, checked: str) -> None:
        checks.append(checked)
        check(mapped, checked)

    monkeypatch.setattr(caching, "_check", counted)
    RunCache(tmp_path).put(NAME, ROWS)
    assert checks == []
    cache = RunCache(tmp_path)
    first = cache.open(NAME, never)
    assert cache.open(NAME, never) is first
    assert checks == [NAME]


def test_a_file_in_use_is_touched_and_checked_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = RunCache(tmp_path)
    cache.put(NAME, ROWS)
    cache.open(NAME, never)
    file = file_of(tmp_path)
    before = file.stat()
    start_s = time.monotonic()
    monkeypatch.setattr(time, "time_ns", lambda: before.st_atime_ns + 10**12)
    for later_s, touched in ((50, False), (61, True), (90, True)):
        monkeypatch.setattr(time, "monotonic", lambda later_s=later_s: start_s + later_s)
        cache.open(NAME, never)
        assert file.stat().st_atime_ns == before.st_atime_ns + 10**12 * touched
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert cache.rebuilds == 0


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["open", "replace"])
def test_a_disk_that_is_full_or_takes_nothing_means_memory_and_is_told_once(
    tmp_path: Path, where: str, reason: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(reason, os.strerror(reason))

    cache = RunCache(tmp_path)
    with monkeypatch.context() as patching:
        patching.setattr(os, where, refuse)
        cache.put(NAME, ROWS)
        assert cache.open(NAME, never).equals(ROWS)
        assert cache.open(name(1), lambda: ROWS).equals(ROWS)
        assert cache.open(name(1), never).equals(ROWS)
        assert list(tmp_path.iterdir()) == []  # no half-written file stays
        (told,) = caplog.messages
        assert os.strerror(reason) in told
        cache.discard(NAME)
        with pytest.raises(AssertionError):
            cache.open(NAME, never)
    cache.put(NAME, ROWS)  # there is room again
    assert file_of(tmp_path).stem == NAME


def test_what_the_memory_cannot_keep_either_comes_from_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = RunCache(tmp_path, memory_bytes=10)
    monkeypatch.setattr(os, "replace", full)
    for _ in range(3):
        assert cache.open(NAME, lambda: ROWS).equals(ROWS)
    assert cache.rebuilds == 3


def test_a_really_full_disk_means_memory(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from tablestream.state.cache import RunCache; from tests.state import tables\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "rows = tables.frame({(f'k{n}', 0): n for n in range(200)}); cache = RunCache(sys.argv[1])\n"
        "cache.put('ab' * 16, rows); assert cache.open('ab' * 16, lambda: 1 / 0).equals(rows)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []


def test_the_directory_is_bounded_and_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    cache.put(name(0), ROWS)
    size = file_of(tmp_path).stat().st_size
    cache = RunCache(tmp_path, max_bytes=10 * size)
    for number in range(1, 10):
        cache.put(name(number), ROWS)
        os.utime(tmp_path / f"{name(number)}.chunk", ns=(number, number))
    os.utime(tmp_path / f"{name(0)}.chunk", ns=(100, 100))  # the oldest was used last
    cache.put(name(10), ROWS)
    left = {file.stem for file in tmp_path.iterdir()}
    assert left == {name(number) for number in (0, 4, 5, 6, 7, 8, 9, 10)}
    for number in range(11, 60):
        cache.put(name(number), ROWS)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10 * size


def test_the_directory_is_not_scanned_at_each_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RunCache(tmp_path)
    monkeypatch.setattr(os, "scandir", None)  # not called
    for number in range(20):
        cache.put(name(number), ROWS)
        cache.open(name(number), never)


def test_two_processes_overshoot_by_little(tmp_path: Path) -> None:
    one = RunCache(tmp_path)
    one.put(name(0), ROWS)
    size = file_of(tmp_path).stat().st_size
    caches = [RunCache(tmp_path, max_bytes=16 * size) for _ in range(2)]
    for number in range(1, 80):
        caches[number % 2].put(name(number), ROWS)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= (16 + 2 * 2 + 1) * size


def test_a_chunk_larger_than_the_cache_stays_in_memory(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, max_bytes=1000)
    cache.put(NAME, ROWS)
    assert cache.open(NAME, never).equals(ROWS)
    assert list(tmp_path.iterdir()) == []


def test_an_evicted_file_can_still_be_read_by_who_has_it_mapped(tmp_path: Path) -> None:
    mine, other = RunCache(tmp_path), RunCache(tmp_path)
    mine.put(NAME, ROWS)
    held = mine.open(NAME, never)
    other.discard(NAME)
    assert held.equals(ROWS)
    assert mine.open(NAME, lambda: ROWS).equals(ROWS)
    assert mine.rebuilds == 1


def test_abandoned_temporary_files_go(tmp_path: Path) -> None:
    fresh, old = tmp_path / ".writing-fresh", tmp_path / ".writing-old"
    for file in (fresh, old):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    RunCache(tmp_path)
    tmp_path.chmod(0o700)
    assert (fresh.exists(), old.exists()) == (True, False)


def test_mapped_files_and_descriptors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_MAPPED_FILES", 8)
    monkeypatch.setattr(caching, "_REMEMBERED_CHECKS", 12)
    cache = RunCache(tmp_path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(60):
        cache.put(name(number), ROWS)
        cache.open(name(number), never)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 9  # noqa: PTH208
    assert (len(cache._mapped), len(cache._checked)) == (8, 12)


WRITER = """
import random, sys
from tablestream.state.cache import RunCache
from tablestream.state.run import checksum
from tests.state import tables

rng = random.Random(int(sys.argv[2]))
cache = RunCache(sys.argv[1], max_bytes=60_000)
for _ in range(150):
    number = rng.randrange(12)
    rows = tables.frame({(f"k{n}", 0): number for n in range(40)})
    checked = checksum(str(number).encode())
    act = rng.randrange(4)
    if act == 0:
        cache.discard(checked)
    elif act == 1:
        cache.put(checked, rows)
    else:
        assert cache.open(checked, lambda: rows).equals(rows)
"""


def test_processes_may_share_a_directory(tmp_path: Path) -> None:
    # They put, open, evict and discard the same dozen chunks; a wrong row or an unexpected error ends one.
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    started = [subprocess.Popen([*command, str(seed)]) for seed in range(2)]
    assert [process.wait() for process in started] == [0, 0]
    assert not list(tmp_path.glob(".writing-*"))


def test_the_memory_cache_is_bounded_by_bytes() -> None:
    size = int(ROWS.estimated_size())
    cache = MemoryCache(3 * size)
    for number in range(3):
        cache.put(name(number), ROWS)
    cache.open(name(0), never)
    cache.put(name(3), ROWS)
    assert [cache.get(name(number)) is not None for number in range(4)] == [True, False, True, True]
    cache.put(name(3), ROWS)  # again: counted once
    assert cache.get(name(0)) is not None
    cache.discard(name(0))
    cache.put(name(4), ROWS)
    assert [cache.get(name(number)) is not None for number in range(5)] == [False, False, True, True, True]


def test_no_cache_keeps_nothing() -> None:
    cache = NoCache()
    cache.put(NAME, ROWS)
    with pytest.raises(AssertionError):
        cache.open(NAME, never)
    cache.discard(NAME)
