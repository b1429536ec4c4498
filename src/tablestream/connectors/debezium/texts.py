"""Texts and bytes of records as columns.

=======  =======================================================  =========================================
Kind     The record has                                           The column may be
=======  =======================================================  =========================================
text     text                                                     string; decimal, any integer, float, double:
                                                                  ``decimal.handling.mode=string``
text     bytes as ``binary.handling.mode`` writes them            binary
text     hstore as JSON                                           map of strings
binary   base64; bytes in Avro                                    binary
=======  =======================================================  =========================================

A string that comes without a schema may also be a decimal with its scale, or, if the column has a unit in ``times``, a
time of day.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.numbers import plain_text, text_decimal, variable
from tablestream.connectors.debezium.scalars import MisfitError, Modes, Scalar, text_bytes
from tablestream.connectors.debezium.times import time_as_text
from tablestream.connectors.debezium.types import JSON
from tablestream.connectors.debezium.wire import Wire


def text(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Convert text."""
    if isinstance(target, T.StringType):
        return Scalar(_guessed(wire) if wire.guessed else _text, pa.string(), plain=str)
    if isinstance(target, T.BinaryType):
        if modes.binary == "bytes" and not wire.guessed:
            return Scalar(_unknown_text, pa.binary())
        return Scalar(lambda value: text_bytes(value, modes.binary), pa.binary(), plain=bytes)
    if isinstance(target, T.MapType) and wire.name == JSON:
        return _hstore(target)
    return text_decimal(target) if not wire.name and isinstance(target, T.NumericType) else None


def binary(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Convert bytes."""
    if not isinstance(target, T.BinaryType):
        return None
    mode = modes.binary if wire.guessed else "bytes"
    return Scalar(lambda value: text_bytes(value, mode), pa.binary(), plain=bytes)


def hstore(value: Any) -> dict[str, str | None]:
    """Read hstore from its JSON."""
    try:
        return msgspec.json.decode(value, type=dict[str, str | None])
    except (ValueError, TypeError, RecursionError) as error:
        raise MisfitError("is not hstore as JSON") from error


def _hstore(target: T.MapType) -> Scalar | None:
    if not isinstance(target.keyType, T.StringType) or not isinstance(target.valueType, T.StringType):
        return None
    return Scalar(lambda value: list(hstore(value).items()), pa.map_(pa.string(), pa.string()))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise MisfitError("is not text")


def _unknown_text(_value: Any) -> bytes:
    raise MisfitError("is text for a binary column: set binary= to the connector's binary.handling.mode")


def _guessed(wire: Wire) -> Any:
    """Return what reads a string without a schema; a parameter ``unit`` makes a count a time of day."""
    unit = wire.parameter("unit")
    as_time = None if unit is None else time_as_text(unit)  # type: ignore[arg-type]  # a name of Unit

    def one(value: Any) -> str:
        if isinstance(value, dict):
            return plain_text(variable(value))
        return as_time(value) if as_time and not isinstance(value, str) else _text(value)

    return one
