"""Records that operators leave out, as the messages of an output of rejected records.

A message has its place in the order, ``_operator``, ``_reason``, ``_source`` (the source partition), ``_ts``, and as
JSON ``_key`` and ``_record`` (key and value, as the operator saw them).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from tablestream.state.changes import KEY_HASH, NOTHING, PARTITION, TS

REASON = "_reason"


@dataclass(frozen=True)
class Shown:
    """The columns of an operator's input as users know them.

    Attributes
    ----------
    columns, key
        The key's columns in a message, and their names.
    value
        The names of the value's columns.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...]

    def told(self, messages: pl.DataFrame, place: Sequence[str], operator: str, reason: str) -> pl.DataFrame:
        """Turn the messages that an operator leaves out into messages about them.

        Parameters
        ----------
        messages
            With the columns of the `place` in the order, ``_ts``, the key's and ``v``.
        place
            The columns of the order.
        operator, reason
            Who leaves them out, and why.
        """
        columns = messages.select(self.columns).rows() if self.columns else [()] * messages.height
        keys = [dict(zip(self.key, row, strict=True)) for row in columns]
        rows = [self._row(key, value) for key, value in zip(keys, messages["v"].to_list(), strict=True)]
        return messages.select(
            *place,
            pl.lit(0, pl.Int64).alias(KEY_HASH),
            TS,
            pl.lit(operator).alias("_operator"),
            pl.lit(reason).alias(REASON),
            pl.col(PARTITION).alias("_source"),
            pl.Series("_key", map(as_json, keys), dtype=pl.String),
            pl.Series("_record", map(as_json, rows), dtype=pl.String),
        )

    def _row(self, key: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any]:
        """Key and value together; the value of a tombstone is null."""
        cells = [cell for name, cell in (value or {}).items() if name != NOTHING]
        return key | dict(zip(self.value, cells or [None] * len(self.value), strict=True))


def as_json(value: object) -> str:
    """Write a value of Polars as JSON, in the manner of Spark's ``to_json``.

    Examples
    --------
    >>> as_json({"a": Decimal("1.50"), "b": b"x", "c": float("nan"), "d": [date(2024, 2, 29)]})
    '{"a":"1.50","b":"eA==","c":"NaN","d":["2024-02-29"]}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal | timedelta | date | time) else value
