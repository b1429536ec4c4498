"""The columns of a table, from records that carry their schema."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.foreign import NOT_OF_A_RECORD
from tablestream.connectors.debezium.records import DELETED, Event, Reader, UnreadableError
from tablestream.connectors.debezium.types import column_type
from tablestream.connectors.debezium.wire import Wire
from tablestream.errors import ArgumentError


def infer(
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    prefix: str = "__",
    avro: AvroReader | None = None,
) -> Columns:
    """Find a table's columns from records with schemas.

    Parameters
    ----------
    records
        Keys and values, in the order of their topic: the last row with a schema tells the columns.
    prefix
        ``add.fields.prefix``: what begins the names of metadata in flattened rows.
    avro
        Reads records in Avro, if they are.

    Returns
    -------
    Columns
        The default type of each field (`types.py`); nullable where the schema says optional.

    Raises
    ------
    ArgumentError
        No record has a row, a key and the schemas of both.

    Examples
    --------
    >>> schema = '{"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": false}]}'
    >>> wrapped = f'{{"schema": {schema}, "payload": {{"id": 7}}}}'.encode()
    >>> infer([(wrapped, wrapped)]).key.simpleString()
    'struct<id:int>'
    """
    reader = Reader(prefix, avro)
    found: tuple[Wire, Wire] | None = None
    for key, value in records:
        found = _schemas(reader, key, value) or found
    if found is None:
        raise ArgumentError(
            "No record has a key and a row with their schemas, so the columns are not known.",
            hint="Give the columns, or let the converter write schemas (schemas.enable=true, or Avro).",
        )
    key_columns = _columns(found[0], "")
    value_columns = _columns(found[1], prefix)
    others = [one for one in value_columns if one.name not in key_columns.names]
    return Columns(key_columns, T.StructType(others))


def _schemas(reader: Reader, key: bytes | None, value: bytes | None) -> tuple[Wire, Wire] | None:
    if key is None or value is None:
        return None
    try:
        of_key, of_value = reader.datum(key), reader.datum(value)
        event: Event = reader.event(of_value, of_key.value)
    except UnreadableError:
        return None
    except NOT_OF_A_RECORD:
        raise
    except Exception:  # noqa: BLE001 (whatever it is, the record caused it)
        return None
    if of_key.wire is None or not of_key.wire.fields or event.wire is None or event.row is None:
        return None
    return of_key.wire, event.wire


def _columns(wire: Wire, prefix: str) -> T.StructType:
    return T.StructType(
        [
            T.StructField(name, column_type(one), one.optional)
            for name, one in wire.fields
            if not prefix or not (name.startswith(prefix) or name == DELETED)
        ]
    )
