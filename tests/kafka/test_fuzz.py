"""What any bytes become in a topic's records, without Kafka: rows or errors, and never another exception.

Spark looks at many of them in one query. Avro's are in `test_avro`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tablestream.connectors.formats import as_format
from tablestream.connectors.kafka.source import _of_kafka, _Part
from tests.kafka.test_formats import SCHEMA, decoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

few = settings(
    max_examples=6, phases=[Phase.explicit, Phase.generate]
)  # to make a failure smaller takes long
MANY = 30  # payloads of one query

# JSON

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["id", "s", "at", "many", "inner", "m", "ID", "other"])
sound = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | st.text(),
        "many": st.lists(st.integers(-9, 9), max_size=3),
        "inner": st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9)}),
        "m": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2),
        "other": anything,
    },
)
texts = (st.dictionaries(names, anything, max_size=4) | sound | anything).map(json.dumps)


@st.composite
def mutated(draw: st.DrawFn, payloads: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with a stretch replaced by others."""
    payload = draw(payloads)
    begin = draw(st.integers(0, len(payload)))
    return payload[:begin] + draw(st.binary(max_size=4)) + payload[begin + draw(st.integers(0, 4)) :]


payloads = texts.map(str.encode)


@few
@given(st.lists(sound, min_size=MANY, max_size=MANY, unique_by=json.dumps))
def test_rows_come_back_from_json(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    for found, row in zip(
        decoded(spark, SCHEMA, [json.dumps(row).encode() for row in rows]), rows, strict=True
    ):
        id_, s, at, many, inner, m, error = found
        assert error is None
        assert (id_, s, at, many, m) == (row.get("id"), row.get("s"), None, row.get("many"), row.get("m"))
        assert (inner and inner.asDict()) == row.get("inner")


@few
@given(st.lists(st.binary(max_size=40) | payloads | mutated(payloads), min_size=MANY, max_size=MANY))
def test_any_bytes_are_a_row_of_json_or_an_error(spark: SparkSession, given: list[bytes]) -> None:
    """And where Python finds an object too, the row has what stands there."""
    for (number, error), payload in zip(decoded(spark, SCHEMA, list(given), "id"), given, strict=True):
        assert error is None or number is None or not payload.startswith(b"{}")
        try:
            meant = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        assert error is not None or isinstance(meant, dict), payload
        if error is None and payload.count(b'"id"') == 1 and "id" in meant:
            assert number == meant["id"], payload


# The header

HEADER = re.compile(rb"(-?[0-9]{1,18})(?: ([0-9a-f]{16}) ([0-9]{1,18}) ([0-9]{1,18}))?")
said = st.from_regex(HEADER, fullmatch=True)
headers = st.none() | st.binary(max_size=30) | said | mutated(said) | st.sampled_from([b"1 ", b"1\n", b" 1"])
START = datetime(2024, 1, 1)


def at(microseconds: int) -> int:
    return (START.replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)) // timedelta(
        microseconds=1
    ) + microseconds


@few
@given(st.lists(headers, min_size=MANY, max_size=MANY))
def test_any_header_is_one_of_ours_or_none(spark: SparkSession, given: list[bytes | None]) -> None:
    """It is taken word for word, or the record is like one of another writer."""
    rows = [(number, b"k", b"v", [("tablestream", header)]) for number, header in enumerate(given)]
    frame = spark.createDataFrame(
        rows, "offset long, key binary, value binary, headers array<struct<key: string, value: binary>>"
    )
    frame = frame.select(
        "*", F.lit("t").alias("topic"), F.lit(0).alias("partition"), F.lit(START).alias("timestamp")
    )
    part = _Part("value", as_format("binary", "value", reads=True).decoder("value", ["t"]), [])
    kafka = frame.select("offset", _of_kafka([part], ()).alias("k"))
    found = kafka.select("offset", F.unix_micros("k.timestamp"), "k.written.*").collect()
    for number, time, *written in sorted(found):
        words = HEADER.fullmatch(given[number] or b"")
        if words is None:
            assert (time, written) == (at(0), [None] * 4), given[number]
        else:
            meant = (
                [None] * 4 if words[2] is None else [words[2].decode(), int(words[3]), int(words[4]), b"k"]
            )
            assert (time, written) == (int(words[1]), meant), given[number]
