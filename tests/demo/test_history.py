"""A history adds up: every edit starts from the latest rows, within its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from examples.demo.change_logs import DELETE, MOMENT, LogSpec
from examples.demo.history import History, cut_at, cut_evenly, moved

SPEC = LogSpec("towns", "code", "csv", {"name": pl.String()}, pl.Int64(), parts=2)
START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def history(count: int = 10) -> History:
    moments = pl.Series([START + timedelta(hours=number) for number in range(count)], dtype=MOMENT)
    first = pl.DataFrame({"code": range(count), "name": ["old"] * count, "arrived_at": moments})
    return History(first, SPEC, np.random.default_rng(1))


def renamed(rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return rows.with_columns(name=pl.lit("new"))


def test_an_edit_changes_a_share_of_the_keys_each_within_its_time() -> None:
    made = history()
    told = made.edit(0.3, renamed, at_least=2 * SECOND, within=5 * SECOND)
    assert told.height == 3
    assert told["name"].unique().to_list() == ["new"]
    delays = told.select(pl.col("arrived_at") - START - pl.duration(hours="code")).to_series()
    assert delays.is_between(2 * SECOND, 4 * SECOND).all()
    assert made.latest.filter(pl.col("name") == "new")["code"].to_list() == told["code"].to_list()
    assert made.rows().height == 13


def test_an_edit_among_some_keys_leaves_the_others() -> None:
    told = history().edit(1.0, renamed, within=2 * timedelta(hours=1), among=pl.Series([3, 5]))
    assert told["code"].to_list() == [3, 5]


def test_deleted_keys_return_with_the_values_they_had() -> None:
    made = history()
    made.edit(1.0, renamed, at_least=SECOND, within=2 * SECOND)
    made.delete(1.0, at_least=SECOND, within=2 * SECOND, returning=0.5)
    gone = made.latest.filter(pl.col("op") == DELETE)
    assert gone.height == 5
    assert gone["name"].null_count() == 5
    assert made.latest.filter(pl.col("op") != DELETE)["name"].to_list() == ["new"] * 5


def test_keys_that_were_deleted_before_stay_so_when_others_return() -> None:
    made = history()
    made.delete(0.5, at_least=SECOND, within=2 * SECOND, returning=0.0)
    made.delete(1.0, at_least=SECOND, within=2 * SECOND, returning=1.0)
    assert made.latest["name"].null_count() == 5
    assert made.latest.filter(pl.col("op") != DELETE)["name"].to_list() == ["old"] * 5


def test_an_edit_back_gives_the_values_of_then() -> None:
    made = history()
    then = made.latest
    told = made.edit(0.4, renamed, at_least=SECOND, within=2 * SECOND)
    back = made.edit(1.0, made.as_in(then), at_least=SECOND, within=2 * SECOND, among=told["code"])
    assert back["name"].to_list() == ["old"] * 4
    assert (back["arrived_at"] - told["arrived_at"]).to_list() == [SECOND] * 4


@pytest.mark.parametrize("steps", [1, 3])
def test_a_log_is_cut_evenly_and_another_one_where_its_steps_begin(steps: int) -> None:
    rows, starts = cut_evenly(SPEC, history(9).rows(), steps)
    assert rows.group_by("step").len()["len"].to_list() == [9 // steps] * steps
    assert rows["part"].to_list() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert starts.len() == steps - 1
    assert cut_at(SPEC, history(9).rows(), starts).rows["step"].to_list() == rows["step"].to_list()


def test_what_is_moved_points_at_another_value_than_before() -> None:
    pool = pl.Series(["A", "B"])
    rows = pl.DataFrame({"tailnum": ["A", "B", None, "A", "B", "A"]})
    names = moved(rows, "tailnum", pool, np.random.default_rng(1))["tailnum"]
    assert names.null_count() == 0
    assert names.ne_missing(rows["tailnum"]).all()
