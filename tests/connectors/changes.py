"""Frames of changes for the tests of sinks, written as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "k1 INT, `k.2` STRING, v STRING, _change_type STRING, _timestamp TIMESTAMP, "
    "_order STRUCT<micro_batch: BIGINT, number: BIGINT>"
)
KEY = ("k1", "k.2")
Change = tuple[int | None, str | None, str | None]

START = datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def changes(spark: SparkSession, micro_batch_id: int, *rows: Change, kinds: str = "") -> DataFrame:
    """Make a frame in the shape of ``Table.changes()``; a row without a value is a delete.

    Parameters
    ----------
    spark
        The session.
    micro_batch_id
        Goes into ``_order``.
    rows
        Key, key, value; later rows come later in the order.
    kinds
        Change types instead of those, separated by blanks.
    """
    named = kinds.split() or ["delete" if value is None else "upsert" for _, _, value in rows]
    full = [
        (*row, kind, START, (micro_batch_id, number))
        for number, (row, kind) in enumerate(zip(rows, named, strict=True))
    ]
    return spark.createDataFrame(full, SCHEMA)
