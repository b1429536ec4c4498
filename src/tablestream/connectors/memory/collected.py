"""Rows of a frame in Python, which has no times before the year 1 and after 9999: such a time comes as a text.

Python also lacks some times at the edges of these years, and Spark's own ``collect`` raises for all of them. Then the
rows are read again, each time with its number and Spark's text.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.type_parts import within
from tablestream.connectors.sink import quoted

_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
#: At the edges only Python knows whether it has a timestamp.
_SURE = "0001-01-03", "9999-12-30"


class TimeText(str):
    """The text that Spark has for a time that Python does not have.

    Attributes
    ----------
    number
        The time as a number that grows with it; negative before the year 1.
    """

    __slots__ = ("number",)
    number: int

    @classmethod
    def of(cls, text: str, number: int) -> TimeText:
        """Return the text of a time."""
        made = cls(text)
        made.number = number
        return made


def collected(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame; a time that Python does not have as `TimeText`."""
    try:
        return frame.collect()
    except (ValueError, OverflowError, OSError):  # what Python raises for years that it lacks
        fields = frame.schema.fields
        shown = [_shown(F.col(quoted(one.name)), one.dataType).alias(one.name) for one in fields]
        return [_row(row, frame.schema) for row in frame.select(*shown).collect()]


def _has_times(kind: T.DataType) -> bool:
    return any(isinstance(one, _TIMES) for one in within(kind))


def _shown(value: Column, kind: T.DataType) -> Column:
    """A value whose times are structs: of the time if Python has it for sure, its number and its text."""
    if not _has_times(kind):
        return value
    if isinstance(kind, T.StructType):
        parts = (_shown(value[one.name], one.dataType).alias(one.name) for one in kind)
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda one: _shown(one, kind.elementType))
    if isinstance(kind, T.MapType):
        key, content = kind.keyType, kind.valueType
        return F.transform(
            F.map_entries(value), lambda one: F.struct(_shown(one["key"], key), _shown(one["value"], content))
        )
    return F.when(value.isNotNull(), _time(value, kind))


def _time(value: Column, kind: T.DataType) -> Column:
    first, last = _SURE
    sure = F.when(value.between(F.lit(first).cast(kind), F.lit(last).cast(kind)), value)
    number = (
        F.unix_date(value) if isinstance(kind, T.DateType) else F.unix_micros(value.cast(T.TimestampType()))
    )
    return F.struct(
        sure.alias("time"), number.cast("bigint").alias("number"), value.cast("string").alias("text")
    )


def _row(given: Any, kind: T.StructType) -> Row:
    values = [_known(one, part.dataType) for one, part in zip(given, kind, strict=True)]
    return Row(*kind.names)(*values)


def _known(given: Any, kind: T.DataType) -> Any:
    """Return a value that `_shown` made as Python has it."""
    if given is None or not _has_times(kind):
        return given
    if isinstance(kind, T.StructType):
        return _row(given, kind)
    if isinstance(kind, T.ArrayType):
        return [_known(one, kind.elementType) for one in given]
    if isinstance(kind, T.MapType):
        return {_known(key, kind.keyType): _known(value, kind.valueType) for key, value in given}
    return _moment(given, kind)


def _moment(given: Any, kind: T.DataType) -> Any:
    if given.time is not None:
        return given.time
    try:
        return kind.fromInternal(given.number)
    except (ValueError, OverflowError, OSError):
        return TimeText.of(given.text, given.number)
