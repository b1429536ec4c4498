"""The changes of versioned tables, as joins of histories process them: in order, without those that are too late."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tablestream.operators.operator import Context
from tablestream.operators.reasons import EXPIRED
from tablestream.operators.versions import Versions
from tablestream.state.changes import LATEST, LIVE, SEQ, STEP, TS

#: Which input a change is from, its position there, and how far back the history reaches at its place.
INPUT, POSITION, BOUND = "input", "position", "bound"


def changes_in_time(inputs: Sequence[pl.DataFrame], versions: Versions, context: Context) -> pl.DataFrame:
    """Order the changes of all inputs by place, and drop and count those that are too late.

    A change is too late if it is older than the history and not the latest of its row. Messages without ``_latest``
    are never too late.

    Returns
    -------
    DataFrame
        ``_seq``, ``_step``, ``_ts``, ``_live``, and the columns `INPUT`, `POSITION` and `BOUND`.
    """
    changes = pl.concat(
        [
            frame.select(
                pl.col(name) if name in frame.columns else pl.lit(value=True).alias(name)
                for name in (SEQ, STEP, TS, LIVE, LATEST)
            ).with_columns(
                pl.lit(number).alias(INPUT), pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION)
            )
            for number, frame in enumerate(inputs)
        ]
    ).sort(SEQ)
    bounds, context.observed = versions.bounds(changes[TS], context.observed)
    is_late = ~changes[LATEST] & (changes[TS] < bounds)
    late = changes.filter(is_late)
    for number, frame in enumerate(inputs):
        context.reject(EXPIRED, frame[late.filter(input=number)[POSITION]], number)
    return changes.drop(LATEST).with_columns(bounds.alias(BOUND)).filter(~is_late)
