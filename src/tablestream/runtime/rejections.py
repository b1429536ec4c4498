"""Records that operators drop, as messages to an output of rejected records.

A message has its place in the order, ``_operator``, ``_reason``, ``_source`` (the source partition), ``_ts``, and as
JSON ``_key`` and ``_record`` (key and value, as the operator saw them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.cells import as_json, cells
from tablestream.state.changes import KEY_HASH, NOTHING, PARTITION, TS

REASON = "_reason"


@dataclass(frozen=True)
class Shown:
    """The columns of an operator's input under the users' names."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The key's columns in a message, and their names."""
    value: tuple[str, ...]
    """The names of the value's columns."""

    def rejected(
        self, messages: pl.DataFrame, place: Sequence[str], operator: str, reason: str
    ) -> pl.DataFrame:
        """Turn the messages that an operator drops into messages to an output.

        `messages`: with the columns of the `place` in the order, ``_ts``, the key's and ``v``. `place`: the columns of
        the order. `operator`, `reason`: the operator that drops them, and why.
        """
        key = dict(zip(self.key, messages.select(self.columns), strict=True))
        columns = key | self._value(messages["v"])
        texts = (_objects(one, messages.height) for one in (key, columns))
        return rejections(messages, place, operator, pl.lit(reason), *texts)

    def key_text(self, message: pl.DataFrame) -> str:
        """Return the key of a message as JSON."""
        if not set(self.columns) <= set(message.columns):
            return ""
        return str(_objects(dict(zip(self.key, message.select(self.columns), strict=True)), 1)[0])

    def _value(self, value: pl.Series) -> dict[str, pl.Series]:
        """The columns of the value; those of a tombstone are null."""
        if not isinstance(value.dtype, pl.Struct):  # only tombstones
            return dict.fromkeys(self.value, value)
        parts = value.struct.unnest().select(pl.exclude(NOTHING))
        return dict(zip(self.value, parts, strict=True))


def rejections(
    frame: pl.DataFrame,
    place: Sequence[pl.Expr | str],
    operator: str,
    reason: pl.Expr,
    key: pl.Expr | pl.Series,
    record: pl.Expr | pl.Series,
) -> pl.DataFrame:
    """Return the messages about records that an operator drops, one for each row of a frame."""
    return frame.select(
        *place,
        pl.lit(0, pl.Int64).alias(KEY_HASH),
        TS,
        pl.lit(operator).alias("_operator"),
        reason.alias(REASON),
        pl.col(PARTITION).alias("_source"),
        key.alias("_key"),
        record.alias("_record"),
    )


def _objects(columns: Mapping[str, pl.Series], rows: int) -> pl.Series:
    """Write rows as JSON objects."""
    if not columns:
        return pl.Series(["{}"] * rows, dtype=pl.String)
    every = pl.DataFrame(columns).to_struct()
    return pl.Series([as_json(cell, every.dtype) for cell in cells(every)], dtype=pl.String)
