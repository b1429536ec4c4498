"""Records that wait for each other, through Spark: cuts do not show, and what waits is there after a restart."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "k string, v int, at bigint"


def test_outputs_do_not_hang_on_the_cuts(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(1)
    records = [{"k": rng.choice("abc"), "v": n, "at": START + n + rng.randint(-6, 0)} for n in range(60)]
    sides = [rng.choice("LR") for _ in records]

    def told(name: str, pieces: int) -> list[tuple[Any, ...]]:
        """Write both logs piece by piece, and run the query after each of them."""
        logs = {side: ChangeLog(tmp_path / name / side, SCHEMA) for side in "LR"}
        sink = ts.to_memory(f"aligned {name}")
        for start in range(0, len(records), -(-len(records) // pieces)):
            end = start + -(-len(records) // pieces)
            for side, log in logs.items():
                log.add(
                    [one for one, of in zip(records[start:end], sides[start:end], strict=True) if of == side]
                )
            left, right = (
                ts.table(log.read(spark), "k", timestamp=F.timestamp_seconds("at"), columns=["v"], name=side)
                for side, log in logs.items()
            )
            joined = left.join(right, how="outer", suffixes=("_left", "_right"), name="joined")
            run(joined.to(sink), checkpoint=tmp_path / name / "checkpoint", shards=2, align=True)
        return [(one.k, one.v_left, one.v_right, one["_timestamp"]) for one in sink.rows()]

    whole = told("whole", 1)
    assert len(whole) > 40
    # Per key in order; of keys of several shards a micro-batch is one after the other.
    cut = told("cut", 2)
    assert [[one for one in cut if one[0] == key] for key in "abc"] == [
        [one for one in whole if one[0] == key] for key in "abc"
    ]
