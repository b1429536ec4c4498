"""Avro on Spark's workers: bytes to rows and back, record by record, with fastavro.

This module is independent of Spark. Any bytes become either a row or a reason why they cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.base.data_text import cut_text, leave_out_data, leaves_out_data
from tablestream.connectors.avro.registry import NoSchemaError, Registry
from tablestream.connectors.avro.schema import (
    AvroKind,
    AvroSchema,
    has_plain_boolean,
    parsed,
    to_write,
    why_endless,
    why_other_numbers,
)
from tablestream.errors import RecordEncodingError
from tablestream.operators.calendar import DAY_US, FIRST_US, LAST_US

MAGIC = b"\x00"
_PREFIX_BYTES = 5


class UndecodableError(Exception):
    """The bytes are not a valid record; the text says why."""


class UnusableSchemaError(UndecodableError):
    """A schema number that cannot be used for reading, so that no record with it can be decoded."""


@dataclass(frozen=True)
class PlainAvro:
    """Records of one schema that contain only its fields."""

    schema: AvroSchema

    def __call__(self, payload: bytes) -> Any:
        return read(payload, self.schema, self.schema)


@dataclass(frozen=True)
class ConfluentAvro:
    """Records that begin with a zero byte and the four bytes of their schema's number in a registry.

    Each record is read with the schema it was written with, and converted to the reader's.
    """

    registry: Registry
    schema: AvroSchema

    def __call__(self, payload: bytes) -> Any:
        if len(payload) < _PREFIX_BYTES or payload[:1] != MAGIC:
            raise UndecodableError("it does not begin with a zero byte and a schema number")
        written = self._written(int.from_bytes(payload[1:_PREFIX_BYTES]))
        return read(payload[_PREFIX_BYTES:], written, self.schema)

    def _written(self, number: int) -> AvroSchema:
        """Find the schema of a number, and check that it can be read as the wanted one."""
        try:
            written = self.registry.schema(number)
        except NoSchemaError as error:
            raise UnusableSchemaError(str(error)) from error
        why = why_endless(written) or why_other_numbers(written, self.schema)
        if why is not None:
            raise UnusableSchemaError(f"Avro schema {number} {why}")
        return written


def read(payload: bytes, written: AvroSchema, wanted: AvroSchema) -> Any:
    """Read one whole record.

    Raises `UndecodableError` if the bytes are not a record of the schema `written`, if some are left, or if they cannot
    be converted to the schema `wanted`.
    """
    from fastavro import schemaless_reader

    stream = BytesIO(payload)
    writer = parsed(written, converts=False)
    reader = None if written == wanted else parsed(wanted, converts=False)
    try:
        value = schemaless_reader(stream, writer, reader)
    except Exception as error:  # the reader may raise anything for arbitrary bytes
        raise UndecodableError(f"it is not Avro of this schema ({type(error).__name__})") from error
    if stream.tell() != len(payload):
        raise UndecodableError("there are bytes after the Avro record")
    if value is None:
        raise UndecodableError("it is an Avro null")
    return value


def decoded(
    payloads: Sequence[bytes | None], decode: Callable[[bytes], Any], kind: AvroKind, wrapped: str | None
) -> pa.StructArray:
    """Decode records of the struct type `kind`: ``row`` and ``error`` of each, both null for a missing record.

    `decode` raises `UndecodableError`. `wrapped` is the name of the only column, if the schema is not a record.
    """
    rows: list[Any] = []
    errors: list[str | None] = []
    unusable: dict[bytes, str] = {}  # ask the registry only once for what it does not have
    for payload in payloads:
        row, error = None, None
        if payload is not None and (error := unusable.get(payload[:_PREFIX_BYTES])) is None:
            try:
                row = decode(payload)
            except UndecodableError as found:
                error = str(found)
                if isinstance(found, UnusableSchemaError):
                    unusable[payload[:_PREFIX_BYTES]] = error
        rows.append(row if wrapped is None or row is None else {wrapped: row})
        errors.append(error)
    array = _in_arrow(rows, errors, kind)
    return pa.StructArray.from_arrays([array, pa.array(errors, pa.string())], ["row", "error"])


def _in_arrow(rows: list[Any], errors: list[str | None], kind: AvroKind) -> pa.Array:
    """Convert rows to Arrow's types; a row that does not fit (an int of 40 bits) becomes an error."""
    try:
        return _converted(rows, kind)
    except (pa.ArrowException, OverflowError):
        for number, row in enumerate(rows):
            try:
                _converted([row], kind)
            except (pa.ArrowException, OverflowError):
                rows[number], errors[number] = None, "a number does not fit the schema's type"
        return _converted(rows, kind)


def _converted(rows: list[Any], kind: AvroKind) -> pa.Array:
    converted = pa.array(rows, kind.read).cast(kind.timed).cast(kind.arrow)
    _check_times(converted)
    return converted


def _check_times(values: pa.Array) -> None:
    """Raise for a time outside the years 1 to 9999: its writer counts in another unit than its schema says."""
    kind = values.type
    if pa.types.is_struct(kind):
        for part in values.flatten():
            _check_times(part)
    elif pa.types.is_map(kind):
        _check_times(values.items)
    elif pa.types.is_list(kind):
        _check_times(values.flatten())
    elif pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        numbers = (
            pc.cast(values.view(pa.int32()), pa.int64())
            if pa.types.is_date32(kind)
            else values.view(pa.int64())
        )
        least, most = pc.min_max(numbers).as_py().values()
        unit_us = DAY_US if pa.types.is_date32(kind) else 1
        if least is not None and not (least * unit_us >= FIRST_US and most * unit_us <= LAST_US):
            raise OverflowError


@dataclass(frozen=True)
class AvroEncoder:
    """Writes records of one schema, each after a prefix."""

    schema: AvroSchema
    prefix: bytes = b""
    wrapped: str | None = None
    left_out: bool = field(default_factory=leaves_out_data)

    def __call__(self, rows: pa.StructArray) -> pa.Array:
        leave_out_data(self.left_out)
        try:
            schema, checked = to_write(self.schema), has_plain_boolean(self.schema)
            encoded = [
                self._encoded(row, schema, checked=checked)
                for row in rows.to_pylist(maps_as_pydicts="strict")
            ]
        except Exception as error:  # the writer may raise anything for a bad value
            raise RecordEncodingError(
                f"A row cannot be written as Avro: {type(error).__name__}: {cut_text(str(error))}",
                hint="Make the columns fit the schema with select(...), or change the schema.",
            ) from error
        return pa.array(encoded, pa.binary())

    def _encoded(self, row: Any, schema: Any, *, checked: bool) -> bytes | None:
        from fastavro import schemaless_writer
        from fastavro.validation import validate

        if row is None:
            return None
        value = row if self.wrapped is None else row[self.wrapped]
        if checked:  # only for a plain boolean does the writer accept null
            validate(value, schema)
        stream = BytesIO()
        stream.write(self.prefix)
        schemaless_writer(stream, schema, value, strict_allow_default=True)
        return stream.getvalue()
