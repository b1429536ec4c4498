"""Delta tables that were restored by Delta itself, and two processes at one micro-batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tablestream.connectors.delta.sink import DeltaMode, DeltaSink, DeltaWriter, to_delta
from tablestream.connectors.marks import Moment
from tablestream.errors import TargetError
from tests.connectors.changes import KEY, changes
from tests.marks import quick_first
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("writer", quick_first(["delta-rs", "spark"]))
def test_a_table_that_delta_restored_is_refused_until_it_is_rebuilt_or_accepted(
    delta_spark: SparkSession, tmp_path: Path, writer: DeltaWriter
) -> None:
    log, sink = ChangeLog(tmp_path / "in", "id int, n int"), to_delta(tmp_path / "table", writer=writer)

    def work(identity: int, on_mismatch: Any = "refuse") -> list[int]:
        log.add([{"id": identity, "n": 1}])
        table = ts.table(log.read(delta_spark, max_files_per_trigger=10), "id", name="ids")
        kept, target = table.materialize(), replace(sink, on_mismatch=on_mismatch)
        # The rows of a table are those of what materialize() made of it.
        outputs = (
            [kept.to(target)] if writer == "spark" else [table.to(target), kept.to(ts.to_memory("kept"))]
        )
        run(*outputs, checkpoint=tmp_path / "checkpoint", shards=1)
        return sorted(row.id for row in delta_spark.read.format("delta").load(sink.path).collect())

    def restore() -> None:
        first = 1 if writer == "delta-rs" else 0  # it creates the table in a commit of its own
        delta_spark.sql(f"RESTORE TABLE delta.`{sink.path}` TO VERSION AS OF {first}")

    assert (work(1), work(2)) == ([1], [1, 2])
    restore()
    with pytest.raises(TargetError, match="up to 0, and the checkpoint the micro-batches up to 1"):
        work(3)
    assert work(4, "rebuild") == [1, 2, 3, 4]
    assert work(5) == [1, 2, 3, 4, 5]
    restore()
    assert work(6, "accept") == [1, 6]
    assert work(7) == [1, 6, 7]


@pytest.mark.parametrize(
    ("mode", "writer", "few_rows"),
    [("table", "spark", 9), ("table", "delta-rs", 9), ("changes", "delta-rs", 9), ("table", "delta-rs", 0)],
)
def test_two_processes_at_one_micro_batch_write_it_once(
    delta_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: DeltaMode,
    writer: DeltaWriter,
    few_rows: int,
) -> None:
    """Both have looked for the mark, and found none, before one of them writes.

    Of two that lay rows beside the table, one may find its own taken away.
    """
    sink = replace(to_delta(tmp_path / "table", mode=mode, writer=writer), few_rows=few_rows).keyed_by(KEY)
    first, second = Moment(0, "q", "p0", ""), Moment(1, "q", "p1", "p0")
    sink.at(first).write(changes(delta_spark, 0, (1, "a", "x")), 0, "q", "out")
    both, looked = Barrier(2), DeltaSink._found

    def found(self: DeltaSink, *given: Any) -> Any:
        known = looked(self, *given)
        both.wait(120)
        return known

    def write(session: SparkSession) -> BaseException | None:
        frame = changes(session, 1, (2, "b", "y"))
        try:
            sink.at(second).write(frame, 1, "q", "out")
        except Exception as error:  # noqa: BLE001 - Delta may refuse the later one
            return error
        return None

    monkeypatch.setattr(DeltaSink, "_found", found)
    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(write, [delta_spark.newSession(), delta_spark.newSession()]))
    monkeypatch.undo()
    assert None in errors
    refused = [str(error) for error in errors if error is not None]
    assert few_rows == 0 or all("oncurrent" in error for error in refused), errors
    for _ in range(2):  # the one that failed starts again
        assert sorted(row.k1 for row in delta_spark.read.format("delta").load(sink.path).collect()) == [1, 2]
        sink.at(second).write(changes(delta_spark, 1, (2, "b", "y")), 1, "q", "out")
