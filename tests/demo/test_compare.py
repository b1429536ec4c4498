"""The comparison finds what is planted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from examples.demo.compare import compare, compare_changes, table_of_changes

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pl.DataFrame({"id": [1, 2, 3], "plane": ["A320", None, "B737"], "seats": [150, None, 140]})


def test_equal_tables_are_equal_whatever_the_order_of_rows_and_columns() -> None:
    result = compare(TABLE.reverse().select("seats", "id", "plane"), TABLE, "id")
    assert result.ok
    assert result.equal == 3
    assert result.examples == ()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((2, "A320", None), "id 2: plane is 'A320', expected None"),
        ((2, None, 7), "id 2: seats is 7, expected None"),
        ((3, None, 140), "id 3: plane is None, expected 'B737'"),
        ((1, "A321", 151), "id 1: plane is 'A321', expected 'A320'; seats is 151, expected 150"),
    ],
)
def test_a_planted_difference_is_found_and_told(row: tuple[object, ...], told: str) -> None:
    planted = pl.DataFrame([row], schema=TABLE.schema, orient="row")
    result = compare(TABLE.update(planted, on="id", include_nulls=True), TABLE, "id")
    assert not result.ok
    assert (result.equal, result.differing, result.only_found, result.only_expected) == (2, 1, 0, 0)
    assert result.examples == (told,)


def test_a_missing_and_an_additional_row_are_found() -> None:
    missing = compare(TABLE.head(2), TABLE, "id")
    assert not missing.ok
    assert (missing.equal, missing.only_expected) == (2, 1)
    assert missing.examples == ("id 3: only in the batch computation",)
    additional = compare(TABLE, TABLE.tail(2), "id")
    assert not additional.ok
    assert (additional.equal, additional.only_found) == (2, 1)
    assert additional.examples == ("id 1: only in the maintained table",)


def test_a_row_of_nulls_is_a_row() -> None:
    nulls = pl.DataFrame({"id": [1], "plane": [None]}, schema={"id": pl.Int64, "plane": pl.String})
    assert compare(nulls, nulls, "id").equal == 1
    assert compare(nulls, nulls.clear(), "id").only_found == 1


def test_only_the_first_differences_are_told() -> None:
    many = pl.DataFrame({"id": range(100), "v": [0] * 100})
    result = compare(many.with_columns(v=1), many, "id")
    assert result.differing == 100
    assert [line.partition(":")[0] for line in result.examples] == [f"id {number}" for number in range(5)]


def test_a_key_of_several_columns_and_other_names_are_told() -> None:
    table = pl.DataFrame({"client": ["ann", "ann"], "exchange": ["X", "Y"], "amount": [1, 2]})
    assert compare(table, table, "client", "exchange").equal == 2
    planted = table.with_columns(amount=pl.Series([1, 3]))
    result = compare(planted.tail(1), table, "client", "exchange", names=("this", "that"))
    assert result.examples == (
        "client ann, exchange X: only in that",
        "client ann, exchange Y: amount is 3, expected 2",
    )


def test_tables_of_different_columns_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different columns"):
        compare(TABLE, TABLE.drop("seats"), "id")


def change(micro_batch: int, number: int, key: int, kind: str, value: str | None) -> dict[str, object]:
    order = {"micro_batch": micro_batch, "number": number}
    return {"id": key, "v": value, "_change_type": kind, "_timestamp": None, "_order": order}


def write(directory: Path, *micro_batches: list[dict[str, object]]) -> Path:
    for number, changes in enumerate(micro_batches):
        into = directory / f"micro_batch={number}"
        into.mkdir(parents=True)
        pl.DataFrame(changes, schema_overrides={"v": pl.String}).write_parquet(into / "part-0.parquet")
    return directory


def test_a_change_log_comes_to_the_last_change_of_each_key_by_order(tmp_path: Path) -> None:
    first = [
        change(0, 2, 1, "upsert", "new"),
        change(0, 1, 1, "upsert", "old"),
        change(0, 3, 2, "upsert", "x"),
    ]
    second = [
        change(1, 0, 2, "delete", None),
        change(1, 0, 3, "upsert", "y"),
        change(1, 1, 4, "delete", None),
    ]
    table = table_of_changes(write(tmp_path, second, first), "id")
    assert table.columns == ["id", "v"]
    assert table.rows() == [(1, "new"), (3, "y")]


def test_change_logs_are_the_same_when_each_key_has_the_same_changes_in_its_order(tmp_path: Path) -> None:
    one = [change(0, 1, 1, "upsert", "a"), change(0, 2, 2, "upsert", "x"), change(0, 3, 1, "delete", None)]
    other = [change(0, 7, 2, "upsert", "x"), change(0, 8, 1, "upsert", "a"), change(0, 9, 1, "delete", None)]
    turned = [change(0, 7, 2, "upsert", "x"), change(0, 9, 1, "upsert", "a"), change(0, 8, 1, "delete", None)]
    names = ("other", "one")
    expected = write(tmp_path / "one", one)
    assert compare_changes(write(tmp_path / "other", other), expected, "id", names=names).equal == 3
    result = compare_changes(write(tmp_path / "turned", turned), expected, "id", names=names)
    assert (result.equal, result.differing) == (1, 2)
    shorter = compare_changes(write(tmp_path / "shorter", other[:2]), expected, "id", names=names)
    assert shorter.examples == ("id 1, change 1: only in one",)
