"""Texts that are not UTF-8, which Spark's strings can hold, end the query in every place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import MalformedRecordError
from tablestream.spark.texts import MALFORMED, checked_texts
from tablestream.testing import Driver, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD = pa.array([b"ok", b"\xff\xfe", None, "\u00e9".encode()], pa.binary()).view(pa.string())
GOOD = pa.array(["ok", "\ufffd", None, "\u00e9\0"])


@pytest.mark.parametrize("texts", [BAD, GOOD], ids=["bad", "good"])
def test_a_text_is_found_inside_other_types(texts: pa.Array) -> None:
    inside = {
        "text": texts,
        "sliced": texts[1:],
        "struct": pa.StructArray.from_arrays([pa.StructArray.from_arrays([texts], ["x"])], ["y"]),
        "list": pa.ListArray.from_arrays([0, 1, 4], texts),
        "key": pa.MapArray.from_arrays([0, 2], texts[:2], GOOD[:2]),
        "item": pa.MapArray.from_arrays([0, 2], GOOD[:2], texts[:2]),
    }
    for array in inside.values():
        table = pa.table({"n": range(len(array)), "x": array})
        if texts is GOOD:
            assert checked_texts(table) is table
        else:
            with pytest.raises(MalformedRecordError, match=r"\(orders\)") as error:
                checked_texts(table, "orders")
            assert "the bytes b'\\xff\\xfe'." in error.value.reason


def test_a_row_that_could_not_be_read_may_have_any_bytes() -> None:
    """It is dropped, or ends the query by the reason that it has."""
    inner = pa.StructArray.from_arrays([BAD], ["x"])
    for reasons, good in (([None, "no", None, None], True), (["no", None, None, None], False)):
        table = pa.table({"x": BAD, "y": inner, MALFORMED: pa.array(reasons, pa.string())})
        if not good:
            with pytest.raises(MalformedRecordError, match="not UTF-8"):
                checked_texts(table)
            continue
        found = checked_texts(table)
        assert found["x"].to_pylist() == ["ok", "\ufffd\ufffd", None, "\u00e9"]
        assert found["y"].to_pylist() == [{"x": "ok"}, None, {"x": None}, {"x": "\u00e9"}]
    said = checked_texts(pa.table({"x": BAD, MALFORMED: BAD}).slice(1, 1))
    assert said[MALFORMED].to_pylist() == ["\ufffd\ufffd"]


@pytest.mark.exhaustive
def test_a_text_that_is_not_utf_8_ends_the_query_in_every_place(spark: SparkSession) -> None:
    """In a key, a value, a group and an aggregate of the first round, and made between two rounds."""
    read = frame(spark, "id int, raw binary")
    text = F.col("raw").cast("string")
    source = ts.table(read, "id", name="source")
    later = source.group_by(F.col("id").alias("g")).agg(raw=tf.last("raw"))
    made = later.select(text.alias("s"))
    for table in (
        ts.table(read, text.alias("s"), name="source"),
        source.group_by(F.lit(1).alias("one")).agg(least=tf.min(text)),
        source.select(text.alias("s")).group_by("s").count(),
        made.group_by(F.lit(1).alias("one")).agg(a=tf.collect_set("s"), n=tf.count_distinct("s")),
    ):
        driver = Driver(table)
        driver.pipe("source", [(1, b"fine")])
        driver.run()
        driver.pipe("source", [(2, b"\xff")])
        with pytest.raises(MalformedRecordError, match=r"A text is not UTF-8: it has the bytes b'\\xff'"):
            driver.run()
