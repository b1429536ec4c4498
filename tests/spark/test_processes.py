"""What a worker has imported is left out of garbage collections from its second task on."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from tablestream.spark import processes


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A process that has begun no task, and how often it has frozen its objects."""
    times: list[int] = []
    monkeypatch.setattr(processes, "_process", processes._Process())
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    return times


def _begin(task: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    context = None if task is None else SimpleNamespace(taskAttemptId=lambda: task)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    processes.begin_task()


def test_imports_are_frozen_once_when_the_second_task_begins(
    frozen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for task, times in ((7, 0), (7, 0), (9, 1), (9, 1), (12, 1)):  # a task works off several shards
        _begin(task, monkeypatch)
        assert len(frozen) == times


def test_outside_a_task_nothing_is_frozen(frozen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        _begin(None, monkeypatch)
    assert not frozen
