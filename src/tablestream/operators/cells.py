"""Columns of any type as lists of Python objects, and back.

Python's dates end with the year 9999, and its dictionaries accept no struct as a key. Spark's values go further: the
end of the year 9999 in New York is the year 10000 in UTC. So a *cell* is a value in a form that always exists:

=============================  ===========================================
column                         cell
=============================  ===========================================
date                           days since 1970
timestamp, timestamp_ntz       microseconds since 1970
array                          list of cells
struct                         dict of cells
map                            list of dicts ``{"key": ..., "value": ...}``
anything else                  the value that Polars returns
=============================  ===========================================
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from tablestream.operators.calendar import date_text, time_text

KEY, VALUE = "key", "value"


def cell_type(kind: pl.DataType) -> pl.DataType:
    """Return the dtype of a column's cells.

    Examples
    --------
    >>> cell_type(pl.List(pl.Date()))
    List(Int32)
    """
    if isinstance(kind, pl.Datetime):
        return pl.Int64()
    if isinstance(kind, pl.Date):
        return pl.Int32()
    if isinstance(kind, pl.List):
        return pl.List(cell_type(dtype(kind.inner)))
    if isinstance(kind, pl.Struct):
        return pl.Struct({one.name: cell_type(dtype(one.dtype)) for one in kind.fields})
    if isinstance(kind, pl.Map):
        key, value = cell_type(dtype(kind.key)), cell_type(dtype(kind.value))
        return pl.List(pl.Struct({KEY: key, VALUE: value}))
    return kind


def dtype(part: Any) -> pl.DataType:
    """Return the dtype of a part of a nested dtype; Polars allows a class there, too."""
    return part if isinstance(part, pl.DataType) else part()


def cells(values: pl.Series) -> list[Any]:
    """Return a column's cells; None for null.

    Examples
    --------
    >>> from datetime import date
    >>> cells(pl.Series([date(1970, 1, 2), None]))
    [1, None]
    """
    kind = cell_type(values.dtype)
    return (values if kind == values.dtype else values.cast(kind)).to_list()


def column(found: Sequence[Any], kind: pl.DataType) -> pl.Series:
    """Return a column of a dtype, built from cells."""
    made = pl.Series(found, dtype=cell_type(kind), strict=True)
    return made if made.dtype == kind else made.cast(kind)


def as_json(cell: Any, kind: pl.DataType) -> str:
    """Write a cell as JSON, as Spark's ``to_json`` does.

    Examples
    --------
    >>> kind = pl.Struct({"a": pl.Decimal(5, 2), "b": pl.Binary, "c": pl.Float64, "d": pl.List(pl.Date)})
    >>> as_json({"a": Decimal("1.50"), "b": b"x", "c": float("nan"), "d": [19782]}, kind)
    '{"a":"1.50","b":"eA==","c":"NaN","d":["2024-02-29"]}'
    """
    return json.dumps(_plain(cell, kind), ensure_ascii=False, separators=(",", ":"))


def _plain(cell: Any, kind: pl.DataType) -> object:
    """The cell as an object that JSON can represent."""
    if cell is None:
        return None
    if isinstance(kind, pl.Struct | pl.List | pl.Map):
        return _plain_parts(cell, kind)
    if isinstance(kind, pl.Date):
        return date_text(cell)
    if isinstance(kind, pl.Datetime):
        return time_text(cell, zoned=kind.time_zone is not None)
    return _plain_scalar(cell)


def _plain_parts(cell: Any, kind: pl.Struct | pl.List | pl.Map) -> object:
    if isinstance(kind, pl.Struct):
        return {one.name: _plain(cell[one.name], dtype(one.dtype)) for one in kind.fields}
    if isinstance(kind, pl.List):
        return [_plain(part, dtype(kind.inner)) for part in cell]
    key, value = dtype(kind.key), dtype(kind.value)
    return {_name(_plain(part[KEY], key)): _plain(part[VALUE], value) for part in cell}


def _plain_scalar(cell: object) -> object:
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    if isinstance(cell, bytes):
        return base64.b64encode(cell).decode()
    return str(cell) if isinstance(cell, Decimal | timedelta) else cell


def _name(key: object) -> str:
    """A map's key as the name of a JSON field."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, separators=(",", ":"))
