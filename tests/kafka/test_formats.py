"""Text, bytes and JSON, on rows without Kafka: what becomes columns, what is refused, and what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.formats import NO_JSON, NO_TEXT, as_format
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tablestream.connectors.formats import Part

SCHEMA = "id int, s string, at timestamp, many array<int>, inner struct<x: int>, m map<string, int>"
GOOD: dict[str | None, Any] = {
    '{"id": 1, "s": "a", "at": "2024-01-01T00:00:00.000001Z", "many": [1], "inner": {"x": 1}, "m": {"k": 1}}': 1,
    '{"id": 2}': 2,
    ' \n{"id": 3, "other": [{}]} \n': 3,
    "{}": None,
    '{"s": "} {"}': None,
    None: None,
}
BAD = [
    b"", b" ", b"null", b"42", b'"x"', b"[]", b'[{"id": 1}]', b'{"id": 1}{"id": 2}', b'{"id": 1} x',
    b'{"id": 1},{"id": 2}', b'[{"id": 1}', b',{"id": 1}', b'1 {"id": 1}', b'{"id": 1, "x": {2}', b"}", b"{}}",
    b'{"id": 1, "x": [}', b'{"id": 1, }', b'{"id": 1}{}', b'{"s": "}', b'{"id": 1} }',
    b'{"id": "x"}', b'{"id": 1.5}', b'{"id": 99999999999}', b'{"at": "noon"}', b'{"many": [1, "q"]}',
    b'{"inner": {"x": "q"}}', b'{"m": {"k": "q"}}', b'{"id": 1', b"\xff\xfe", b'{"s": "\xff"}', b"{id: 1}",
]  # fmt: skip


def decoded(spark: SparkSession, given: Any, payloads: list[bytes | None], *chosen: str) -> list[Any]:
    """Decode bytes as values; ``error`` comes last."""
    decoder = as_format(given, "value", reads=True).decoder("value", ["t"])
    raw = F.col("raw")
    rows = spark.createDataFrame([(one,) for one in payloads], "raw binary")
    parsed = rows.select("raw", *(one.alias(f"__{n}") for n, one in enumerate(decoder.parse(raw))))
    parts = [F.col(name) for name in parsed.columns[1:]]
    columns = zip(decoder.columns.names, decoder.row(raw, parts), strict=True)
    shown = parsed.select(
        *(one.alias(name) for name, one in columns), decoder.error(raw, parts).alias("error")
    )
    return [tuple(row) for row in shown.select(*(chosen or decoder.columns.names), "error").collect()]


def test_json_is_one_object_of_the_schema(spark: SparkSession) -> None:
    payloads = [None if text is None else text.encode() for text in GOOD]
    rows = decoded(spark, SCHEMA, [*payloads, *BAD], "id")
    assert rows[: len(GOOD)] == [(number, None) for number in GOOD.values()]
    judged = dict(zip(BAD, (error for _, error in rows[len(GOOD) :]), strict=True))
    assert [payload for payload, error in judged.items() if error != NO_JSON] == []


def test_what_nobody_selects_is_judged_too(spark: SparkSession) -> None:
    assert decoded(spark, SCHEMA, [b'{"id": 1, "at": "noon"}'], "id") == [(1, NO_JSON)]
    schema = T.StructType([T.StructField("id", T.IntegerType())])
    assert as_format(schema, "value", reads=True) == as_format("id int", "value", reads=True)


def test_text_and_bytes(spark: SparkSession) -> None:
    payloads = ["é".encode(), b"", None, b"\xff"]
    text = decoded(spark, "string", payloads)
    assert text[:3] == [("é", None), ("", None), (None, None)]
    assert text[3][1] == NO_TEXT
    assert decoded(spark, "binary", payloads) == [(one, None) for one in payloads]


@pytest.mark.parametrize(
    "given", ["", "nosuch", "int", 5, None, {"type": "record"}, T.StringType(), T.StructType()]
)
@pytest.mark.usefixtures("spark")  # which parses schemas
def test_what_is_no_format(given: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"value=.* is not a record format.*'string', 'binary', a schema of JSON"
    ):
        as_format(given, "value", reads=True)


@pytest.mark.usefixtures("spark")
def test_a_schema_is_for_reading_and_json_without_one_for_writing() -> None:
    with pytest.raises(ArgumentError, match=r"Give 'string', 'binary', 'json', tablestream.avro"):
        as_format("id int", "key", reads=False)
    with pytest.raises(ArgumentError, match="does not say which columns a record has"):
        as_format("json", "key", reads=True).decoder("key", ["t"])


def written(spark: SparkSession, given: str, row: str, part: Part = "value") -> bytes | str:
    frame = spark.sql(f"SELECT struct({row}) AS row")
    columns = frame.select("row.*").schema
    encode = as_format(given, part, reads=False).encoder(part, "t", columns)
    (found,) = frame.select(encode(F.col("row"))).collect()[0]
    return bytes(found) if isinstance(found, bytearray) else found


def test_rows_are_written(spark: SparkSession) -> None:
    row = "1 AS id, CAST(NULL AS string) AS s, timestamp'2024-01-01 00:00:00.000001' AS at, struct(NULL AS x) AS inner"
    text = '{"id":1,"s":null,"at":"2024-01-01T00:00:00.000001Z","inner":{"x":null}}'
    assert written(spark, "json", row) == text
    assert decoded(spark, "id int, at timestamp", [text.encode()], "id") == [(1, None)]
    assert written(spark, "string", "1.5 AS price") == "1.5"
    assert written(spark, "binary", "X'00ff' AS raw") == b"\x00\xff"
    assert written(spark, "binary", "'é' AS raw") == "é".encode()


@pytest.mark.parametrize(
    ("given", "row", "message"),
    [
        ("string", "1 AS a, 2 AS b", r"'string' is one column, and the value of topic 't' has 2 \(a, b\)"),
        ("binary", "1 AS a", r"The column 'a' has type int, not bytes"),
    ],
)
def test_columns_that_do_not_fit(spark: SparkSession, given: str, row: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        written(spark, given, row)


#: Spark's session of the tests is in UTC; these are two instants of one text in New York.
TWICE = ["timestamp'2024-11-03 05:30:00Z' AS k", "timestamp'2024-11-03 06:30:00Z' AS k"]


@pytest.mark.parametrize("row", [*TWICE, "array('a, b') AS k", "map('a', 1) AS k", "struct('a') AS k"])
def test_what_shares_a_text_is_no_key(spark: SparkSession, row: str) -> None:
    with pytest.raises(ArgumentError, match=r"The column 'k' has type .* one key of topic 't'.*json"):
        written(spark, "string", row, "key")
    assert written(spark, "string", row)


def test_instants_of_one_text_are_two_keys_of_json(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert len({written(spark, "string", row) for row in TWICE}) == 1
        assert len({written(spark, "json", row, "key") for row in TWICE}) == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
