"""Decodes a database's transaction topic: which transactions have ended, with the number of events of each table.

=============================================  ==================================================
The record                                     Becomes
=============================================  ==================================================
``status`` is ``END``                          a row: ``transaction``, ``tables`` and ``events``
``status`` is ``BEGIN``; a null value          a row of nulls
anything else                                  a row with an ``error``
=============================================  ==================================================

Records have the forms of `records.py`: JSON with or without schemas, or Avro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tablestream.connectors.debezium.batch import transaction_name
from tablestream.connectors.debezium.foreign import NOT_OF_A_RECORD
from tablestream.connectors.debezium.records import Reader, UnreadableError

#: The columns of a row. ``events`` has the numbers of the ``tables``, in their order.
SCHEMA = pa.schema(
    [
        ("transaction", pa.string()),
        ("tables", pa.list_(pa.field("element", pa.string()))),
        ("events", pa.list_(pa.field("element", pa.int64()))),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class EndDecoder:
    """Decodes the values of a transaction topic.

    Examples
    --------
    >>> end = b'{"status": "END", "id": "7:90", "data_collections": [{"data_collection": "s.t", "event_count": 2}]}'
    >>> EndDecoder(Reader("__")).decode(pa.array([end])).to_pylist()
    [{'transaction': '7', 'tables': ['s.t'], 'events': [2], 'error': None}]
    """

    reader: Reader

    def decode(self, values: pa.Array) -> pa.StructArray:
        """Decode values: one row of `SCHEMA` for each, in order."""
        rows = [self._row(value) for value in values.to_pylist()]
        return pa.array(rows, pa.struct(list(SCHEMA)))

    def _row(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            found = self.reader.datum(value).value
            return {} if found is None else _end(found)
        except UnreadableError as error:
            return {"error": f"the value cannot be decoded: {error}"}
        except NOT_OF_A_RECORD:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the value caused it)
            return {"error": f"the value cannot be decoded ({type(error).__name__})"}


def _end(found: Any) -> dict[str, Any]:
    status = found.get("status") if isinstance(found, dict) else None
    if status not in ("BEGIN", "END"):
        raise UnreadableError("it is not the begin or end of a transaction")
    if status == "BEGIN":
        return {}
    name, parts = found.get("id"), found.get("data_collections") or []
    if not isinstance(name, str) or not isinstance(parts, Sequence):
        raise UnreadableError("it is an end without 'id' or 'data_collections'")
    tables, events = [], []
    for part in parts:
        table = part.get("data_collection") if isinstance(part, dict) else None
        count = part.get("event_count") if isinstance(part, dict) else None
        if not isinstance(table, str) or type(count) is not int or not 0 <= count < 1 << 63:
            raise UnreadableError("its 'data_collections' do not name tables with their 'event_count'")
        tables.append(table)
        events.append(count)
    return {"transaction": transaction_name(None, name), "tables": tables, "events": events}
