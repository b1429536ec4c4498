"""The fast way to read usual envelopes says what the slow way says, also of damaged records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.records import Reader
from tablestream.connectors.debezium.usual import UsualEnvelopes
from tests.cdc.vectors import FORMS, HEADERS, arrays, table_records
from tests.connectors.test_debezium_random import RECORDED, WATCHLIST, damaged

KEY = b'{"client_id":1,"ticker":"A"}'
ROW = b'{"client_id":1,"ticker":"A","added":1}'
SOURCE = b'"source":{"connector":"postgresql","lsn":7,"sequence":"[\\"5\\",\\"7\\"]"}'
Record = tuple[bytes | None, bytes | None]


def decoder() -> DebeziumDecoder:
    """One that knows no schemas yet."""
    return DebeziumDecoder(WATCHLIST.columns, source=WATCHLIST.source)


def decoded(records: list[Record], one: DebeziumDecoder) -> list[Any]:
    keys, values, headers = arrays([(key, value, []) for key, value in records])
    return list(one.decode(keys, values, headers).to_pylist())


def slowly(records: list[Record]) -> list[Any]:
    """Every record by itself, so that no schema is known and the fast way is not taken."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UsualEnvelopes, "event", lambda *_: None)
        patched.setattr(Reader, "known_schema", lambda *_: None)
        return [row for record in records for row in decoded([record], decoder())]


def after(*parts: bytes) -> Record:
    return KEY, b'{"before":null,' + b",".join(parts) + b"}"


@settings(max_examples=400)
@given(st.lists(damaged() | st.sampled_from(RECORDED).map(lambda one: one[:2]), min_size=1, max_size=8))
@example([after(b'"after":' + ROW, SOURCE, b'"op":"u"', b'"transaction":{}')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":"u"', b'"transaction":[]')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":"u"', b'"transaction":7')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":"c"', b'"transaction":{"id":"5:6","total_order":3}')])
@example([after(b'"after":' + ROW, b'"source":7', SOURCE, b'"op":"u"')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":7')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":"t"')])
@example([after(b'"after":null', SOURCE, b'"op":"u"'), after(b'"after":null', SOURCE, b'"op":"d"')])
@example([after(SOURCE, b'"op":"d"'), after(b'"after":7', SOURCE, b'"op":"d"')])
@example([after(b'"after":' + ROW, SOURCE, b'"op":"u"', b'"note":"\xff"')])
@example([after(b'"after":{"ticker":1.5e999,"added":12.50}', SOURCE, b'"op":"u"')])
@example([(KEY, b'{"after":7,"ticker":"A"}'), (KEY, b'{"before":7,"__op":"d"}')])
def test_both_ways_say_the_same(records: list[Record]) -> None:
    assert decoded(records, decoder()) == slowly(records)


@pytest.mark.parametrize("form", FORMS)
def test_both_ways_say_the_same_of_what_was_recorded(form: str) -> None:
    records = [one[:2] for one in table_records("watchlist", form)]
    assert decoded(records, decoder()) == slowly(records)


@pytest.mark.parametrize("form", ["plain3", "schema3"])
def test_most_records_are_read_the_fast_way(form: str) -> None:
    records = [one[:2] for one in table_records("watchlist", form)]
    found = []
    event = UsualEnvelopes.event

    def counted(self: UsualEnvelopes, payload: bytes) -> Any:
        found.append(event(self, payload))
        return found[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UsualEnvelopes, "event", counted)
        decoded(records, decoder())
    assert found.count(None) <= 2  # the truncate, and the first record with its schema


def test_a_schema_is_known_only_if_the_record_begins_with_all_of_it() -> None:
    """Another name in the schema makes the same bytes a day, and not a number."""
    days, numbers = ('"name":"io.debezium.time.Date",', '"name":"io.debezium.time.Dote",')
    columns = Columns(
        T.StructType([T.StructField("id", T.IntegerType())]), T.StructType([T.StructField("n", T.DateType())])
    )

    def value(name: str) -> bytes:
        field = f'{{"type":"int32",{name}"optional":true,"field":"n"}}'
        row = f'{{"type":"struct","fields":[{field}],"field":"after"}}'
        schema = f'{{"type":"struct","fields":[{row}]}}'
        return f'{{"schema":{schema},"payload":{{"after":{{"n":3}},"source":{{}},"op":"u"}}}}'.encode()

    values = [value(days), value(numbers), value(days), value(days)[:-1], value(days)[:-1] + b"]"]
    keys = pa.array([b'{"id":1}'] * len(values))
    rows = DebeziumDecoder(columns).decode(keys, pa.array(values), pa.nulls(len(values), HEADERS))
    assert [error is None for error in rows.field("error").to_pylist()] == [True, False, True, False, False]


def test_what_no_column_holds_needs_to_be_no_number_of_pythons() -> None:
    huge = b'{"before":{"n":' + b"9" * 5000 + b'},"after":' + ROW + b"," + SOURCE + b',"op":"u"}'
    (row,) = decoded([(KEY, huge)], decoder())
    assert row["op"] == "upsert"
