"""Following a query: a report per micro-batch, each once, and the query's own error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

from examples.demo import progress as module
from examples.demo.progress import MicroBatchReport, follow, rows_written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery


def told(number: int, rows: int) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": rows, "batchDuration": 2000, "observedMetrics": {}}


class FakeQuery:
    """Tells more at every look, and ends with the last."""

    def __init__(self, looks: list[list[dict[str, Any]]], error: Exception | None = None) -> None:
        self._looks, self._error, self._look = looks, error, -1

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        self._look += 1
        return self._look < len(self._looks) - 1

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802  # Spark's name
        return self._looks[self._look]

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        return self.recentProgress[-1] if self.recentProgress else None

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        if self._error:
            raise self._error


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)


def followed(query: FakeQuery, changes: Path) -> list[MicroBatchReport | float]:
    return list(follow(cast("StreamingQuery", query), [changes / "one", changes / "other"]))


def test_every_micro_batch_is_reported_once_and_the_last_too(tmp_path: Path) -> None:
    looks = [[], [told(0, 10)], [told(0, 10)], [told(0, 10), told(1, 20), told(2, 30)]]
    reports = [event for event in followed(FakeQuery(looks), tmp_path) if isinstance(event, MicroBatchReport)]
    assert [(report.micro_batch, report.rows_in) for report in reports] == [(0, 10), (1, 20), (2, 30)]


def test_a_micro_batch_without_rows_is_none(tmp_path: Path) -> None:
    events = followed(FakeQuery([[told(0, 0), told(1, 5)]]), tmp_path)
    assert [event.micro_batch for event in events if isinstance(event, MicroBatchReport)] == [1]


def test_changes_of_all_outputs_are_counted_in_the_files_of_the_micro_batch(tmp_path: Path) -> None:
    for output, counts in (("one", (3, 4)), ("other", (2,))):
        directory = tmp_path / output / "micro_batch=0"
        directory.mkdir(parents=True)
        for number, rows in enumerate(counts):
            pl.DataFrame({"v": range(rows)}).write_parquet(directory / f"part-{number}.parquet")
    assert rows_written(tmp_path / "one" / "micro_batch=0") == 7
    assert rows_written(tmp_path / "one" / "micro_batch=1") == 0
    report = followed(FakeQuery([[told(0, 5)]]), tmp_path)[0]
    assert isinstance(report, MicroBatchReport)
    assert report.changes_out == 9
    assert report.changes_per_s == 4.5


def test_time_passes_between_reports(tmp_path: Path) -> None:
    events = followed(FakeQuery([[], [], [told(0, 1)]]), tmp_path)
    assert [isinstance(event, MicroBatchReport) for event in events] == [False, False, True, False]


def test_a_failed_query_fails_its_follower(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        followed(FakeQuery([[told(0, 1)]], RuntimeError("it broke")), tmp_path)


def test_what_the_query_observed_is_told_when_there_is_some() -> None:
    plain = MicroBatchReport(0, 1, 2, 1.0, 1.0)
    assert "observed" not in plain.as_json()
    assert MicroBatchReport(0, 1, 2, 1.0, 1.0, {"dropped": {"n": 3}}).as_json()["observed"] == {
        "dropped": {"n": 3}
    }
