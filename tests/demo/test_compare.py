"""The comparison finds what is planted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.demo.change_logs import write_log
from tablestream.demo.compare import compare, joined_by_polars, table_of_changes
from tablestream.demo.flights import FLIGHT_PARTS, FLIGHTS, flight_logs

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
    assert missing.examples == ("id 3: only in the batch join",)
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


def test_tables_of_different_columns_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different columns"):
        compare(TABLE, TABLE.drop("seats"), "id")


def change(micro_batch: int, number: int, key: int, kind: str, value: str | None) -> dict[str, object]:
    order = {"micro_batch": micro_batch, "number": number}
    return {"id": key, "v": value, "_change_type": kind, "_timestamp": None, "_order": order}


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
    for number, changes in ((0, second), (1, first)):
        directory = tmp_path / f"micro_batch={number}"
        directory.mkdir()
        pl.DataFrame(changes, schema_overrides={"v": pl.String}).write_parquet(directory / "part-0.parquet")
    table = table_of_changes(tmp_path, "id")
    assert table.columns == ["id", "v"]
    assert table.rows() == [(1, "new"), (3, "y")]


def test_the_batch_join_keeps_every_living_flight_once(tmp_path: Path) -> None:
    logs = flight_logs(2, scale=0.01)
    for log in logs.all:
        write_log(log, tmp_path / log.spec.name, 2, FLIGHT_PARTS if log.spec is FLIGHTS else 1)
    joined = joined_by_polars(tmp_path)
    last = logs.flights.rows.unique("flight_id", keep="last", maintain_order=True)
    assert joined["flight_id"].to_list() == sorted(last.filter(pl.col("op") == "u")["flight_id"])
    unknown = joined.filter(pl.col("dest").is_in(["STT", "PSE"]))
    assert unknown.height > 0
    assert unknown["dest_name"].null_count() == unknown.height
    found = joined.filter(pl.col("dest") == "SJU")
    assert found["dest_name"].unique().to_list() == ["Luis Munoz Marin Intl"]
    assert joined["built"].null_count() > 0
    assert set(joined["origin"]) == {"EWR", "JFK", "LGA"}
    assert joined.columns[:2] == ["flight_id", "carrier"]
