"""Reads the envelopes that most records are, faster: of ``source`` and ``transaction`` only what is asked for.

====================================================  ==============================================
The value is                                          It is read
====================================================  ==============================================
an envelope in JSON whose ``op`` is ``c``, ``u``,     here
``r``, with a row in ``after``; or ``d``
the same behind a schema that was read before         here
anything else, such as a flattened row, and what      by `tablestream.connectors.debezium.records`
cannot be decoded
====================================================  ==============================================

Both ways say the same of a record, but for what no column holds: a row in ``before``, for instance, must be JSON here,
and may have numbers that Python cannot hold. Bytes that are not UTF-8 must not come here: what is skipped is not
looked at for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import msgspec

from tablestream.connectors.debezium.foreign import decimal_of
from tablestream.connectors.debezium.records import MONGODB, OPERATIONS, ROWS, WHOLE, Event, Reader
from tablestream.connectors.debezium.source import READ

#: How an envelope begins: a flattened row, which begins otherwise, is not tried in vain.
_BEGINNINGS = (b'{"before":', b'{"after":')
_FAILURES = (ValueError, RecursionError, ArithmeticError)


class _Transaction(TypedDict, total=False):
    id: Any
    total_order: Any


@dataclass(frozen=True)
class UsualEnvelopes:
    """Reads values that are usual envelopes."""

    reader: Reader
    """Knows the schemas that were read before."""
    fields: tuple[str, ...] = ()
    """The fields of ``source`` that become columns."""

    def event(self, payload: bytes) -> Event | None:
        """Say what a value means; None if it is no usual envelope."""
        start, wire = 0, None
        if not payload.startswith(_BEGINNINGS):
            known = self.reader.known_schema(payload)
            if known is None or not payload.startswith(_BEGINNINGS, known[0]):
                return None
            start, wire = known
        try:
            found = self._decode(memoryview(payload)[start:-1] if start else payload)
        except _FAILURES:
            return None
        op, row = OPERATIONS.get(found.op), found.after
        if found.source.get("connector") == MONGODB:
            return None
        if op in ROWS and row is not None:
            row_wire = None if wire is None else wire.field("after")
            return Event(op, row, row_wire, found.source, found.transaction or {}, found.op in WHOLE)
        if op == "delete":
            return Event(op, None, None, found.source, found.transaction or {})
        return None

    @cached_property
    def _decode(self) -> Callable[[bytes | memoryview], Any]:
        names = sorted({*READ, *self.fields})
        source = TypedDict("source", dict.fromkeys(names, Any), total=False)  # type: ignore[misc]  # made here
        row = dict[str, Any] | None
        envelope = msgspec.defstruct(
            "Envelope",
            [
                ("source", source),
                ("op", str),
                ("after", row, None),
                ("transaction", _Transaction | None, None),
            ],
            gc=False,
        )
        return msgspec.json.Decoder(envelope, float_hook=decimal_of).decode
