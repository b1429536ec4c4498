"""What a conversion of one value is, and what it says if the value does not fit."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tablestream.connectors.debezium.types import Unit

Decimals = Literal["precise", "double", "string"]
_SHOWN = 60

Binary = Literal["bytes", "base64", "base64-url-safe", "hex"]


class MisfitError(Exception):
    """A value that its column cannot hold exactly; the text says why, after the value."""


@dataclass(frozen=True)
class Modes:
    """The modes of the connector, for what a record's schema does not say."""

    decimals: Decimals
    """``decimal.handling.mode``."""
    times: Mapping[str, Unit]
    """The unit of times, or a unit for each column that is named; ``""`` is for all others."""
    binary: Binary
    """``binary.handling.mode``."""

    def unit(self, column: str) -> Unit:
        return self.times.get(column) or self.times.get("") or "microseconds"


@dataclass(frozen=True)
class Scalar:
    """How values become those of a column."""

    one: Callable[[Any], Any]
    """Converts a value that is not null, or raises `MisfitError`."""
    storage: pa.DataType
    """The Arrow type of what `one` returns; it is cast to the column's."""
    plain: type | None = None
    """Values of exactly this Python type need no conversion."""
    bulk: Callable[[list[Any]], pa.Array] | None = None
    """Converts a whole column, or raises; then `one` says which value is wrong."""


def raw_bytes(value: Any) -> bytes:
    """Return the bytes of a value: as they are in Avro, base64 in JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise MisfitError("is not base64") from error
    raise MisfitError("is not base64")


def text_bytes(value: Any, binary: Binary) -> bytes:
    """Return the bytes of a text in a mode of ``binary.handling.mode``."""
    if isinstance(value, bytes) or not isinstance(value, str):
        return raw_bytes(value)
    try:
        if binary == "hex":
            return binascii.unhexlify(value)
        if binary == "base64-url-safe":
            return base64.b64decode(value, altchars=b"-_", validate=True)
    except ValueError as error:
        raise MisfitError(f"is not {binary}") from error
    return raw_bytes(value)


def shown(value: Any) -> str:
    """Return a value as errors show it: short."""
    if isinstance(value, (str, bytes)):
        value = value[:_SHOWN]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
