"""A driver and a streaming query give the same changes, drops and state, row by row."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tablestream.spark import round_worker
from tests.spark.change_logs import ChangeLog, run
from tests.testing.topologies import MICRO_BATCHES, SCHEMAS, topologies

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tablestream.runtime.rounds import Round
    from tablestream.runtime.slices import Inbox
    from tablestream.testing import Driver

SHARDS = 2


def driven(spark: SparkSession, shards: int) -> Driver:
    """Drive all micro-batches; between the second and the third the driver is restarted."""

    def read(name: str) -> DataFrame:
        return ts.testing.frame(spark, SCHEMAS[name])

    driver = ts.testing.Driver(*topologies(read).values(), shards=shards)
    for number, sources in enumerate(MICRO_BATCHES):
        if number == len(MICRO_BATCHES) - 1:
            driver = driver.restarted(*topologies(read).values())
        for name, records in sources.items():
            driver.pipe(name, records)
        driver.run()
    return driver


@pytest.mark.exhaustive
def test_slices_do_not_show(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = driven(spark, SHARDS)
    opened, sliced = round_worker.PackedInbox.opened, list[int]()

    def counted(packed: round_worker.PackedInbox, work: Round) -> list[Inbox]:
        slices = list(opened(packed, work))
        sliced.append(len(slices))
        return slices

    monkeypatch.setattr(round_worker, "SLICE_ROWS", 2)
    monkeypatch.setattr(round_worker.PackedInbox, "opened", counted)
    parts = driven(spark, SHARDS)
    assert max(sliced) > 2
    assert parts.counts == whole.counts
    for name in topologies(lambda name: ts.testing.frame(spark, SCHEMAS[name])):
        ts.testing.assert_changes_equal(parts.changes(name), whole.changes(name))
    for table in ("tickers", "rates"):
        ts.testing.assert_changes_equal(parts.state(table), whole.state(table), in_any_order=True)


def queried(spark: SparkSession, path: Path, shards: int) -> Counter[str]:
    """Run the same as a query over files, one file a micro-batch, that is restarted at the same place."""
    logs = {name: ChangeLog(path / name, schema) for name, schema in SCHEMAS.items()}
    counts: Counter[str] = Counter()

    def go() -> None:
        made = topologies(lambda name: logs[name].read(spark))
        outputs = [table.to(ts.to_files(path / f"out {name}"), name=name) for name, table in made.items()]
        counts.update(run(*outputs, checkpoint=path / "checkpoint", shards=shards))

    for number, sources in enumerate(MICRO_BATCHES):
        for name, records in sources.items():
            logs[name].add(records)
        if number >= len(MICRO_BATCHES) - 2:
            go()
    return counts


def test_a_driver_gives_what_a_query_gives(spark: SparkSession, tmp_path: Path) -> None:
    driver, counts = driven(spark, SHARDS), queried(spark, tmp_path, SHARDS)
    names = [*topologies(lambda name: ts.testing.frame(spark, SCHEMAS[name]))]
    for name in names:
        written = spark.read.parquet(str(tmp_path / f"out {name}")).drop("micro_batch")
        assert written.count() > 2, name
        ts.testing.assert_changes_equal(driver.changes(name), ts.testing.Rows.of(written))
    dropped = {name: count for name, count in counts.items() if ": " in name and count}
    assert driver.counts == dropped
    assert {"positions: null-key", "of then: late", "rates: expired"} & dropped.keys()
    for table in ("tickers", "rates"):
        stored = ts.read_state(spark, tmp_path / "checkpoint", table)
        ts.testing.assert_changes_equal(stored, driver.state(table), in_any_order=True)
