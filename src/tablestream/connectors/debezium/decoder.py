"""Decodes records of Debezium: bytes of keys, values and headers in, one row for each record out.

===============  ==============================================================================================
Column           It holds
===============  ==============================================================================================
``op``           ``upsert``; ``read``: a row of a snapshot; ``delete``; ``truncate``; ``skip``: no change of a
                 row, such as a logical message or a heartbeat; null if the record cannot be decoded
``key``          the key's columns, of an upsert, read or delete
``value``        the other columns, and the chosen fields of ``source``; of an upsert or read
``unchanged``    the positions in ``value`` of columns that are unchanged and unknown; null if none
``moved_from``   of an insert that a change of the key made: the key before
``moved_to``     of a delete that a change of the key made: the key after
``position``     sorts, as bytes, in commit order (`source.py`); null if the record has none
``ts_us``        when the database made the change, in microseconds since 1970
``snapshot``     of a row of a snapshot: ``true``, ``first``, ``last``, ``incremental`` ...; null for a change
``transaction``  its name; null if the connector does not give it
``total_order``  the event's number in its transaction, or null
``added``        the names of fields without a column, or null
``error``        why the record cannot be decoded, or null
===============  ==============================================================================================

Independent of Spark but for its types. No record raises: what cannot be decoded is a row with an error. Where one
fails in a way that nothing foresees, its neighbours are decoded without it. Only a schema registry that does not
answer raises.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_string
from tablestream.arguments.words import check_known
from tablestream.connectors.debezium import source as sources
from tablestream.connectors.debezium.added import Fields, LeftOut
from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.batch import META_TYPES, RecordReader, Records
from tablestream.connectors.debezium.columns import Columns, Errors, FilledColumns, Filling, Row, is_missing
from tablestream.connectors.debezium.converters import is_held
from tablestream.connectors.debezium.foreign import NOT_OF_A_RECORD
from tablestream.connectors.debezium.placeholder import DEFAULT, Placeholder
from tablestream.connectors.debezium.records import Event, Reader
from tablestream.connectors.debezium.scalars import Binary, Decimals, Modes
from tablestream.connectors.debezium.types import Unit
from tablestream.connectors.debezium.usual import UsualEnvelopes
from tablestream.connectors.debezium.wire import Wire
from tablestream.connectors.spark_types import arrow_schema, arrow_type
from tablestream.errors import ArgumentError, UnsupportedTypeError

TimeMode = Literal["milliseconds", "microseconds", "nanoseconds", "isostring", "connect"]
#: Rows that are Python objects at the same time.
_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class DebeziumDecoder:
    """Decodes the records of one table.

    A record with a schema is read by its schema, so `decimals` and `times` concern records without one.

    Examples
    --------
    >>> key = T.StructType([T.StructField("id", T.IntegerType(), False)])
    >>> decoder = DebeziumDecoder(Columns(key, T.StructType([T.StructField("name", T.StringType())])))
    >>> value = b'{"op": "c", "before": null, "after": {"id": 7, "name": "Ada"}, "source": {}}'
    >>> row = decoder.decode(pa.array([b'{"id": 7}']), pa.array([value]), pa.nulls(1))[0]
    >>> row["op"].as_py(), row["key"].as_py(), row["value"].as_py()
    ('upsert', {'id': 7}, {'name': 'Ada'})
    """

    columns: Columns
    """The table's columns, such as `infer` finds them."""
    decimals: Decimals = "precise"
    """``decimal.handling.mode`` of the connector."""
    times: TimeMode | Mapping[str, TimeMode] = "microseconds"
    """The unit of dates and times, ``milliseconds``, ``microseconds``, ``nanoseconds``, ``isostring`` or ``connect``;
    or a unit for each column that is named, as in ``{"opened": "milliseconds"}``. A string column that is named here
    may hold times of day."""
    binary: Binary = "bytes"
    """``binary.handling.mode`` of the connector."""
    placeholder: str = DEFAULT
    """``unavailable.value.placeholder`` of the connector."""
    unchanged: tuple[str, ...] = ()
    """Columns of `columns.value` whose null means "as before", for records with partial rows; but see `_settle`."""
    source: tuple[str, ...] = ()
    """Fields of ``source`` to add to the value, each as a column ``source_<field>``."""
    prefix: str = "__"
    """``add.fields.prefix``: what begins the names of metadata in flattened rows."""
    avro: AvroReader | None = None
    """Reads records in Avro, if they are."""
    headers_known: bool = True
    """Whether records come with their headers, which tell an insert from a change of the key."""
    except_columns: tuple[str, ...] = ()
    """Fields of the rows that are left out on purpose."""

    def __post_init__(self) -> None:
        _check_modes(self.decimals, self.times, self.binary, self.placeholder)
        _check_prefix(self.prefix)
        _check_columns(self.columns, self.unchanged, self.source, self.except_columns)

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # without what is cached

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows that `decode` returns."""
        return arrow_schema(self.result)

    @property
    def result(self) -> T.StructType:
        """The same as Spark's types."""
        key, text = self.columns.key, T.StringType()
        return (
            T.StructType()
            .add("op", text)
            .add("key", key)
            .add("value", self.value_columns)
            .add("unchanged", T.ArrayType(T.ShortType()))
            .add("moved_from", key)
            .add("moved_to", key)
            .add("position", text)
            .add("ts_us", T.LongType())
            .add("snapshot", text)
            .add("transaction", text)
            .add("total_order", T.LongType())
            .add("added", T.ArrayType(text))
            .add("error", text)
        )

    @property
    def value_columns(self) -> T.StructType:
        """The columns of ``value``: those of the table, then those of ``source``."""
        chosen = [
            T.StructField(f"source_{name}", sources.field_type(name) or T.StringType())
            for name in self.source
        ]
        return T.StructType([*self.columns.value.fields, *chosen])

    def decode(self, key: pa.Array, value: pa.Array, headers: pa.Array) -> pa.StructArray:
        """Decode records: one row of `schema` for each, in order.

        Keys and values are binary, headers lists of structs of a name and a value; null for none.
        """
        starts = range(0, len(key), _ROWS_AT_ONCE)
        slices = [[one.slice(at, _ROWS_AT_ONCE) for one in (key, value, headers)] for at in starts]
        with _uncollected():
            pieces = [piece for one in slices for piece in self._pieces(*one)]
        return pa.concat_arrays(pieces) if pieces else pa.array([], pa.struct(list(self.schema)))

    def _pieces(self, key: pa.Array, value: pa.Array, headers: pa.Array) -> Iterator[pa.StructArray]:
        """Decode records; while something fails, each half of them alone, down to the record that does."""
        try:
            yield self._decode(key, value, headers)
        except NOT_OF_A_RECORD:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, a record caused it)
            if len(key) == 1:
                why = f"the record cannot be decoded ({type(error).__name__})"
                yield pa.array([{"error": why}], pa.struct(list(self.schema)))
                return
            half = len(key) // 2
            for at in (0, half):
                yield from self._pieces(
                    *(one.slice(at, half if at == 0 else None) for one in (key, value, headers))
                )

    def _decode(self, key: pa.Array, value: pa.Array, headers: pa.Array) -> pa.StructArray:
        records = self._reader.read(key, value, headers)
        rows = [event.row for event in records.events]
        keys = self._keys.fill(records.keys, records.key_wires)
        values = self._values.fill(rows, [event.wire for event in records.events])
        _settle(values, records.events, self.columns.value, headers_known=self.headers_known)
        (froms, before), (tos, after) = (
            self._moved(moved, len(rows)) for moved in (records.moved_from, records.moved_to)
        )
        chosen = self._source_columns(records)
        added = self._fields.added(rows)
        self.left_out.look(rows)
        errors: Errors = {}
        for found in (records.errors, keys.errors, values.errors, before.errors, after.errors):
            errors = found | errors
        errors |= self._fields.refusals(records.events, added)
        ops = [event.op for event in records.events]
        for i in errors:
            ops[i] = None
        gone = _missing(rows, errors)
        arrays = [
            pa.array(ops, pa.string()),
            _struct(self.columns.key, keys.columns, _missing(records.keys, errors)),
            _struct(self.value_columns, [*values.columns, *chosen], gone),
            _lists(values.unchanged, gone, self.schema.field("unchanged").type),
            _struct(self.columns.key, before.columns, _missing(froms, errors)),
            _struct(self.columns.key, after.columns, _missing(tos, errors)),
            *(
                pa.array(one, kind)
                for one, kind in zip(zip(*records.meta, strict=True), META_TYPES, strict=True)
            ),
            _lists(added, gone, self.schema.field("added").type),
            pa.array(map(errors.get, range(len(rows))), pa.string(), size=len(rows)),
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self.schema))

    @cached_property
    def left_out(self) -> LeftOut:
        """Which of `except_columns` no record has had."""
        return LeftOut(self.except_columns)

    @cached_property
    def _modes(self) -> Modes:
        return Modes(self.decimals, _units(self.times), self.binary)

    @cached_property
    def _keys(self) -> Filling:
        return Filling(self.columns.key, self._modes)

    @cached_property
    def _values(self) -> Filling:
        placeholder = Placeholder(self.placeholder)
        return Filling(self.columns.value, self._modes, placeholder, frozenset(self.unchanged))

    @cached_property
    def _reader(self) -> RecordReader:
        reader = Reader(self.prefix, self.avro, tuple(self.columns.value.names))
        return RecordReader(reader, tuple(self.columns.key.names), UsualEnvelopes(reader, self.source))

    @cached_property
    def _fields(self) -> Fields:
        key, value = self.columns.key.names, self.columns.value.names
        return Fields(
            frozenset((*key, *value, *self.except_columns)), frozenset(value).difference(self.unchanged)
        )

    def _moved(
        self, moved: Mapping[int, tuple[Row, Wire | None]], size: int
    ) -> tuple[list[Row | None], FilledColumns]:
        """Convert the keys before or after a change of the key."""
        rows: list[Row | None] = [None] * size
        wires: list[Wire | None] = [None] * size
        for i, (row, wire) in moved.items():
            rows[i], wires[i] = row, wire
        return rows, self._keys.fill(rows, wires)

    def _source_columns(self, records: Records) -> list[pa.Array]:
        """Return the chosen fields of ``source``, of rows."""
        columns = []
        for name in self.source:
            values: list[Any] = [None] * len(records.events)
            for i, event in enumerate(records.events):
                try:
                    values[i] = sources.field_value(event.source, name)
                except sources.BadSourceError as error:
                    records.errors.setdefault(i, str(error))
            columns.append(pa.array(values, arrow_type(sources.field_type(name) or T.StringType(), name)))
        return columns


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python's garbage collector from looking at rows that die anyway: they have no cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _struct(columns: T.StructType, arrays: list[pa.Array], mask: list[bool]) -> pa.StructArray:
    """Make a struct of columns, null where `mask` is true."""
    return pa.StructArray.from_arrays(
        arrays, fields=list(arrow_schema(columns)), mask=pa.array(mask, pa.bool_())
    )


def _missing(rows: list[Row | None], errors: Errors) -> list[bool]:
    """Whether each row is null: there is none, or it cannot be decoded."""
    missing = [row is None for row in rows]
    for i in errors:
        missing[i] = True
    return missing


def _lists(found: Mapping[int, list[Any]], gone: list[bool], kind: pa.DataType) -> pa.Array:
    """Return the lists of the rows that have one."""
    if not found:
        return pa.nulls(len(gone), kind)
    return pa.array([None if out else found.get(i) for i, out in enumerate(gone)], kind)


def _settle(
    part: FilledColumns, events: Sequence[Event], columns: T.StructType, *, headers_known: bool
) -> None:
    """Make null what inserts and rows of snapshots leave out, if there is no row before them: it is not as before.

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


def _units(times: TimeMode | Mapping[str, TimeMode]) -> dict[str, Unit]:
    """Return the unit of each column that is named, and under an empty name that of all others."""
    named = times if isinstance(times, Mapping) else {"": times}
    return {name: "milliseconds" if mode == "connect" else mode for name, mode in named.items()}


def _check_modes(
    decimals: str, times: TimeMode | Mapping[str, TimeMode], binary: str, placeholder: str
) -> None:
    check_known("decimals", decimals, get_args(Decimals))
    check_known("binary", binary, get_args(Binary))
    for mode in times.values() if isinstance(times, Mapping) else [times]:
        check_known("times", mode, get_args(TimeMode))
    check_string(placeholder, "placeholder", "the connector's unavailable.value.placeholder")
    try:
        Placeholder(placeholder)
    except ValueError as error:
        raise ArgumentError(
            f"placeholder={placeholder!r} is not hexadecimal after 'hex:'.",
            hint="Give the connector's unavailable.value.placeholder as it is.",
        ) from error


def _check_prefix(prefix: Any) -> None:
    """Refuse an empty text as what begins the names of metadata: nothing would tell these from columns."""
    if not isinstance(prefix, str) or not prefix:
        raise ArgumentError(
            f"field_prefix={prefix!r} does not tell the metadata of flattened records from their columns.",
            hint="Set the connector's add.fields.prefix, such as '__', and give field_prefix= the same.",
        )


def _check_columns(
    columns: Columns, unchanged: tuple[str, ...], source: tuple[str, ...], excepted: tuple[str, ...]
) -> None:
    """Refuse columns that share a name or are of a type that no record has, and names of columns that are not there."""
    if not columns.key.fields:
        raise ArgumentError("The table has no key columns.", hint="Name at least one.")
    for name in source:
        if sources.field_type(name) is None:
            raise ArgumentError(
                f"source={name!r} is not a field of Debezium's 'source'.",
                hint="See tablestream.connectors.debezium.source for the fields of each connector.",
            )
    names = [*columns.key.names, *columns.value.names, *(f"source_{name}" for name in source)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ArgumentError(
            f"Several columns are called {', '.join(twice)}.",
            hint="Give each column once, in the key or in the value.",
        )
    unknown = [name for name in unchanged if name not in columns.value.names]
    if unknown:
        raise ArgumentError(
            f"unchanged= names {', '.join(unknown)}, which is no column of the value.",
            hint=f"The columns are: {', '.join(columns.value.names)}.",
        )
    both = [name for name in excepted if name in names]
    if both:
        raise ArgumentError(
            f"except_columns= names {', '.join(both)}, which is a column of the table.",
            hint="Leave it out of columns=, or out of except_columns=.",
        )
    for column in (*columns.key, *columns.value):
        if not is_held(column.dataType):
            raise UnsupportedTypeError(
                f"The column '{column.name}' is {column.dataType.simpleString()}, which no record of Debezium holds.",
                hint="Make it a string or a bigint, and convert it with select(...).",
            )
