"""The faults that a soak suffers: executors, the driver and the broker are killed, and files of the cache deleted."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.processes import below, executors, kill_one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.broker.kafka_broker import KafkaBroker

EXECUTOR, CACHE, DRIVER, BROKER = (
    "an executor is killed",
    "cache deleted",
    "the driver is killed",
    "the broker is killed",
)
#: Of twenty faults so many are of a kind: a driver and a broker take longer to come back.
SHARES = {EXECUTOR: 10, CACHE: 6, DRIVER: 2, BROKER: 2}
_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_FILES_SHARE = 0.5


class Fault(NamedTuple):
    """What was done, and when: seconds since the start."""

    at_s: float
    kind: str


class Faults(threading.Thread):
    """Deals out a fault every so many seconds.

    Parameters
    ----------
    every_s
        Seconds between two of them.
    start_s
        When the soak started, in seconds since 1970.
    kinds
        For each kind what does it; it returns whether there was something to harm.
    """

    def __init__(
        self, every_s: float, start_s: float, kinds: Mapping[str, Callable[[random.Random], bool]]
    ) -> None:
        super().__init__(name="faults", daemon=True)
        self.done: list[Fault] = []
        self.error: BaseException | None = None
        self._every_s, self._start_s, self._kinds = every_s, start_s, dict(kinds)
        self._stopped, self._rng = threading.Event(), random.Random(7)

    def run(self) -> None:
        """Go on until it is stopped, or fails itself: then `error` says why."""
        try:
            self._deal()
        except Exception as error:  # noqa: BLE001 - whoever runs the soak looks at it
            self.error = error

    def _deal(self) -> None:
        kinds, shares = list(SHARES), list(SHARES.values())
        due_s = self._start_s + self._every_s
        while not self._stopped.wait(max(0.0, due_s - time.time())):
            due_s += self._every_s
            (kind,) = self._rng.choices(kinds, shares)
            if self._kinds[kind](self._rng):
                fault = Fault(time.time() - self._start_s, kind)
                self.done.append(fault)
                print(f"{fault.at_s:6.0f} s: {kind}", flush=True)

    def check(self) -> None:
        """End the soak if the faults ended: without them it would show nothing."""
        if self.error is not None:
            raise SystemExit(f"There are no more faults: {self.error}") from self.error

    def stop(self) -> None:
        """Do no more harm."""
        self._stopped.set()
        if self.is_alive():
            self.join()

    def __str__(self) -> str:
        """How many of each kind."""
        counts = Counter(fault.kind for fault in self.done)
        return f"{len(self.done)} faults: " + ", ".join(f"{counts[kind]} times {kind}" for kind in SHARES)


def kinds(broker: KafkaBroker, cache: Path) -> dict[str, Callable[[random.Random], bool]]:
    """What does each kind of fault to the processes below this one, a broker and a cache."""
    return {
        EXECUTOR: lambda rng: kill_one(rng, executors(os.getpid())),
        CACHE: lambda rng: _delete_some(cache, rng),
        DRIVER: lambda rng: kill_one(rng, _drivers()),
        BROKER: lambda _: _kill_and_start(broker),
    }


def _drivers() -> list[int]:
    return [pid for pid, command in below(os.getpid()).items() if _DRIVER in command]


def _delete_some(cache: Path, rng: random.Random) -> bool:
    """Delete half of the files of a cache, any of them."""
    deleted = 0
    for directory, _, names in os.walk(cache):
        for name in names:
            if rng.random() < _FILES_SHARE:
                with suppress(FileNotFoundError):
                    (Path(directory) / name).unlink()
                    deleted += 1
    return deleted > 0


def _kill_and_start(broker: KafkaBroker) -> bool:
    broker.kill()
    broker.start()
    return True
