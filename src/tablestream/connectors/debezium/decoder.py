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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium import source as sources
from tablestream.connectors.debezium.added import Fields, LeftOut
from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.batch import META_TYPES, Meta, RecordReader, Records
from tablestream.connectors.debezium.columns import Columns, Errors, Row
from tablestream.connectors.debezium.converters import arrow_type
from tablestream.connectors.debezium.filling import Filling, Part
from tablestream.connectors.debezium.foreign import NOT_OF_A_RECORD
from tablestream.connectors.debezium.inserts import settle
from tablestream.connectors.debezium.options import TimeMode, check_columns, check_modes, check_prefix, units
from tablestream.connectors.debezium.placeholder import DEFAULT, Placeholder
from tablestream.connectors.debezium.records import Reader
from tablestream.connectors.debezium.scalars import Binary, Decimals, Modes
from tablestream.connectors.debezium.usual import UsualEnvelopes
from tablestream.connectors.debezium.wire import Wire

#: Rows that are Python objects at the same time.
_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class DebeziumDecoder:
    """Decodes the records of one table.

    A record with a schema is read by its schema, so `decimals` and `times` concern records without one.

    Parameters
    ----------
    columns
        The table's columns, such as `infer` finds them.
    decimals
        ``decimal.handling.mode`` of the connector.
    times
        The unit of dates and times, ``milliseconds``, ``microseconds``, ``nanoseconds``, ``isostring`` or
        ``connect``; or a unit for each column that is named, as in ``{"opened": "milliseconds"}``. A string column
        that is named here may hold times of day.
    binary
        ``binary.handling.mode`` of the connector.
    placeholder
        ``unavailable.value.placeholder`` of the connector.
    unchanged
        Columns of `columns.value` whose null means "as before", for records with partial rows; but see `inserts`.
    source
        Fields of ``source`` to add to the value, each as a column ``source_<field>``.
    prefix
        ``add.fields.prefix``: what begins the names of metadata in flattened rows.
    avro
        Reads records in Avro, if they are.
    headers_known
        Whether records come with their headers, which tell an insert from a change of the key.
    except_columns
        Fields of the rows that are left out on purpose.

    Raises
    ------
    ArgumentError
        An option is invalid, or columns have one name.
    UnsupportedTypeError
        Records of Debezium cannot become a column of such a type.

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
    decimals: Decimals = "precise"
    times: TimeMode | Mapping[str, TimeMode] = "microseconds"
    binary: Binary = "bytes"
    placeholder: str = DEFAULT
    unchanged: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    prefix: str = "__"
    avro: AvroReader | None = None
    headers_known: bool = True
    except_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_modes(self.decimals, self.times, self.binary, self.placeholder)
        check_prefix(self.prefix)
        check_columns(self.columns, self.unchanged, self.source, self.except_columns)

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # without what is cached

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows that `decode` returns."""
        return pa.schema(list(arrow_type(self.result) or ()))

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
        """Decode records.

        Parameters
        ----------
        key, value
            Binary; null for none.
        headers
            Lists of structs of a name and a value; null for none.

        Returns
        -------
        StructArray
            One row of `schema` for each record, in order.
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
        settle(values, records.events, self.columns.value, headers_known=self.headers_known)
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
                pa.array(column, kind)
                for column, kind in zip(_transposed(records.meta), META_TYPES, strict=True)
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
        return Modes(self.decimals, units(self.times), self.binary)

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
    ) -> tuple[list[Row | None], Part]:
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
            columns.append(pa.array(values, arrow_type(sources.field_type(name) or T.StringType())))
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
        arrays, fields=list(arrow_type(columns) or ()), mask=pa.array(mask, pa.bool_())
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


def _transposed(meta: list[Meta]) -> list[list[Any]]:
    return [list(column) for column in zip(*meta, strict=True)] or [[] for _ in META_TYPES]
