"""Differences are found and shown so that one sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.errors import ArgumentError
from tablestream.testing import Rows, assert_changes_equal
from tablestream.testing.comparing import difference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_difference_is_an_aligned_table() -> None:
    expected = [("1", "ACME", "10.5"), ("2", "BOLT", None), ("3", "CORE", "1.0")]
    actual = [("1", "ACME", "10.5"), ("2", "BOLT", "4.0"), ("4", "DELL", "1.0"), ("5", "", "1.0")]
    assert difference(["id", "ticker", "price"], expected, actual).splitlines() == [
        "The rows differ: 2 of 3 expected are missing, 3 were not expected.",
        "  id | ticker | price",
        "  1  | ACME   | 10.5",
        "- 2  | BOLT   | null",
        "+ 2  | BOLT   | 4.0",
        "                ^^^",
        "- 3  | CORE   | 1.0",
        "+ 4  | DELL   | 1.0",
        "  ^    ^^^^",
        '+ 5  | ""     | 1.0',
    ]


def test_rows_in_another_order_are_no_missing_rows() -> None:
    one, two = ("1", "ACME"), ("2", None)
    head, *lines = difference(["id", "ticker"], [one, two], [two, one]).splitlines()
    assert head == "The rows differ only in their order. Pass in_any_order=True if it does not matter."
    assert len(lines) == 4
    assert difference(["id", "ticker"], [one, one], [one, two]).startswith("The rows differ: 1 of 2")


def test_a_difference_fits_into_80_columns_and_marks_what_is_cut() -> None:
    wide = "x" * 200
    text = difference(["id", "one", "two"], [("1", wide, wide)], [("1", wide, wide + "y")])
    head, *lines = text.splitlines()
    assert head.endswith("1 was not expected.")
    assert max(map(len, lines)) <= 80
    assert [line[-1] for line in lines[1:]] == ["…", "…", "^"]
    assert lines[-1].count("^") == len(lines[-2].rpartition(" | ")[2])


def test_rows_in_every_form_are_compared_in_the_types_of_what_was_found(spark: SparkSession) -> None:
    changes = spark.sql(
        "SELECT * FROM VALUES (1, 10.5D, 'upsert'), (2, NULL, 'delete') AS t(id, price, _change_type)"
    )
    assert_changes_equal(changes, "id | price\n1 | 1.05e1\n2 |")
    assert_changes_equal(changes, [(1, 10.5, "upsert"), (2, None, "delete")])
    assert_changes_equal(changes, [{"price": 10.5, "ID": 1}, {"ID": 2}])
    assert_changes_equal(changes, changes.collect())
    assert_changes_equal(changes, "id\n2\n1", in_any_order=True)
    for wrong in ("id | price\n1 | 10.5", "id\n2\n1", [(1, 10.5, "upsert"), (2, 0.0, "delete")], []):
        with pytest.raises(AssertionError, match="The rows differ"):
            assert_changes_equal(changes, wrong)
    with pytest.raises(ArgumentError, match="no column 'cost'"):
        assert_changes_equal(changes, "id | cost\n1 | 1")
    with pytest.raises(ArgumentError, match="no column price, _change_type"):
        assert_changes_equal(changes.select("id"), Rows.of(changes))
    with pytest.raises(ArgumentError, match="cannot be compared"):
        assert_changes_equal([1], "id\n1")  # type: ignore[arg-type]


def test_columns_of_any_type_are_compared(spark: SparkSession) -> None:
    """The keys of a map may be numbers, and the fields of a struct may have any name."""
    row = "1 AS id, CAST(NULL AS map<int,string>) AS m, named_struct('first name', 'Ada', 'a-b', 1) AS s"
    changes = spark.sql(f"SELECT {row}, 'upsert' AS _change_type")
    assert_changes_equal(changes, [{"id": 1, "m": None}])
    assert_changes_equal(changes, 'id | s\n1 | {"first name": "Ada", "a-b": 1}')
    with pytest.raises(AssertionError, match="The rows differ"):
        assert_changes_equal(changes, [{"id": 1, "m": {1: "one"}}])
    with pytest.raises(ArgumentError, match="dictionaries"):
        assert_changes_equal(changes, 'id | m\n1 | {"1": "one"}')
