"""Values of keys on their way from Spark, through dictionaries, and back."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pyspark.sql import types as T

from tablestream.spark.why import fitting, hashable, with_zone

NESTED = T.StructType(
    [
        T.StructField("at", T.TimestampType()),
        T.StructField("days", T.ArrayType(T.TimestampNTZType())),
        T.StructField("times", T.ArrayType(T.StructType([T.StructField("at", T.TimestampType())]))),
    ]
)


def test_times_inside_structs_and_arrays_are_in_utc() -> None:
    local, day = datetime(2024, 7, 1, 12), datetime(2024, 7, 1)
    time = T.Row("at")
    given = T.Row("at", "days", "times")(local, [day], [time(local), None])
    found = with_zone(given, NESTED)
    there = local.astimezone(UTC)
    assert found == (there, [day], [(there,), None])
    assert found.at.tzinfo is UTC
    assert found.times[0].at.tzinfo is UTC
    key = hashable(found)
    assert {key: 1}[key] == 1
    assert str(key).startswith("Row(at=")
    assert fitting(key, NESTED) == (there, [day], [(there,), None])
    assert with_zone(None, NESTED) is None


def test_a_date_is_its_midnight_also_inside_an_array() -> None:
    days = (date(2024, 7, 1),)
    assert fitting(days, T.ArrayType(T.TimestampNTZType())) == [datetime(2024, 7, 1)]
