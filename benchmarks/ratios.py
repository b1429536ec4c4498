"""The ratios that the benchmark is for, each with its target beside it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.memory import peaks, slowdown, slowdown_of_cores
from benchmarks.results import OBSERVATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.results import MicroBatch, Run


@dataclass(frozen=True)
class Ratio:
    """One figure against another, from the same run of the benchmark."""

    name: str
    figure: float
    target: float
    at_most: bool = False

    @property
    def reached(self) -> bool:
        """Whether the figure is on the right side of its target."""
        return self.figure <= self.target if self.at_most else self.figure >= self.target


def ratios_of(runs: dict[str, Run]) -> list[Ratio]:
    """Return the ratios for which both contestants ran without an error.

    Plain Python has a small workload, in which the start would count for most; so it is compared steady with
    steady, both without their first micro-batch. Batch SQL counts by its fastest run, whatever it is held to.
    """
    ratio = _Ratios({name: run for name, run in runs.items() if not run.error})
    steady = ("every", "steady_rate")
    ratio.add("every change / plain Python, steady", steady, ("plain-python", "steady_rate"), 50)
    ratio.add("every change / batch SQL, over all", ("every", "rate"), ("batch-sql", "rate"), 0.30)
    ratio.add("every change / batch SQL, steady", steady, ("batch-sql", "rate"), 0.40)
    ratio.add("final / every change", ("final", "rate"), ("every", "rate"), 1.3)
    ratio.add("many-to-many join / foreign-key join, steady", ("many-to-many", "steady_rate"), steady, 0.8)
    ratio.add("groups, every change / foreign-key join", ("groups", "rate"), ("every", "rate"), 1.0)
    ratio.add(
        "groups by Python functions / declared aggregates", ("groups-python", "rate"), ("groups", "rate"), 0.0
    )
    native = ("native-groups", "rate")
    ratio.add("groups, every change / Spark's own aggregation", ("groups", "rate"), native, 0.0)
    ratio.add("groups, final / Spark's own aggregation", ("groups-final", "rate"), native, 0.5)
    ratio.add(
        "star join / chain of four joins, seconds",
        ("star", "wall_s"),
        ("chain", "wall_s"),
        0.65,
        at_most=True,
    )
    ratio.add("as-of join of a stream / foreign-key join", ("as-of", "rate"), ("every", "rate"), 0.6)
    for skewed, even, name in (
        ("skew", "every", "half of the items on one customer / even"),
        ("skew-spread", "every", "the same with spread=4 / even"),
        ("hot-row", "hot-row-even", "all items on one customer, which changes / even"),
        ("hot-row-spread", "hot-row-even", "the same with spread=4 / even"),
    ):
        ratio.add(f"{name}, seconds", (skewed, "wall_s"), (even, "wall_s"), 1.3, at_most=True)
    for name in ("skew", "skew-spread", "hot-row", "hot-row-spread"):
        ratio.add_memory(f"largest worker in {name}, private MiB", name, 1024)
    small = ("every", "small_seconds"), ("empty", "small_seconds")
    ratio.add("small micro-batch / empty query, seconds", *small, 1.5, at_most=True)
    ratio.add_figure("first micro-batch - a later one, seconds", "every", _cold_seconds, 5)
    ratio.add_figure("restart, first small micro-batch - a later one, seconds", "every", _restart_seconds, 1)
    for target, name, least in (
        ("files", "into Parquet files", 0.8),
        ("delta-log", "into a Delta log", 0.8),
        ("delta-table", "into a Delta table", 0.6),
    ):
        ratio.add(f"{name} / into nothing, steady", (target, "steady_rate"), steady, least)
    table = ("delta-table", "steady_rate"), ("delta-table", "small_seconds")
    for hand, words in (("delta-merges", "MERGE"), ("delta-rs-by-hand", "delta-rs")):
        ratio.add(f"Delta table / {words} by hand, steady", table[0], (hand, "steady_rate"), 2.0)
        name = f"Delta table / {words} by hand, small micro-batch, seconds"
        ratio.add(name, table[1], (hand, "small_seconds"), 0.5, at_most=True)
    for other, words in (("delta-table-spark", "by Spark"), ("every", "into nothing")):
        name = f"Delta table / {words}, small micro-batch, seconds"
        ratio.add(name, table[1], (other, "small_seconds"), 2.0 if other == "every" else 0.5, at_most=True)
    for figure, words, least in (("rate", "changes/s", 3), ("output_rate", "outputs/s", 12)):
        for prefix, when in (("", ""), ("steady_", ", steady")):
            sides = ("kafka", f"{prefix}{figure}"), ("kafka-streams", f"{prefix}{figure}")
            ratio.add(f"every change, Kafka / Kafka Streams: {words}{when}", *sides, least)
    ratio.add(
        "into Delta, Debezium's topics / plain topics", ("debezium", "rate"), ("kafka-delta", "rate"), 0.0
    )
    ratio.add_figure("30 outputs of 200 columns, seconds to build", "wide", lambda run: run.wall_s, 10)
    ratio.add_figure(
        "the same, first micro-batch, seconds", "wide", lambda run: run.micro_batches[0].seconds, 15
    )
    ratio.add_figure("fan-out, MiB of a worker while left rows come", "fan-out", _filling_mib, 1024)
    ratio.add_figure("fan-out, MiB of a worker in a fan-out", "fan-out", _fan_out_mib, 1024)
    ratio.add_figure("growth, last third / first third, seconds", "growth", slowdown, 1.35)
    ratio.add_figure("growth, last third / first third, core-seconds", "growth", slowdown_of_cores, 1.35)
    return ratio.found


class _Ratios:
    def __init__(self, runs: dict[str, Run]) -> None:
        self.found: list[Ratio] = []
        self._runs = runs

    def add_figure(self, name: str, run: str, figure: Callable[[Run], float | None], target: float) -> None:
        """Note a figure of one run, if it is there: no ratio to another run, but it has a target as well."""
        found = figure(self._runs[run]) if run in self._runs else None
        if found is not None:
            self.found.append(Ratio(name, found, target, at_most=True))

    def add_memory(self, name: str, run: str, target_mib: float) -> None:
        """Note the largest private memory of a worker, if it was sampled."""
        if run in self._runs and (found := peaks(self._runs[run])):
            self.found.append(Ratio(name, found["largest_private_mib"], target_mib, at_most=True))

    def add(
        self,
        name: str,
        over: tuple[str, str],
        under: tuple[str, str],
        target: float,
        *,
        at_most: bool = False,
    ) -> None:
        """Note a ratio of two figures, each given as (contestant, figure), if both are there."""
        figures = [
            float(getattr(self._runs[run], figure)) for run, figure in (over, under) if run in self._runs
        ]
        if len(figures) == 2 and all(figures):
            self.found.append(Ratio(name, figures[0] / figures[1], target, at_most))


def _cold_seconds(run: Run) -> float | None:
    """What the first micro-batch of a new session takes more than the median of the later ones, which are as large."""
    return _more_than_later(run.micro_batches)


def _restart_seconds(run: Run) -> float | None:
    """What the first micro-batch of a query that starts again takes more than the median of the later ones."""
    return _more_than_later(run.small_micro_batches)


def _more_than_later(micro_batches: list[MicroBatch]) -> float | None:
    first, *later = [one.seconds for one in micro_batches] or [0.0]
    return first - median(later) if later else None


def _filling_mib(run: Run) -> float | None:
    return _largest_worker_mib(run, run.micro_batches)


def _fan_out_mib(run: Run) -> float | None:
    return _largest_worker_mib(run, run.small_micro_batches)


def _largest_worker_mib(run: Run, micro_batches: list[MicroBatch]) -> float | None:
    found = [peaks(run, one).get("largest_worker_mib", 0.0) for one in micro_batches]
    return max(found, default=0.0) or None


def same_changes(runs: dict[str, Run]) -> str | None:
    """Say whether the library and batch SQL gave the same result changes, if both ran.

    Compared is their number, and, where it was observed, the sum of hashes over their values.
    """
    every, history = runs.get("every"), runs.get("batch-sql")
    if every is None or history is None or every.error or history.error:
        return None
    ours, theirs = _fingerprint(every), _fingerprint(history)
    verdict = "the same" if ours == theirs else "DIFFERENT"
    what = "number and hash" if "hash" in ours else "number"
    return f"result changes of every change and of batch SQL: {verdict} ({what}: {ours} and {theirs})"


def _fingerprint(run: Run) -> dict[str, int]:
    observed = [m.observed.get(OBSERVATION, {}) for m in run.micro_batches]
    names = {name for metrics in observed for name in metrics}
    return {name: sum(int(metrics.get(name) or 0) for metrics in observed) for name in sorted(names)}
