"""A run follows its query, and Ctrl-C stops it after its micro-batch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tablestream.cli import run
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.run import Stop, follow, stop_after_micro_batch, stop_signals


class Progress:
    """What Spark says about a micro-batch."""

    batchDuration, numInputRows = 1000, 1  # noqa: N815 - Spark's names
    sources: tuple[()] = ()
    observedMetrics: Mapping[str, Any] = {}  # noqa: N815 - Spark's name

    def __init__(self, number: int, *, idle: bool = False) -> None:
        self.batchId = number
        self.durationMs = {"latestOffset": 1} | ({} if idle else {"addBatch": 1})


class Query:
    """A query whose micro-batch ends when somebody has asked for its status a few times."""

    def __init__(self, *, busy: bool, asked: int = 3) -> None:
        self.busy, self.asked, self.isActive = busy, asked, True
        self.recentProgress = [Progress(0)]
        self.stopped_after: int | None = None
        self.ends_with: Progress | None = None

    @property
    def status(self) -> dict[str, bool]:
        self.asked -= 1
        if not self.asked:
            self.recentProgress.append(self.ends_with or Progress(len(self.recentProgress)))
        return {"isTriggerActive": self.busy, "isDataAvailable": self.busy}

    @property
    def lastProgress(self) -> Progress:  # noqa: N802 - Spark's name
        return self.recentProgress[-1]

    def stop(self) -> None:
        self.stopped_after, self.isActive = self.lastProgress.batchId, False

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        assert not self.isActive


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_POLL_S", 0)
    monkeypatch.setattr(run, "_STOP_POLL_S", 0)


def stopped(query: Query) -> int | None:
    stop_after_micro_batch(query)  # type: ignore[arg-type]
    return query.stopped_after


def test_a_query_is_stopped_when_its_micro_batch_has_ended() -> None:
    assert stopped(Query(busy=True)) == 1


def test_a_query_without_data_is_stopped_at_once() -> None:
    assert stopped(Query(busy=False)) == 0


def test_the_micro_batch_that_ends_last_is_shown() -> None:
    query, said = Query(busy=True), []
    shown = follow(query, Stop(wanted=True), lambda: said.append(query.isActive))  # type: ignore[arg-type]
    assert [done.number for done in shown] == [0, 1]
    assert said == [True]  # once, and before the query is stopped


def test_each_micro_batch_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(busy=True)

    def wait(_seconds: float) -> None:
        query.recentProgress.append(Progress(len(query.recentProgress)))
        query.isActive = len(query.recentProgress) < 4

    monkeypatch.setattr(time, "sleep", wait)
    shown = follow(query, Stop(), not_called)  # type: ignore[arg-type]
    assert [done.number for done in shown] == [0, 1, 2, 3]


def test_a_micro_batch_after_nothing_arrived_is_shown_and_waited_for() -> None:
    """Spark reports that nothing has arrived with the number of the micro-batch that comes next."""
    query = Query(busy=True, asked=-1)
    query.recentProgress.append(Progress(1, idle=True))
    assert stopped_after_one_more(query) == 1
    query.recentProgress.append(Progress(2, idle=True))
    assert [done.number for done in follow(query, Stop(), not_called)] == [0, 1]  # type: ignore[arg-type]


def stopped_after_one_more(query: Query) -> int:
    """Let the micro-batch that runs end, and nothing else."""
    query.asked = 2
    query.ends_with = Progress(1)
    stop_after_micro_batch(query)  # type: ignore[arg-type]
    return query.lastProgress.batchId


def test_a_query_that_nobody_stops_ends_without_a_word() -> None:
    query = Query(busy=False)
    query.isActive = False
    assert [done.number for done in follow(query, Stop(), not_called)] == [0]  # type: ignore[arg-type]


def not_called() -> None:
    pytest.fail("It was called.")


def test_the_first_ctrl_c_asks_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def leave(code: int) -> None:
        order.append(f"exit {code}")
        raise SystemExit(code)

    def remove() -> None:
        order.append("remove")
        raise OSError("busy")  # it ends all the same

    monkeypatch.setattr(os, "_exit", leave)
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(remove) as stop:
        assert not stop.wanted
        signal.raise_signal(signal.SIGINT)
        assert (stop.wanted, order) == (True, [])
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    assert order == ["remove", f"exit {ExitCode.INTERRUPTED}"]
    assert signal.getsignal(signal.SIGINT) is before
