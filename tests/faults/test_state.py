"""State that is damaged, or that Spark lost, ends the query with words; no output is made from what is left of it."""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.spark import exchange
from tests.faults.comparing import changes
from tests.faults.damaging import DAMAGE, damage
from tests.faults.followed import FollowedProcessor
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("several_partitions")

HINT = "Restart from a complete checkpoint (a copy, or an earlier micro-batch of this one)"
OUTPUT = "sent"


def log(directory: Path, name: str, micro_batches: int) -> ChangeLog:
    """Make a log in which every row changes in every micro-batch."""
    shutil.rmtree(directory / name, ignore_errors=True)
    made = ChangeLog(directory / name, "id int, v int, ts bigint")
    made.add(
        *([{"id": n, "v": n * at, "ts": START + at} for n in range(at, 9)] for at in range(micro_batches))
    )
    return made


def work_off(spark: SparkSession, directory: Path, micro_batches: int) -> None:
    """Join two logs on their key, as far as they are there."""
    tables = [
        ts.table(
            log(directory, name, micro_batches).read(spark), "id", timestamp=F.timestamp_seconds("ts"),
            columns=[F.col("v").alias(name)], name=name,
        )
        for name in ("orders", "parcels")
    ]  # fmt: skip
    sent = tables[0].join(tables[1], how="outer", name=OUTPUT)
    run(sent.to(ts.to_files(directory / OUTPUT, "json")), checkpoint=directory / "checkpoint", shards=2)


def failure(spark: SparkSession, directory: Path, micro_batches: int) -> str:
    """Run a query that ends with an error; what it says."""
    with pytest.raises(PySparkException) as caught:
        work_off(spark, directory, micro_batches)
    return str(caught.value)


def test_damaged_state_ends_the_query_and_nothing_is_made_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batch 2 commits the damage, 3 finds it. Then all is put back, and it is as if never damaged."""
    undisturbed, here, whole = tmp_path / "undisturbed", tmp_path / "here", tmp_path / "whole"
    monkeypatch.setenv("TABLESTREAM_CACHE_DIR", str(tmp_path / "cache"))
    work_off(spark, undisturbed, 4)
    expected = changes(undisturbed, OUTPUT)
    work_off(spark, here, 2)
    shutil.copytree(here, whole)

    def put_back() -> None:
        shutil.rmtree(here)
        shutil.copytree(whole, here)

    def done(micro_batches: int) -> list[dict[str, Any]]:
        return [one for one in expected if one["_order"]["micro_batch"] < micro_batches]

    for how, (_, words) in DAMAGE.items():
        with monkeypatch.context() as patching:
            patching.setattr(exchange, "RoundProcessor", partial(FollowedProcessor, partial(damage, how, 2)))
            said = [failure(spark, here, 4)]
        if how.endswith("removed"):
            with pytest.raises(PySparkException) as reading:
                ts.read_state(spark, here / "checkpoint", "orders").collect()
            said.append(str(reading.value))
        for text in said:
            assert "[TABLESTREAM_DAMAGED_STATE]" in text, (how, text)
            assert re.search(words, text), (how, text)
            assert HINT in text
        assert changes(here, OUTPUT) == done(3)
        put_back()

    for file in (here / "checkpoint" / "state").rglob("*"):
        if file.suffix in {".changelog", ".zip"}:
            file.unlink(missing_ok=True)  # Spark's maintenance may be faster
    assert failure(spark, here, 4).startswith("[TABLESTREAM_QUERY_FAILED]")  # it is Spark that misses them
    assert changes(here, OUTPUT) == done(2)

    put_back()
    work_off(spark, here, 4)
    assert changes(here, OUTPUT) == expected
