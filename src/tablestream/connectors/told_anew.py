"""Logs that are told anew: if an output has another meaning, its log gets all rows, and deletes of keys that are gone.

Which keys its readers know is in the log itself: those whose last change is no delete.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tablestream.connectors.sink import CHANGE_TYPE, LATEST, ORDER, TIMESTAMP, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def live_keys(log: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return the keys whose last change in a log is no delete, and the time of that change."""
    changes = log.where(LATEST) if LATEST in log.columns else log
    last = F.max_by(F.struct(CHANGE_TYPE, TIMESTAMP), F.struct("micro_batch", ORDER)).alias("__last")
    kept = changes.where(F.col(CHANGE_TYPE) != "update_preimage").groupBy(*map(quoted, key_columns)).agg(last)
    is_live = F.col(f"__last.{CHANGE_TYPE}") != "delete"
    return kept.where(is_live).select(*map(quoted, key_columns), F.col(f"__last.{TIMESTAMP}"))


def with_deletes(rows: DataFrame, live: DataFrame, key_columns: Sequence[str], micro_batch: int) -> DataFrame:
    """Add a delete for each live key that has no row, with the time of its last change."""
    gone = missing(live, rows, key_columns)
    order = F.struct(
        *(
            F.lit(micro_batch if one.name == "micro_batch" else None).cast(one.dataType).alias(one.name)
            for one in rows.select(f"{ORDER}.*").schema
        )
    )
    there = [*key_columns, TIMESTAMP]
    absent = [
        F.lit(None).cast(one.dataType).alias(one.name) for one in rows.drop(*there, CHANGE_TYPE, ORDER).schema
    ]
    kind = F.lit("delete").alias(CHANGE_TYPE)
    return rows.unionByName(gone.select(*map(quoted, there), *absent, kind, order.alias(ORDER)))


def missing(live: DataFrame, rows: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return the live keys that have no row."""
    same = (live[quoted(one)].eqNullSafe(rows[quoted(one)]) for one in key_columns)
    return live.join(rows, reduce(and_, same, F.lit(True)), "left_anti")
