"""What happens to the cache while queries run does not show, nor that two share it, nor that a checkpoint is moved."""

from __future__ import annotations

import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tablestream import relocate_checkpoint
from tests.faults.comparing import changes
from tests.faults.victim import reveal, work_off, write_logs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MICRO_BATCHES = 6


class Vandal(threading.Thread):
    """Deletes, cuts short and changes files of a cache, until it is told to stop."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="vandal", daemon=True)
        self._directory, self._stopped, self._rng = directory, threading.Event(), random.Random(5)
        self.damaged = 0

    def run(self) -> None:
        """Damage a file every few milliseconds."""
        while not self._stopped.wait(0.02):
            with suppress(OSError):  # others add and remove files and directories meanwhile
                files = [one for one in self._directory.rglob("*") if one.is_file()]
                if files:
                    self._damage(self._rng.choice(files))
                    self.damaged += 1

    def _damage(self, file: Path) -> None:
        how = self._rng.choice(("delete", "cut", "change"))
        if how == "delete":
            file.unlink()
            return
        # Who has the old file mapped goes on with that: what is changed is another one of its name.
        data = bytearray(file.read_bytes())
        place = self._rng.randrange(max(1, len(data)))
        if how == "cut":
            del data[place:]
        elif data:
            data[place] ^= 1 << self._rng.randrange(8)
        other = file.with_name(f"{file.name}.damaged")
        other.write_bytes(data)
        other.chmod(0o600)
        other.replace(file)

    def stop(self) -> None:
        """Let the rest be."""
        self._stopped.set()
        self.join()


@pytest.mark.exhaustive  # without Spark, `tests/simulation` damages the cache in each of these ways
def test_damage_to_the_cache_two_queries_in_it_and_a_moved_checkpoint_do_not_show(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, cache = tmp_path / "all", tmp_path / "cache"
    write_logs(everything, MICRO_BATCHES)
    work_off(spark, everything)
    monkeypatch.setenv("TABLESTREAM_CACHE_DIR", str(cache))
    one, other = tmp_path / "one", tmp_path / "other"
    vandal = Vandal(cache)
    vandal.start()
    try:
        for count, checkpoint in ((MICRO_BATCHES // 2, "checkpoint"), (MICRO_BATCHES, "moved")):
            for directory in (one, other):
                reveal(directory, everything, count)
            with ThreadPoolExecutor() as pool:
                waiting = [
                    pool.submit(work_off, spark, one),
                    pool.submit(work_off, spark, other, checkpoint=checkpoint),
                ]
                for running in waiting:
                    running.result()
            if checkpoint == "checkpoint":
                shutil.move(other / "checkpoint", other / "moved")
                assert relocate_checkpoint(other / "moved") > 0
                shutil.rmtree(cache, ignore_errors=True)
    finally:
        vandal.stop()
    assert vandal.damaged > 20
    for table in ("sold", "amounts"):
        assert changes(one, table) == changes(other, table) == changes(everything, table) != []
