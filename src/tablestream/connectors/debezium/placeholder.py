"""The value that Debezium writes where it does not know a column that did not change.

PostgreSQL keeps large values apart and does not send one that an update left alone. The record then has, if P is the
connector's ``unavailable.value.placeholder``:

=================================  ===========================================================
Type                               Value
=================================  ===========================================================
text, JSON and other texts         P
bytes                              the bytes of P: base64 in JSON, or as ``binary.handling.mode`` says
hstore                             ``{P: P}``, as a map or as JSON in a text
array of texts                     ``[P]``; of UUIDs ``[the version 3 UUID of the bytes of P]``
array of bytes                     ``[the bytes of P]``
array of numbers or dates          the bytes of P, each as a number
=================================  ===========================================================

A placeholder that begins with ``hex:`` gives its bytes in hexadecimal. A text of the user's that equals P cannot be
told apart from it.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import types as T

from tablestream.connectors.debezium.types import JSON, meaning_of
from tablestream.connectors.debezium.wire import Wire

DEFAULT = "__debezium_unavailable_value"
_HEX = "hex:"


@dataclass(frozen=True)
class Placeholder:
    """The connector's ``unavailable.value.placeholder``; `ValueError` if what follows ``hex:`` is not hexadecimal."""

    text: str = DEFAULT

    def __post_init__(self) -> None:
        _ = self.raw

    @property
    def raw(self) -> bytes:
        if self.text.startswith(_HEX):
            return bytes.fromhex(self.text.removeprefix(_HEX))
        return self.text.encode()

    def values(self, wire: Wire, target: T.DataType) -> list[Any]:
        """Return what a field of a schema holds instead of a value."""
        text = self.raw.decode(errors="replace")
        if meaning_of(wire).kind == "array" and wire.items is not None:
            return list(self._arrays(wire.items, text))
        if meaning_of(wire).kind == "map":
            return [{text: text}, *([_hstore(text)] if wire.guessed else [])]
        if wire.base == "bytes":
            return [] if meaning_of(wire).kind != "binary" else [*self._encoded(), self.raw]
        if wire.base != "string":
            return []
        as_map = wire.name == JSON or wire.guessed or isinstance(target, T.MapType)
        as_bytes = self._encoded() if isinstance(target, T.BinaryType) else []
        return [text, *as_bytes, *([_hstore(text)] if as_map else [])]

    def _arrays(self, items: Wire, text: str) -> Iterator[list[Any]]:
        if items.base == "string":
            yield [text]
            yield [str(uuid.UUID(bytes=hashlib.md5(self.raw, usedforsecurity=False).digest(), version=3))]
        elif items.base == "bytes":
            for one in (*self._encoded(), self.raw):
                yield [one]
        elif items.base.startswith("int"):
            yield list(self.raw)
        if items.guessed and items.base != "string":  # such as timestamps, which come as text
            yield [text]

    def _encoded(self) -> list[str]:
        """Its bytes in each mode, each text once: a value that is found twice would count twice."""
        base = (base64.b64encode(self.raw), base64.urlsafe_b64encode(self.raw))
        return list(dict.fromkeys((*(one.decode() for one in base), self.raw.hex())))


def _hstore(text: str) -> str:
    return msgspec.json.encode({text: text}).decode()
