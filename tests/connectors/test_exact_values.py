"""Texts become values exactly, or their row is malformed: times, decimals and numbers of JSON, CSV and Avro."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.debezium.scalars import MisfitError, Modes
from tablestream.connectors.debezium.times import day, timestamp
from tablestream.connectors.debezium.wire import Wire
from tablestream.connectors.files.source import from_files
from tablestream.connectors.formats import as_format, with_units
from tablestream.connectors.source import CORRUPT_RECORD
from tablestream.connectors.texts import Texts, checked_units
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.texts import Unit

BAD = "malformed"
ISO = {
    '"2024-01-02T09:00:00Z"': "2024-01-02 09:00:00",
    '"2024-01-02"': "2024-01-02 00:00:00",
    '"2024"': "2024-01-01 00:00:00",
    '"+12024-01-02"': "+12024-01-02 00:00:00",
    '"-0044-03-15"': "-0044-03-15 00:00:00",
    '"2024-01-02T03:04:05.123456789Z"': "2024-01-02 03:04:05.123456",
    "null": None,
}
NO_TIMES = (
    '"202401"', '"20240102"', '"12024-01-02"', '"0000-01-01"', '"12:00"', '"T12:00"', '"noon"', '""', "true", "1.5",
    '{"x": 1}', "1704186000000", "1704186000000000", "1704186000000000000", "99999999999999999999", '"1704186000000"',
    '"GMT2024"',
)  # fmt: skip
LOCAL = {text: time for text, time in ISO.items() if "Z" not in text}
MS = {
    "1704186000000": "2024-01-02 09:00:00",
    '"1704186000000"': "2024-01-02 09:00:00",
    "-1": "1969-12-31 23:59:59.999",
}
CSV_ISO = {json.loads(text) or "": time for text, time in ISO.items()}
#: Of each column type and unit: what JSON's values are in Spark's text.
JSON: list[tuple[str, Unit | None, Mapping[str, str | None]]] = [
    ("timestamp", None, ISO | {"1704186000": "2024-01-02 09:00:00"} | dict.fromkeys(NO_TIMES, BAD)),
    ("timestamp", "milliseconds", ISO | {'"2024"': "1970-01-01 00:00:02.024", "253402300800000": BAD} | MS),
    ("timestamp", "nanoseconds", {"1704186000000000001": "2024-01-02 09:00:00"}),
    ("timestamp", "isostring", ISO | {"1704186000": BAD}),
    ("timestamp_ntz", None, LOCAL | {"1704186000": BAD, '"2024-01-02T09:00:00Z"': BAD} | dict.fromkeys(NO_TIMES, BAD)),
    ("timestamp_ntz", "milliseconds", MS),
    ("date", None, {'"2024-01-02"': "2024-01-02", "19724": BAD} | dict.fromkeys(NO_TIMES, BAD)),
    ("date", "days", {"19724": "2024-01-02", "-1": "1969-12-31", "20240102": BAD}),
    ("date", "milliseconds", {"1704153600000": "2024-01-02", "1704186000000": BAD, "19724": BAD}),
    ("decimal(10,2)", None, {"1.5": "1.50", '"1.5"': "1.50", "1.230": "1.23", "1e2": "100.00"}),
    ("decimal(10,2)", None, dict.fromkeys(("1.005", "1e-3", '"1,5"', "123456789", '"x"', "true", '"NaN"'), BAD)),
    ("decimal(38,18)", None, {"12345678901234567890.123456789012345678": "12345678901234567890.123456789012345678",
                              "0.1234567890123456789": BAD, "1e-19": BAD}),
    ("tinyint", None, {"127": "127", "-128": "-128", "128": BAD, "200": BAD, "1.0": BAD}),
    ("smallint", None, {"32767": "32767", "32768": BAD}),
    ("int", None, {"1": "1", "1.0": BAD, "1.5": BAD, "3000000000": BAD, '"1"': BAD, "true": BAD}),
    ("boolean", None, {"true": "true", '"true"': BAD, "1": BAD}),
    ("double", None, {"1": "1.0", "1e999": "Infinity", '"NaN"': "NaN", '"1.5"': BAD}),
    ("string", None, {'"a"': "a", "1": "1", "true": "true", '{"x":1}': '{"x":1}'}),
]  # fmt: skip
#: The same of CSV, whose texts have no types.
CSV: list[tuple[str, Unit | None, Mapping[str, str | None]]] = [
    ("timestamp", None, CSV_ISO | {"1704186000": BAD, "202401": BAD}),
    ("timestamp", "seconds", {"1704186000": "2024-01-02 09:00:00", "1704186000000": BAD}),
    ("date", None, {"2024-01-02": "2024-01-02", "20240102": BAD, "": None}),
    ("decimal(10,2)", None, {"1.5": "1.50", "1.005": BAD, "1,5": BAD, "": None, " 1": BAD}),
    # Numbers with an exponent, of which a double does not tell all digits.
    ("decimal(20,18)", None, {"1.23456789012345678949E1": BAD, "1.2345678901234567890E1": "12.345678901234567890"}),
    ("decimal(20,18)", None, {"1200e-2": "12.000000000000000000", ".05E+1": "0.500000000000000000", "1e2": BAD}),
    ("decimal(20,18)", None, {"1E-400": BAD, "0e-400": "0.000000000000000000", "12345678901234567891E-19": BAD}),
    ("int", None, {"1": "1", "+1": "1", "1.0": BAD, "3000000000": BAD, "": None, "1 ": BAD}),
    ("double", None, {"1": "1.0", "1e3": "1000.0", "inf": "Infinity", "1e999": BAD, "1d": BAD, "0x1p3": BAD}),
    ("boolean", None, {"true": "true", "FALSE": "false", "1": BAD, "yes": BAD}),
]  # fmt: skip


def struct(columns: str) -> T.StructType:
    return cast("T.StructType", T.StructType.fromDDL(columns))


def judged(frame: Any, texts: Texts, is_bad: Any) -> Any:
    """A frame's column ``raw`` as text in the column's type, or that it is malformed."""
    given = {"v": F.col("raw")}
    wrong = F.coalesce(texts.misfits(given).get("v", F.lit(False)), F.lit(False)) | is_bad
    return frame.select(
        "at", F.when(wrong, BAD).otherwise(texts.values(given)["v"].cast("string")).alias("v")
    )


@pytest.mark.parametrize("of", ["json", "csv"])
def test_each_text_is_the_value_that_the_table_says_or_malformed(
    spark: SparkSession, of: Literal["json", "csv"]
) -> None:
    cases, parts = (JSON if of == "json" else CSV), []
    for number, (kind, unit, wanted) in enumerate(cases):
        texts = Texts(struct(f"v {kind}"), of, {"": unit} if unit else {})
        rows = spark.createDataFrame(
            [(f"{number} {text}", text) for text in wanted], "at string, text string"
        )
        if of == "csv":
            parts.append(judged(rows.withColumnRenamed("text", "raw"), texts, F.lit(False)))
            continue
        whole = T.StructType([*texts.raw, T.StructField("bad", T.StringType())])
        read = F.from_json(F.format_string('{"v": %s}', "text"), whole, {"columnNameOfCorruptRecord": "bad"})
        rows = rows.select("at", read.alias("read")).select("at", F.col("read.v").alias("raw"), "read.bad")
        parts.append(judged(rows, texts, F.col("bad").isNotNull()))
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionAll(part)
    found = dict(tuple(row) for row in frame.collect())
    assert found == {
        f"{n} {text}": value for n, (_, _, wanted) in enumerate(cases) for text, value in wanted.items()
    }


def test_values_inside_others_are_read_the_same_way(spark: SparkSession) -> None:
    inner = "inner struct<price: decimal(3,1), deep: array<struct<d: date>>>"
    columns = f"many array<timestamp>, {inner}, by map<string, date>"
    deep = '{"price": 1.5, "deep": [{"d": "2024-01-02"}]}'
    payloads = [
        f'{{"many": ["2024-01-02", null], "inner": {deep}, "by": {{"k": "2024-01-02"}}}}',
        '{"many": [], "inner": null, "by": {"k": null}}',
        '{"many": [1704186000000]}',
        '{"inner": {"price": 1.55}}',
        '{"inner": {"deep": [null, {"d": "202401"}]}}',
        '{"by": {"k": "x"}}',
    ]
    decoder = as_format(columns, "value", reads=True).decoder("value", ["t"])
    rows = spark.createDataFrame([(one.encode(),) for one in payloads], "raw binary")
    parsed = rows.select("raw", *(one.alias(f"p{n}") for n, one in enumerate(decoder.parse(F.col("raw")))))
    parts = [F.col("p0"), F.col("p1")]
    named = [
        one.alias(name)
        for one, name in zip(decoder.row(F.col("raw"), parts), ("many", "inner", "by"), strict=True)
    ]
    shown = parsed.select(F.to_json(F.struct(*named)), decoder.error(F.col("raw"), parts).isNull())
    found = [tuple(row) for row in shown.collect()]
    assert [sound for _, sound in found] == [True, True, False, False, False, False]
    assert "2024-01-02T00:00:00.000Z" in found[0][0]
    assert '"deep":[{"d":"2024-01-02"}]},"by":{"k":"2024-01-02"}}' in found[0][0]
    assert found[1][0] == '{"many":[],"by":{"k":null}}'


def test_a_number_of_another_unit_is_malformed_and_the_error_says_what_to_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "1.json").write_text('{"id": 1, "at": 1704186000000}\n{"id": 2, "at": "2024-01-02"}\n')

    def run(mode: Literal["fail", "drop"], **arguments: Any) -> list[Any]:
        frame = from_files(spark, logs, "json", "id int, at timestamp", mode=mode, **arguments)
        sink = ts.to_memory("numbers of another unit")
        sink.clear()
        table = ts.table(frame, "id", timestamp="at", name="events")
        checkpoint = tmp_path / f"checkpoint-{mode}-{len(arguments)}"
        query = ts.start(table.to(sink), checkpoint=checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        assert query.lastProgress is not None
        counted = query.lastProgress["observedMetrics"]["tablestream"]["events: malformed"]
        return [counted, sorted((row.id, str(row._timestamp)) for row in sink.rows())]

    assert run("drop") == [1, [(2, "2024-01-02 00:00:00")]]
    assert run("drop", times="milliseconds") == [0, [(1, "2024-01-02 09:00:00"), (2, "2024-01-02 00:00:00")]]
    with pytest.raises(
        Exception, match=r'TABLESTREAM_MALFORMED_RECORD.*"at": 1704186000000.*times="milliseconds"'
    ):
        run("fail")


@pytest.mark.usefixtures("spark")  # which parses schemas
def test_units_are_of_columns_with_times() -> None:
    columns = struct("id int, at timestamp, inner struct<d: date>")
    assert checked_units(None, columns) == {}
    assert checked_units("days", columns) == {"": "days"}
    assert checked_units({"inner": "days"}, columns) == {"inner": "days"}
    with pytest.raises(
        ArgumentError, match=r"times= is for columns with timestamps or dates, and 'id' has none"
    ) as raised:
        checked_units({"id": "days"}, columns)
    assert raised.value.hint == "Columns with times: at, inner."
    with pytest.raises(ArgumentError, match="times='hours' is not one of days, seconds"):
        checked_units({"at": "hours"}, columns)
    with pytest.raises(
        ArgumentError, match="times= is for columns with timestamps or dates, and 'id' has none"
    ):
        checked_units("days", T.StructType([columns["id"]]))
    formats = {
        "key": as_format("string", "key", reads=True),
        "value": as_format("at timestamp", "value", reads=True),
    }
    assert with_units(formats, None) == formats  # type: ignore[arg-type]
    given = with_units(formats, "seconds")  # type: ignore[arg-type]
    assert given["key"] == formats["key"]
    assert given["value"] != formats["value"]
    with pytest.raises(ArgumentError, match="times= is for columns"):
        with_units({"value": as_format("binary", "value", reads=True)}, "seconds")


def test_a_time_of_a_database_without_a_schema_is_of_a_year_that_can_be_meant() -> None:
    guessed = Wire("int64", "io.debezium.time.MicroTimestamp", guessed=True)
    modes = Modes("precise", {}, "bytes")
    known = timestamp(guessed, T.TimestampType(), modes)
    assert known is not None
    assert known.one(1_704_186_000_000_000) == 1_704_186_000_000_000
    with pytest.raises(MisfitError, match="outside the years 1 to 9999: set times="):
        known.one(1_704_186_000_000_000_000)
    with_schema = timestamp(Wire("int64", "io.debezium.time.MicroTimestamp"), T.TimestampType(), modes)
    assert with_schema is not None
    assert with_schema.one(1_704_186_000_000_000_000) == 1_704_186_000_000_000_000
    days = day(Wire("int32", "io.debezium.time.Date", guessed=True), T.DateType(), modes)
    assert days is not None
    assert days.one(19_724) == 19_724
    with pytest.raises(MisfitError, match="outside the years"):
        days.one(20_240_102)


def test_rows_of_files_keep_their_texts_where_values_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('1,"a, b",1.005\n2,c,1.5\n')
    frame = from_files(spark, tmp_path, "csv", "id int, name string, price decimal(10,2)", mode="keep")
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(part.collect()))
    place = str(tmp_path / "_checkpoint")
    writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
    assert [row[CORRUPT_RECORD] for row in rows] == ['1,"a, b",1.005', None]
