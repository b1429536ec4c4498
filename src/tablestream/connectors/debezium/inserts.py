"""What a record leaves out, if there is no row before it: the value is null, and not as before.

================================================  =====================================================
The operation                                     What is left out is
================================================  =====================================================
``u``; a flattened row that does not say it       as before
``c`` with the header of a change of the key      as in the row under the old key
``c`` of records whose headers are not known      the same: it may be such a row
``c`` without the header                          null; a placeholder only of MySQL and MariaDB
``r``                                             null; a placeholder stays unknown
================================================  =====================================================

A row image ``NOBLOB`` of MySQL and MariaDB leaves out the large columns that an insert does not give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T

from tablestream.connectors.debezium import source as sources
from tablestream.connectors.debezium.columns import is_missing
from tablestream.connectors.debezium.filling import Part
from tablestream.connectors.debezium.records import Event


def settle(part: Part, events: Sequence[Event], columns: T.StructType, *, headers_known: bool) -> None:
    """Make null what inserts and rows of snapshots leave out.

    Parameters
    ----------
    part
        The rows, whose ``unchanged`` and ``errors`` change.
    events
        What each record says.
    columns
        The columns of the rows.
    headers_known
        Whether a change of the key can be told.
    """
    for i, numbers in list(part.unchanged.items()):
        event = events[i]
        if not event.whole or not (headers_known or event.op == "read"):
            continue
        left_out = [columns[number] for number in numbers]
        part.unchanged[i] = [
            number for number, column in zip(numbers, left_out, strict=True) if _is_unknown(event, column)
        ]
        if not part.unchanged[i]:
            del part.unchanged[i]
        for column in _refused(event, left_out):
            part.errors.setdefault(i, is_missing(column))


def _is_unknown(event: Event, column: T.StructField) -> bool:
    """Whether a placeholder stands for a value."""
    if event.row is None or event.row.get(column.name) is None:
        return False
    return event.op == "read" or not column.nullable or not sources.is_of_mysql(event.source)


def _refused(event: Event, left_out: Sequence[T.StructField]) -> Iterator[T.StructField]:
    """The columns that cannot be null and are."""
    return (one for one in left_out if not one.nullable and not _is_unknown(event, one))
