"""Avro as the record format of a topic: plain, or as Confluent's serializers write it.

Columns are written only if the schema holds them without loss: fastavro silently writes 1.5 as an int.

============================================  =====================================================
the column is                                 the schema may have
============================================  =====================================================
a number                                      a number of its kind (integer, float, decimal) that holds it in
                                              `tablestream.base.type_lattice`
array, map, struct                            the same, of parts that fit; of a struct by name
anything else                                 a type that reads as that column type
============================================  =====================================================

A timestamp may be written in milliseconds, except in a key, where two keys would become one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_installed, check_mapping, flag
from tablestream.base.type_lattice import holds, misfits
from tablestream.connectors.avro.codec import MAGIC, AvroEncoder, ConfluentAvro, PlainAvro, decoded
from tablestream.connectors.avro.registry import Registry
from tablestream.connectors.avro.schema import AvroSchema, columns_of, fields_of
from tablestream.connectors.formats import Decoder, Encoder, Part
from tablestream.errors import ArgumentError

Schema = str | Mapping[str, Any] | Sequence[Any]
_REGISTRY = 'Give its URL, or the settings of confluent-kafka\'s client, such as {"url": ...}.'


@dataclass(frozen=True)
class AvroFormat:
    """Avro with one schema; made by `avro`."""

    schema: AvroSchema

    def decoder(self, part: Part, topics: Sequence[str]) -> Decoder:  # noqa: ARG002 (the protocol's)
        return _decoder(PlainAvro(self.schema), self.schema, part)

    def encoder(self, part: Part, topic: str, columns: T.StructType) -> Encoder:
        return _encoder(self.schema, b"", part, topic, columns)


@dataclass(frozen=True)
class ConfluentAvroFormat:
    """Avro with schemas in a registry; made by `confluent_avro`."""

    registry: Registry
    schema: AvroSchema | None
    subject: str | None
    register: bool

    def decoder(self, part: Part, topics: Sequence[str]) -> Decoder:
        """Read each record with its own schema, into the given schema or the subject's latest."""
        if self.schema is None and self.subject is None and len(topics) != 1:
            raise ArgumentError(
                f"Several topics have several {part} schemas, one subject each.",
                hint="Give confluent_avro(...) a schema= to read all records with, or a subject=.",
            )
        schema = self.schema or self.registry.latest(self._subject(part, topics[0]))[1]
        return _decoder(ConfluentAvro(self.registry, schema), schema, part)

    def encoder(self, part: Part, topic: str, columns: T.StructType) -> Encoder:
        """Write with the given schema, registered if need be, or with the subject's latest."""
        subject = self._subject(part, topic)
        if self.schema is None:
            number, schema = self.registry.latest(subject)
        else:
            schema = self.schema
            number = self.registry.number(subject, schema, register=self.register)
        return _encoder(schema, MAGIC + number.to_bytes(4), part, topic, columns)

    def _subject(self, part: Part, topic: str) -> str:
        return self.subject or f"{topic}-{part}"


def avro(schema: Schema) -> AvroFormat:
    """Keys or values in plain Avro: only the fields of one schema, known in advance.

    Parameters
    ----------
    schema
        The Avro schema, as JSON text or as a dict. The fields of a record become columns; any other schema becomes
        one column, ``key`` or ``value``.

    Returns
    -------
    AvroFormat
        For `from_kafka` and `to_kafka`.

    Raises
    ------
    ArgumentError
        It is not a schema, or the package fastavro is not installed.

    Notes
    -----
    ======================================  ======================================================
    Avro                                    Spark
    ======================================  ======================================================
    boolean, int, long, float, double       boolean, int, bigint, float, double
    string, enum                            string
    bytes, fixed; with ``decimal``          binary; decimal
    ``date``                                date
    ``timestamp-millis``, ``-micros``       timestamp; with ``local-`` before it timestamp_ntz
    array, map, record                      array, map, struct
    union of null and a type                that type
    union of int and long, float and double bigint, double
    ======================================  ======================================================

    Other unions and recursive records are refused when the plan is built. A column is written as the Avro type that
    reads as its type, or as a wider one that has all its values (int as long, float as double). A timestamp may be
    written in milliseconds, which truncates it, but not in a key.

    Examples
    --------
    >>> quote = {"type": "record", "name": "Quote", "fields": [{"name": "price", "type": "double"}]}
    >>> avro(quote).decoder("value", ["quotes"]).columns.simpleString()
    'struct<price:double>'
    """
    check_installed("fastavro", "avro", "This format")
    return AvroFormat(AvroSchema.of(schema))


def confluent_avro(
    registry: str | Mapping[str, Any],
    *,
    schema: Schema | None = None,
    subject: str | None = None,
    register: bool = True,
) -> ConfluentAvroFormat:
    """Keys or values as Confluent's Avro serializers write them: a zero byte, the schema's number, the record.

    Parameters
    ----------
    registry
        The URL of the schema registry, or the settings of confluent-kafka's client, such as ``{"url": ...,
        "basic.auth.user.info": ...}``.
    schema
        The schema for reading, into which Avro's rules convert every record, and for writing. Default: the
        subject's latest schema when the plan is built; a new version then makes a different plan.
    subject
        Default: the topic's name and ``-key`` or ``-value``.
    register
        Whether a query that writes registers `schema` if the registry does not have it.

    Returns
    -------
    ConfluentAvroFormat
        For `from_kafka` and `to_kafka`.

    Raises
    ------
    ArgumentError
        It is not a schema, or a package is not installed.

    Notes
    -----
    Types are those of `avro`. Schemas that refer to others work. A record whose number the registry does not have
    cannot be decoded. A registry that does not answer ends the query, whatever ``on_error`` says.
    """
    check_installed("fastavro", "avro", "This format")
    check_installed("confluent-kafka", "registry", "This format")
    if subject is not None and not isinstance(subject, str):
        raise ArgumentError(f"subject={subject!r} is not a name.", hint="Omit subject=, or give a string.")
    settings = _settings(registry)
    given = None if schema is None else AvroSchema.of(schema)
    return ConfluentAvroFormat(Registry(settings), given, subject, flag(register, "register"))


def _settings(registry: Any) -> str:
    """The settings of the registry's client as JSON. No error shows a value, which can be a password."""
    if isinstance(registry, str):
        return json.dumps({"url": registry})
    if not isinstance(registry, Mapping):
        raise ArgumentError(
            f"registry= is a {type(registry).__name__}, neither a URL nor settings.", hint=_REGISTRY
        )
    check_mapping(registry, "registry")
    try:
        return json.dumps(dict(registry))
    except (TypeError, ValueError):
        raise ArgumentError(
            "registry= has a setting that cannot be sent to Spark's workers: neither a text nor a number.",
            hint=_REGISTRY,
        ) from None


def _decoder(decode: Callable[[bytes], Any], schema: AvroSchema, part: Part) -> Decoder:
    columns, kind, is_record = columns_of(schema, part)
    wrapped = None if is_record else part

    def avro(payloads: pa.Array) -> pa.Array:
        return decoded(payloads.to_pylist(), decode, kind, wrapped)

    result = T.StructType([T.StructField("row", columns), T.StructField("error", T.StringType())])
    parse = _on_workers(avro, result)
    return Decoder(
        columns,
        parse=lambda raw: [parse(raw)],
        row=lambda _, parsed: [parsed[0].getField("row").getField(name) for name in columns.names],
        error=lambda _, parsed: parsed[0].getField("error"),
    )


def _encoder(schema: AvroSchema, prefix: bytes, part: Part, topic: str, columns: T.StructType) -> Encoder:
    _, _, is_record = columns_of(schema, part)
    check_columns(schema, part, topic, columns)
    encode = AvroEncoder(schema, prefix, None if is_record else columns.names[0])

    def avro(rows: pa.Array) -> pa.Array:
        return encode(rows)

    return _on_workers(avro, T.BinaryType())


def _on_workers(function: Callable[[pa.Array], pa.Array], result: T.DataType) -> Callable[[Column], Column]:
    """Turn a function of Arrow arrays into a function of Columns."""
    made: Callable[[Column], Column] = F.arrow_udf(function, result)  # type: ignore[attr-defined]  # PySpark's stubs lack it
    return made


def check_columns(schema: AvroSchema, part: Part, topic: str, columns: T.StructType) -> None:
    """Refuse columns without a field of their type, and fields without a column or a default: all of them."""
    wrong = list(_wrong(schema, part, columns))
    if wrong:
        raise ArgumentError(
            f"The Avro schema for the {part} of topic '{topic}' has {', '.join(wrong)}.",
            hint="Make the columns those of the schema with select(...), or change the schema.",
        )


def _wrong(schema: AvroSchema, part: Part, columns: T.StructType) -> Iterator[str]:
    """What the schema has that does not fit."""
    wanted, kind, is_record = columns_of(schema, part)
    if not is_record:  # the first column, whatever it is called
        if not columns.fields:
            yield f"a {wanted[0].dataType.simpleString()} and no column for it"
            return
        wanted = T.StructType([T.StructField(columns.names[0], wanted[0].dataType)])
    for wrong in misfits(columns, wanted, "", holds=_holds):
        given = "" if wrong.stored is None else f", which is {wrong.given}"
        yield f"{wrong.stored or 'no field'} for the column {wrong.name}{given}"
    for one in fields_of(schema) if is_record else ():
        if one["name"] not in columns.names and "default" not in one:
            yield f"a field {one['name']} without a default and without a column"
    for name, timed, arrow in zip(wanted.names, kind.timed, kind.arrow, strict=True):
        if part == "key" and timed.type != arrow.type:
            yield f"milliseconds for the column {name}, so that several keys could become one"


def _holds(wanted: T.DataType, given: T.DataType) -> bool:
    """Whether fastavro writes every value of one type as the other: it makes no decimal of an integer."""
    for kind in (T.IntegralType, T.FloatType | T.DoubleType, T.DecimalType):
        if isinstance(wanted, kind) and isinstance(given, kind):
            return holds(wanted, given)
    return type(wanted) is type(given)
