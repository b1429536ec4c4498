"""What is refused of a global table, and when its copies are large; `test_plans` and `test_star_joins` join one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.spark import round_worker
from tests.spark.change_logs import ChangeLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_global_table_is_joined_by_foreign_key_only(spark: SparkSession, tmp_path: Path) -> None:
    frame = ChangeLog(tmp_path / "log", "id int, to int").read(spark)
    table, copied = ts.table(frame, "id", order_by="to"), ts.global_table(frame, "id", order_by="to")
    assert repr(copied).startswith("Global")
    with pytest.raises(ArgumentError, match="needs on="):
        table.join(copied)
    with pytest.raises(ArgumentError, match="how='outer'"):
        table.join(copied, on="to", how="outer")


def test_a_worker_warns_once_of_a_copy_that_is_larger_than_64_mb(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(round_worker, "_warned", set())
    join: Any = SimpleNamespace(name="prices", copy_trace="copy", inputs=(1, 2))

    def report(size_bytes: int, arrived: int) -> int:
        state: Any = SimpleNamespace(sizes=lambda _: (None, SimpleNamespace(size_bytes=size_bytes)))
        return len(list(round_worker._copied(join, 0, {arrived}, state)))

    assert [report(64 << 20, 2), report(65 << 20, 1), caplog.records] == [1, 0, []]
    assert [report(65 << 20, 2), report(70 << 20, 2)] == [1, 1]
    (told,) = caplog.messages
    assert told.startswith("prices: a shard's copy of the global table has 65 MB")
