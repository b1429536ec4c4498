"""Timestamps from Spark in UTC: Spark knows names of time zones that Polars and Python do not."""

from __future__ import annotations

from functools import lru_cache
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
        if pa.types.is_timestamp(kind):
            keep = kind.tz is None or (keep_known and _is_known(kind.tz))
            return kind if keep else pa.timestamp(kind.unit, "UTC")
        if pa.types.is_struct(kind):
            return pa.struct([inside(one) for one in kind])
        if pa.types.is_map(kind):
            return pa.map_(inside(kind.key_field), inside(kind.item_field))
        return pa.list_(inside(kind.value_field)) if pa.types.is_list(kind) else kind

    def inside(field: pa.Field) -> pa.Field:
        return field.with_type(of(field.type))

    changed = pa.schema([inside(one) for one in schema])
    return None if changed.equals(schema) else changed


def _is_known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
