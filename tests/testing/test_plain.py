"""Plain values are read and written as Spark's casts do, or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from tablestream.spark.columns import sql_type
from tablestream.testing.plain import plain_columns, plain_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    *(
        "0",
        "-0",
        "7",
        "-12",
        "+5",
        " 3",
        "007",
        "127",
        "128",
        "-128",
        "-129",
        "32768",
        "2147483648",
        "1e3",
        "0x1F",
    ),
    *(
        "9223372036854775807",
        "999999999999999999",
        "-999999999999999999",
        "12345678901234567890",
        "1_000",
        "٣",
    ),
    *(
        "10.5",
        "-0.0",
        ".5",
        "5.",
        "0.1",
        "123456789012345.123456789012345",
        "1e400",
        "NaN",
        "Infinity",
        "1.5f",
        "2d",
    ),
    *("999.99", "1000", "999.995", "-999.99", "0.001", "1,5", "true", "false", "True", "t", "yes", "1"),
    *(
        "2024-01-02",
        "2024-02-30",
        "2024-1-2",
        "0000-01-01",
        "0001-01-01",
        "9999-12-31",
        "20240102",
        "2024-W01-1",
    ),
    *("2024-01-02 09:00", "2024-01-02T09:00:01", "2024-01-02 09:00:01.5", "2024-01-02 09:00:01.123456"),
    *(
        "2024-01-02 09:00:01.1234567",
        "2024-01-02 24:00",
        "2024-01-02 23:59:60",
        "2024-01-02 09:00Z",
        "2024-01-02 09",
    ),
    *(
        "0001-01-01 00:00",
        "1883-11-18 12:00:00",
        "9999-12-31 23:59:59.999999",
        "2024-01-02  09:00",
        "",
        "null",
    ),
]
KINDS: list[T.DataType] = [
    *(T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.DoubleType(), T.DecimalType(5, 2)),
    *(T.BooleanType(), T.DateType(), T.TimestampType(), T.StringType(), T.FloatType(), T.TimestampNTZType()),
]


def test_a_text_is_read_as_spark_casts_it_or_left_to_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(one,) for one in TEXTS], "t string")
    casts = [f"try_cast(t AS {sql_type(kind)}) AS c{at}" for at, kind in enumerate(KINDS)]
    read = frame.selectExpr(*casts).coalesce(1).toArrow()
    plain = 0
    for at, kind in enumerate(KINDS):
        for text, cast in zip(TEXTS, read[f"c{at}"], strict=True):
            columns = plain_columns(spark, [kind], [(text,)])
            if columns is not None:
                assert (repr(columns[0][0].as_py()), columns[0].type) == (repr(cast.as_py()), cast.type), text
                plain += 1
    assert plain - len(TEXTS) > 90, "all strings, and many others, are plain"


def test_a_plain_value_is_written_as_spark_casts_it(spark: SparkSession) -> None:
    written = 0
    kinds = [T.ByteType(), T.IntegerType(), T.LongType(), T.BooleanType(), T.DateType(), T.TimestampType()]
    for kind in [*kinds, T.StringType()]:
        given = [(one,) for one in TEXTS if plain_columns(spark, [kind], [(one,)]) is not None]
        cast = f"try_cast(t AS {sql_type(kind)})"
        frame = spark.createDataFrame(given, "t string").coalesce(1)
        read = frame.selectExpr(f"{cast} AS v", f"CAST({cast} AS STRING) AS text").toArrow()
        for value, text in zip(read["v"].to_pylist(), read["text"].to_pylist(), strict=True):
            assert plain_text(value, kind, {}, is_utc=True) == text
            written += 1
    assert written > 60


@pytest.mark.parametrize(
    ("kind", "values", "are_plain"),
    [
        (T.IntegerType(), [1, None, -5], True),
        (T.IntegerType(), [1, True], False),
        (T.IntegerType(), [1 << 31], False),
        (T.LongType(), ["1", 2], False),
        (T.DoubleType(), [1.5, float("inf")], True),
        (T.DoubleType(), [1], False),
        (T.BooleanType(), [True, None], True),
        (T.DateType(), [date(2024, 1, 2)], True),
        (T.DateType(), [datetime(2024, 1, 2, tzinfo=UTC)], False),
        (T.TimestampType(), [datetime(2024, 1, 2, tzinfo=UTC)], False),
        (T.StringType(), ["a", None, "1"], True),
        (T.StringType(), ["a", 1], False),
        (T.ArrayType(T.IntegerType()), [None], True),
        (T.ArrayType(T.IntegerType()), [[1]], False),
    ],
)
def test_values_of_python_are_plain_if_they_are_of_exactly_the_type(
    spark: SparkSession, kind: T.DataType, values: list[Any], are_plain: bool
) -> None:
    columns = plain_columns(spark, [kind], [(one,) for one in values])
    assert (columns is not None) == are_plain
    if columns is not None:
        spoken = spark.createDataFrame([(one,) for one in values], T.StructType([T.StructField("v", kind)]))
        assert columns[0].to_pylist() == values
        assert columns[0].type == spoken.toArrow().schema.field("v").type


def test_times_are_sparks_to_read_in_other_time_zones(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert plain_columns(spark, [T.TimestampType()], [("2024-01-02 09:00",)]) is None
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert plain_columns(spark, [T.TimestampType()], [("2024-01-02 09:00",)]) is not None
