"""Timestamps from Spark in UTC: Spark knows names of time zones that Polars and Python do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa


def in_utc(table: pa.Table, *, keep_known: bool = False) -> pa.Table:
    """Return a table from Spark with its timestamps in UTC.

    Spark names the time zone of its session, which Polars and Python may not know: ``GMT+8``, ``PST``. The values
    are in UTC in any case: only the name changes.

    Parameters
    ----------
    keep_known
        Whether timestamps in a zone that Python knows stay in it, as people want to see them.
    """
    schema = _in_utc(table.schema, keep_known)
    return table if schema is None else table.cast(schema)


@lru_cache(maxsize=16)
def _in_utc(schema: pa.Schema, keep_known: bool) -> pa.Schema | None:
    """The schema with timestamps in UTC; none if nothing changes."""

    def of(kind: pa.DataType) -> pa.DataType:
        keep = not pa.types.is_timestamp(kind) or kind.tz is None or (keep_known and _is_known(kind.tz))
        return kind if keep else pa.timestamp(kind.unit, "UTC")

    changed = pa.schema([_changed(one, of) for one in schema])
    return None if changed.equals(schema) else changed


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as Python's values; what has a time that Python does not have has texts for times.

    Examples
    --------
    >>> times = pa.array([0, 317_257_056_000_000_000], pa.timestamp("us"))
    >>> [row["at"] for row in rows_of(pa.table({"at": times}))]
    [datetime.datetime(1970, 1, 1, 0, 0), '12023-06-23 16:00:00.000000']
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OverflowError):
        columns = [map(_value_of, column) for column in table.columns]
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _value_of(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        texts = _changed(pa.field("value", scalar.type), _text_for_time).type
        return scalar.cast(texts).as_py()


def _text_for_time(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


def _changed(field: pa.Field, of: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """A field with other types in the place of those that are not nested."""

    def changed(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([_changed(one, of) for one in kind])
        if pa.types.is_map(kind):
            return pa.map_(_changed(kind.key_field, of), _changed(kind.item_field, of))
        return pa.list_(_changed(kind.value_field, of)) if pa.types.is_list(kind) else of(kind)

    return field.with_type(changed(field.type))


def _is_known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
