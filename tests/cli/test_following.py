"""A run follows its query, and Ctrl-C stops it after its micro-batch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tablestream.cli import following
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.following import follow, stop_after_micro_batch, stop_signals


class Progress:
    """What Spark says about a micro-batch."""

    batchDuration, numInputRows = 1000, 1  # noqa: N815 - Spark's names
    sources: tuple[()] = ()
    observedMetrics: Mapping[str, Any] = {}  # noqa: N815 - Spark's name

    def __init__(self, number: int) -> None:
        self.batchId = number

    def __getitem__(self, name: str) -> int:
        assert name == "batchId"
        return self.batchId


class Query:
    """A query whose micro-batch ends when somebody has asked for its status a few times."""

    def __init__(self, *, busy: bool, asked: int = 3) -> None:
        self.busy, self.asked, self.isActive = busy, asked, True
        self.recentProgress = [Progress(0)]
        self.stopped_after: int | None = None

    @property
    def status(self) -> dict[str, bool]:
        self.asked -= 1
        if not self.asked:
            self.recentProgress.append(Progress(len(self.recentProgress)))
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
    monkeypatch.setattr(following, "_POLL_S", 0)
    monkeypatch.setattr(following, "_STOP_POLL_S", 0)


def stopped(query: Query) -> int | None:
    stop_after_micro_batch(query)  # type: ignore[arg-type]
    return query.stopped_after


def test_a_query_is_stopped_when_its_micro_batch_has_ended() -> None:
    assert stopped(Query(busy=True)) == 1


def test_a_query_without_data_is_stopped_at_once() -> None:
    assert stopped(Query(busy=False)) == 0


def test_the_micro_batch_that_ends_last_is_shown() -> None:
    query, stop = Query(busy=True), threading.Event()
    stop.set()
    assert [done.number for done in follow(query, stop)] == [0, 1]  # type: ignore[arg-type]


def test_the_first_ctrl_c_asks_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(lambda text, event: said.append((text, event))) as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGTERM)
    assert end.value.code == ExitCode.INTERRUPTED
    assert said == [
        ("Stopping after this micro-batch. Ctrl-C once more ends at once.", {"event": "stopping"})
    ]
    assert signal.getsignal(signal.SIGINT) is before
