"""The bytes of a record's key or value: text, bytes, JSON; Avro has its own file.

A format turns bytes into columns and columns into bytes. If bytes cannot be decoded it reports why, and never
returns null silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Literal, Protocol, runtime_checkable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import columns_of
from tablestream.connectors.json_text import json_options
from tablestream.connectors.texts import Texts, Unit, Units, checked_units
from tablestream.errors import ArgumentError, RecordEncodingError

Part = Literal["key", "value"]
Encoder = Callable[[Column], Column]
"""Makes bytes, or text, of a struct of columns."""

NO_TEXT = "it is not UTF-8 text"
NO_JSON = "it is not JSON of this schema"

#: Two of their values may have one text: the hours of an autumn's clock change, the lists of "a, b" and of "a" and "b".
_SHARE_TEXTS = (T.TimestampType, T.ArrayType, T.MapType, T.StructType)

_CORRUPT = "__corrupt"
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


@dataclass(frozen=True)
class Decoder:
    """Turns bytes into columns, in two steps, because Spark would evaluate a costly expression wherever it is used."""

    columns: T.StructType
    parse: Callable[[Column], list[Column]]
    """The costly part: from the bytes to one or several intermediate results."""
    row: Callable[[Column, Sequence[Column]], list[Column]]
    error: Callable[[Column, Sequence[Column]], Column]
    """From bytes and intermediate results: the columns, and the reason if they cannot be decoded, else null. Without
    bytes all are null."""


@runtime_checkable
class Format(Protocol):
    """The format of a record's key or value."""

    def decoder(self, part: Part, topics: Sequence[str]) -> Decoder:
        """Return how the keys or values of some topics are read."""

    def encoder(self, part: Part, topic: str, columns: T.StructType) -> Encoder:
        """Return how columns are written as the keys or values of a topic."""


@dataclass(frozen=True)
class PlainFormat:
    """One column, without conversion: UTF-8 text, or bytes."""

    kind: Literal["string", "binary"]

    def decoder(self, part: Part, topics: Sequence[str]) -> Decoder:  # noqa: ARG002 (the protocol's)
        """Name the column after the part."""
        is_text = self.kind == "string"
        columns = T.StructType([T.StructField(part, T.StringType() if is_text else T.BinaryType())])

        return Decoder(
            columns,
            parse=lambda _: [],
            row=lambda raw, _: [raw.cast(self.kind)],
            error=lambda raw, _: _unless(
                F.is_valid_utf8(raw.cast("string")) if is_text else F.lit(True), raw, NO_TEXT
            ),
        )

    def encoder(self, part: Part, topic: str, columns: T.StructType) -> Encoder:
        one = self._checked(part, topic, columns)
        lost = F.raise_error(f"[{RecordEncodingError.code}] {_no_null(one.name, self.kind, part, topic)}")

        def encode(row: Column) -> Column:
            column = row.getField(one.name).cast(self.kind)
            return F.when(row.isNotNull() & column.isNull(), lost.cast(self.kind)).otherwise(column)

        return encode

    def _checked(self, part: Part, topic: str, columns: T.StructType) -> T.StructField:
        """Return the only column; refuse several, and one of another kind."""
        if len(columns) != 1:
            raise ArgumentError(
                f"'{self.kind}' is one column, and the {part} of topic '{topic}' has {len(columns)}"
                f" ({', '.join(columns.names)}).",
                hint=f'Give {part}="json", or keep only one with select(...).',
            )
        (one,) = columns
        if self.kind == "binary" and not isinstance(one.dataType, T.BinaryType | T.StringType):
            raise ArgumentError(
                f"The column '{one.name}' has type {one.dataType.simpleString()}, not bytes.",
                hint=f'Give {part}="string" or {part}="json".',
            )
        if part == "key" and self.kind == "string" and isinstance(one.dataType, _SHARE_TEXTS):
            raise ArgumentError(
                f"The column '{one.name}' has type {one.dataType.simpleString()}, and two values may have the same"
                f" text: they would become one key of topic '{topic}'.",
                hint='Give key="json", or turn it into a string with select(...).',
            )
        return one


@dataclass(frozen=True)
class Json:
    """A JSON object; reading needs its `schema`, and `units` of the numbers in its times."""

    schema: T.StructType | None = None
    units: Mapping[str, Unit] = field(default_factory=dict)

    def decoder(self, part: Part, topics: Sequence[str]) -> Decoder:  # noqa: ARG002 (the protocol's)
        if self.schema is None:
            raise ArgumentError(
                f'{part}="json" does not say which columns a record has.',
                hint=f"Give {part}= the schema, as in 'ticker string, price double'.",
            )
        schema = self.schema
        texts = Texts(schema, "json", self.units)

        def parse(raw: Column) -> list[Column]:
            text = raw.cast("string")
            columns = T.StructType([*texts.raw, T.StructField(_CORRUPT, T.StringType())])
            # Spark's parser stops after the first object. If the text ends with its first closing brace, that is the
            # whole text; otherwise the whole text is parsed, as the only element of an array.
            ends = F.octet_length(F.substring_index(text, "}", 1)) == F.octet_length(text) - 1
            length = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
            elements = F.when(ends, 1).otherwise(length)
            return [F.from_json(text, columns, _PERMISSIVE), elements]

        def raw_of(row: Column) -> dict[str, Column]:
            return {name: row.getField(name) for name in schema.names}

        def error(raw: Column, parsed: Sequence[Column]) -> Column:
            row, elements = parsed
            whole = row.isNotNull() & row.getField(_CORRUPT).isNull() & (elements == 1)
            misfits = [F.coalesce(one, F.lit(False)) for one in texts.misfits(raw_of(row)).values()]
            sound = reduce(and_, (~one for one in misfits), whole & F.is_valid_utf8(raw.cast("string")))
            return _unless(sound, raw, NO_JSON)

        return Decoder(
            schema,
            parse=parse,
            row=lambda _, parsed: list(texts.values(raw_of(parsed[0])).values()),
            error=error,
        )

    def encoder(self, part: Part, topic: str, columns: T.StructType) -> Encoder:  # noqa: ARG002 (the protocol's)
        """Write all columns, including nulls."""
        return lambda row: F.to_json(row, json_options())


def _no_null(column: str, kind: str, part: Part, topic: str) -> str:
    what = "would read as a delete" if part == "value" else "cannot be a key"
    return (
        f"The column '{column}' is null in a row, and the {part} of topic '{topic}' is '{kind}': null {what}."
        f' Give {part}="json", or filter such rows out.'
    )


def _unless(sound: Column, raw: Column, error: str) -> Column:
    """The error if there are bytes that cannot be decoded."""
    return F.when(raw.isNotNull() & ~F.coalesce(sound, F.lit(False)), F.lit(error))


def as_format(given: Format | T.StructType | str, part: Part, *, reads: bool) -> Format:
    """Return the format for a user's word, JSON schema, or Avro function; refuse anything else."""
    if isinstance(given, Format):
        return given
    words: dict[object, Format] = {
        "string": PlainFormat("string"),
        "binary": PlainFormat("binary"),
        "json": Json(),
    }
    if isinstance(given, str) and given in words:
        return words[given]
    ways = "'string', 'binary', " + ("a schema of JSON" if reads else "'json'") + ", tablestream.avro(...)"
    if reads and (schema := columns_of(given)) is not None:
        return Json(schema)
    raise ArgumentError(
        f"{part}={given!r} is not a record format.",
        hint=f"Give {ways} or tablestream.confluent_avro(...); JSON as in 'ticker string, price double'.",
    )


def with_units(formats: Mapping[Part, Format], times: Units) -> dict[Part, Format]:
    """Return the formats of keys and values with the units of times in their JSON, which must have such columns."""
    if times is None:
        return dict(formats)
    schemas = {part: one.schema for part, one in formats.items() if isinstance(one, Json) and one.schema}
    both = T.StructType([one for schema in schemas.values() for one in schema])
    units = checked_units(times, both)
    return {
        part: replace(one, units=units) if isinstance(one, Json) else one for part, one in formats.items()
    }
