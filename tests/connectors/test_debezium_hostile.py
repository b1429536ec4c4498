"""Records of Debezium with a value of another type at each place: a row or an error, in bounded time and space."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import settings
from pyspark.sql import types as T

from tablestream.connectors.debezium.added import announce
from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.ends import EndDecoder
from tablestream.connectors.debezium.foreign import escaped
from tablestream.connectors.debezium.numbers import bits
from tablestream.connectors.debezium.records import Reader
from tablestream.connectors.debezium.scalars import MisfitError, Modes
from tablestream.connectors.debezium.wire import Wire
from tablestream.errors import RegistryError
from tests.cdc.rows import KEY_7, NAMED, decode, envelope, wrapped
from tests.cdc.vectors import HEADERS, arrays, table_records, type_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cdc.vectors import Record

Path = tuple[str | int, ...]

#: JSON of each type that takes the place of a value; some of it is none.
HOSTILE: dict[str, bytes] = {
    "null": b"null",
    "bool": b"true",
    "zero": b"0",
    "negative": b"-1",
    "fraction": b"-0.5",
    "beyond 64 bits": b"9" * 30,
    "5,000 digits": b"9" * 5_000,
    "endless exponent": b"1e999999999",
    "endless fraction": b"0e-999999999",
    "impossible exponent": b"1e99999999999999999999",
    "text": b'"x"',
    "empty text": b'""',
    "text of 5,000 digits": b'"' + b"1" * 5_000 + b'"',
    "long text": b'"' + b"1" * 20_000 + b'x"',
    "endless exponent as text": b'"1e999999999"',
    "surrogate": b'"\\ud800"',
    "zero byte": b'"\\u0000"',
    "control character": b'"\n"',
    "list": b"[1]",
    "list of lists": b"[[1, 2], []]",
    "empty list": b"[]",
    "object": b'{"a": 1}',
    "empty object": b"{}",
    "scale": b'{"scale": -999999999, "value": "AQ=="}',
    "deep list": b"[" * 900 + b"]" * 900,
    "too deep list": b"[" * 20_000 + b"]" * 20_000,
    "deep object": b'{"a":' * 900 + b"1" + b"}" * 900,
}
_MARK = "here it comes"

SOURCES: dict[str, dict[str, Any]] = {
    "postgresql": {"sequence": '["1","2"]', "lsn": 2, "txId": 7, "xmin": None},
    "mysql": {"file": "binlog.000003", "pos": 154, "row": 0, "gtid": "a:1", "server_id": 1},
    "mariadb": {"file": "binlog.000003", "pos": 154, "row": 0},
    "sqlserver": {"commit_lsn": "0000002b:00000298:0003", "change_lsn": "NULL", "event_serial_no": 1},
    "db2": {"commit_lsn": "00000000:00000000:0000000000000003", "change_lsn": None},
    "oracle": {"scn": "12", "commit_scn": "13", "txId": "0a", "redo_thread": 1},
}


def by_hand() -> Iterator[Record]:
    """Envelopes of every connector, with a transaction; a truncate; a change of the key; a flattened row."""
    for name, fields in SOURCES.items():
        common = {
            "version": "3",
            "snapshot": "false",
            "ts_ms": 1,
            "ts_us": 1000,
            "ts_ns": 1_000_000,
            "db": "d",
        }
        source = {**common, **fields, "connector": name}
        transaction = {"id": "7:9", "total_order": 1, "data_collection_order": 1}
        for op in "crdt":
            one = envelope(op, None if op in "dt" else ..., **source) | {"transaction": transaction}
            yield KEY_7, json.dumps(one).encode(), []
        yield KEY_7, json.dumps(envelope("c", **source)).encode(), [("__debezium.oldkey", b'{"id": 6}')]
        flat = {f"__source_{key}": value for key, value in source.items()}
        yield (
            KEY_7,
            json.dumps({"id": 7, "name": "Ada", "__op": "u", "__deleted": "false", **flat}).encode(),
            [],
        )
    yield (
        KEY_7,
        wrapped({"id": {"type": "int32", "optional": False}, "name": {"type": "string"}}, {"id": 7}),
        [],
    )


def without_schema(record: Record) -> Record:
    """The same record as a converter without schemas writes it."""
    key, value = (json.dumps(json.loads(one or b"null")["payload"]).encode() for one in record[:2])
    return key, value, record[2]


def decoder_of(records: list[Record]) -> DebeziumDecoder:
    return DebeziumDecoder(infer([(key, value) for key, value, _ in records]))


CHOSEN = ("ts_ms", "lsn", "snapshot", "txId", "file", "row", "scn", "change_lsn", "event_serial_no")
BY_HAND = DebeziumDecoder(NAMED, source=CHOSEN)
WATCHLIST = DebeziumDecoder(
    Columns(
        T.StructType([T.StructField("client_id", T.IntegerType()), T.StructField("ticker", T.StringType())]),
        T.StructType([T.StructField("added", T.TimestampType())]),
    ),
    source=CHOSEN,
)
#: What the schema of every type says of times.
TIMES: dict[str, Any] = {
    "c_time": "microseconds",
    "c_time_3": "milliseconds",
    "c_timestamp_3": "milliseconds",
}
#: Where values are replaced: records of one kind, and what decodes them.
GROUNDS: dict[str, tuple[DebeziumDecoder, list[Record]]] = {
    "by hand": (BY_HAND, list(by_hand())),
    "recorded": (
        WATCHLIST,
        [one for form in ("plain1", "flat1", "schema1") for one in table_records("watchlist", form)[:2]],
    ),
    "every type, by its schema": (decoder_of(type_records("types1")), type_records("types1")[:1]),
    "every type, by its column": (
        replace(decoder_of(type_records("types1")), times=TIMES),
        [without_schema(type_records("types1")[0])],
    ),
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of a value, itself first."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def put(value: Any, path: Path) -> Any:
    """The value with a mark at a place."""
    if not path:
        return _MARK
    first, *rest = path
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[first] = put(value[first], tuple(rest))
    return copy


def hostile_places(record: Record) -> list[tuple[str, Path, str]]:
    """Each hostile value at each place of a record's key, value and headers of ours."""
    return [
        (part, path, kind)
        for part, payload in parts_of(record).items()
        for path, kind in product(places(json.loads(payload)), HOSTILE)
    ]


def parts_of(record: Record) -> dict[str, bytes]:
    key, value, headers = record
    parts = {"key": key, "value": value, **{name: text for name, text in headers if name.startswith("__deb")}}
    return {part: payload for part, payload in parts.items() if payload is not None}


def hostile(record: Record, part: str, path: Path, kind: str) -> Record:
    """The record with a hostile value at a place."""
    marked = json.dumps(put(json.loads(parts_of(record)[part]), path)).encode()
    changed = {part: marked.replace(f'"{_MARK}"'.encode(), HOSTILE[kind])}
    key, value, headers = record
    others = [(name, changed.get(name, text)) for name, text in headers]
    return changed.get("key", key), changed.get("value", value), others


def check(found: pa.StructArray, decoder: DebeziumDecoder, size: int) -> None:
    """Look whether there are rows or errors, in proportion to what was read."""
    assert found.type == pa.struct(list(decoder.schema))
    found.validate(full=True)
    assert found.nbytes <= 4 * size + 5_000 * len(found)
    for row in found.to_pylist():
        assert (row["op"] is None) == (row["error"] is not None)
        assert (row["key"] is None) == (row["op"] in {None, "truncate", "skip"})
        assert (row["value"] is None) == (row["op"] not in {"upsert", "read"})
        assert row["snapshot"] in {None, "true", "first", "first_in_data_collection", "last", "incremental"}
        assert len(row["position"] or "") < 600


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_value_of_another_type_at_any_place_gives_a_row_or_an_error(ground: str) -> None:
    decoder, records = GROUNDS[ground]
    assert decoder.decode(*arrays(records)).field("error").null_count == len(records)
    every = [(record, *place) for record in records for place in hostile_places(record)]
    few = min(len(every), settings().max_examples * 30)
    chosen = random.Random(7).sample(every, few)
    counts: Counter[tuple[str, str]] = Counter()
    for start in range(0, few, 50):
        some = [hostile(*one) for one in chosen[start : start + 50]]
        found = decoder.decode(*arrays(some))
        check(found, decoder, sum(len(part or b"") for record in some for part in record[:2]))
        errors = found.field("error").to_pylist()
        for (_, part, path, kind), error in zip(chosen[start : start + 50], errors, strict=True):
            assert "the record cannot be decoded (" not in (error or ""), (part, path, kind, error)
            counts[kind, "row" if error is None else "error"] += 1
    report = [f"  {kind}: {counts[kind, 'row']} rows, {counts[kind, 'error']} errors" for kind in HOSTILE]
    by_part = Counter(part for _, part, _, _ in chosen)
    print(f"{ground}: {few} of {len(every)}, {dict(by_part)}", *report, sep="\n")  # noqa: T201 (the report)
    assert {kind for kind, _ in counts} == HOSTILE.keys()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (envelope(snapshot={"a": 1}), "the field 'source.snapshot' is no text"),
        (envelope(snapshot=["true"]), "the field 'source.snapshot' is no text"),
        (envelope("t", None, connector=["mysql"]), "the field 'source.connector' is not text"),
        (envelope(connector={}), "the field 'source.connector' is not text"),
        (envelope(connector="mysql", file=f"log.{'1' * 5_000}"), "'source.file' is not a binary log"),
        (envelope(connector="mysql", file=f"log.{'1' * 21}"), "'source.file' is not a binary log"),
        (envelope(connector="mysql", file=f"{'1' * 200_000}x"), "'source.file' is not a binary log"),
        (envelope(connector="mysql", file=["log.1"]), "'source.file' is not a binary log"),
        ({**envelope(), "op": ["u"]}, "its operation is no text"),
        (envelope(after={"id": 7, "name": ["Ada"]}), "is ['Ada'], which is not text"),
        ({"schema": {"type": ["int32"]}, "payload": 7}, "its schema is not one of Kafka Connect's"),
        ({"schema": {"type": "int32", "name": {}}, "payload": 7}, "its schema has a name that is not text"),
        ({"schema": {"type": "struct", "fields": [{"field": [], "type": "int32"}]}, "payload": {}}, "without fields"),
        (b'{"id":7,"name":1e999999999}', "the exponent of 1e999999999 is beyond 2000"),
        (b'{"id":7,"name":' + b"9" * 5_000 + b"}", "it has a value that no column holds"),
    ],
)  # fmt: skip
def test_the_error_names_what_has_the_wrong_type(value: Any, error: str) -> None:
    assert error in decode(value)["error"]


def test_a_number_with_an_endless_exponent_is_no_text() -> None:
    schema = {
        "id": {"type": "int32"},
        "name": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"},
    }
    for text in ("1e999999999", "0e-999999999", "1e99999999999999999999"):
        row = wrapped(schema, {"id": 7, "name": _MARK}).replace(b'"%s"' % _MARK.encode(), text.encode())
        assert decode(row)["op"] is None
    shortest = wrapped(schema, {"id": 7, "name": _MARK}).replace(b'"%s"' % _MARK.encode(), b"1e-2000")
    assert decode(shortest)["value"]["name"] == f"0.{'0' * 1999}1"


def test_bits_that_a_schema_only_promises_are_no_text() -> None:
    modes = Modes("precise", {}, "bytes")

    def converted(length: int, payload: bytes, target: T.DataType) -> Any:
        found = bits(Wire("bytes", "io.debezium.data.Bits", (("length", str(length)),)), target, modes)
        assert found is not None
        return found.one(payload)

    assert converted(10, b"\x05", T.StringType()) == "0000000101"
    with pytest.raises(MisfitError, match="lacks more bits of 999999999"):
        converted(999_999_999, b"\x05", T.StringType())
    with pytest.raises(MisfitError, match="too many bits"):
        converted(10, b"\x01" * 2_000, T.DecimalType(38, 0))


def test_nanoseconds_beyond_64_bits_are_no_timestamp() -> None:
    schema = {"id": {"type": "int32"}, "name": {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}}
    assert "is too large" in decode(wrapped(schema, {"id": 7, "name": 10**40}))["error"]


@pytest.mark.parametrize(
    "header", [b'{"id":"\\ud800"}', b'{"id":"\\ud800\n"}', b'{"id":1e999999999}', b"[" * 9_999]
)
def test_a_hostile_old_key_is_an_error(header: bytes) -> None:
    row = decode(envelope("c"), headers=[{"key": "__debezium.oldkey", "value": header}])
    assert "header __debezium.oldkey cannot be decoded" in row["error"]


def test_control_characters_are_escaped_only_in_texts() -> None:
    payload = b'{ "a\t": "x\\\\",\n"b": "\\"\x01\n" }'
    assert json.loads(escaped(payload)) == {"a\t": "x\\", "b": '"\x01\n'}
    assert escaped(b'"' * 9_999 + b"\n") == b'"' * 9_999 + b"\\u000a"


def test_a_failure_that_nothing_foresees_spoils_only_its_own_record() -> None:
    values = [json.dumps(envelope(after={"id": 7, "name": f"n{i}"})).encode() for i in range(100)]
    decoder = DebeziumDecoder(NAMED)
    whole = decoder._decode

    def failing(key: pa.Array, value: pa.Array, headers: pa.Array) -> pa.StructArray:
        if any(b'"n13"' in one or b'"n77"' in one for one in value.to_pylist()):
            raise IndexError
        return whole(key, value, headers)

    object.__setattr__(decoder, "_decode", failing)
    rows = decoder.decode(pa.array([KEY_7] * 100), pa.array(values), pa.nulls(100, HEADERS)).to_pylist()
    assert [i for i, row in enumerate(rows) if row["op"] is None] == [13, 77]
    assert rows[77]["error"] == "the record cannot be decoded (IndexError)"
    assert [row["value"]["name"] for row in rows if row["value"]] == [
        f"n{i}" for i in range(100) if i not in {13, 77}
    ]


def test_a_registry_that_does_not_answer_is_no_fault_of_a_record() -> None:
    def down(_: bytes) -> Any:
        raise RegistryError("no answer", hint="wait")

    decoder = DebeziumDecoder(NAMED, avro=down)  # type: ignore[arg-type]  # called alike
    with pytest.raises(RegistryError):
        decoder.decode(pa.array([b"\0"]), pa.array([None], pa.binary()), pa.nulls(1, HEADERS))


def test_the_log_of_added_fields_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tablestream.connectors.debezium.added._announced", set())
    announce(pa.array([[f"made up {i}" for i in range(5_000)]]), "t")
    assert len(caplog.records) == 1_000


def test_an_end_of_a_transaction_with_a_value_of_another_type_is_a_row_or_an_error() -> None:
    table = {"data_collection": "s.t", "event_count": 2}
    end = {"status": "END", "id": "7:90", "event_count": 2, "data_collections": [table]}
    record: Record = (None, json.dumps(end).encode(), [])
    records = [hostile(record, *place)[1] for place in hostile_places(record)]
    found = EndDecoder(Reader("__")).decode(pa.array(records, pa.binary()))
    found.validate(full=True)
    for row in found.to_pylist():
        assert row["error"] is None or row["transaction"] is None


def test_the_columns_are_found_beside_hostile_records() -> None:
    (good,) = table_records("watchlist", "schema1")[:1]
    poison = [hostile(good, *place)[:2] for place in random.Random(7).sample(hostile_places(good), 200)]
    assert infer([(good[0], good[1])]).key == infer([*poison, (good[0], good[1])]).key
