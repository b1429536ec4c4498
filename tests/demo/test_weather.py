"""What the logs of departures and weather hold, and that a seed fixes all of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

from examples.demo import weather as module
from examples.demo.weather import GRACE, WeatherLogs, weather_logs

STEPS, SCALE = 4, 0.05
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
TOO_LATE = "readings told more than 3 hours after their hour"


@cache
def logs() -> WeatherLogs:
    return weather_logs(STEPS, scale=SCALE)


@cache
def readings(latest: timedelta = GRACE) -> pl.DataFrame:
    return module._readings(latest, np.random.default_rng(1))


def test_equal_seeds_give_equal_logs_and_other_seeds_do_not() -> None:
    again, other = weather_logs(STEPS, scale=SCALE), weather_logs(STEPS, scale=SCALE, seed=2014)
    for first, second, third in zip(logs().all, again.all, other.all, strict=True):
        assert first.rows.equals(second.rows)
        assert not first.rows.equals(third.rows)


def test_the_whole_data_are_used_and_scale_takes_a_share_of_the_flights() -> None:
    departures, weather = (log.rows for log in logs().all)
    assert departures["flight_id"].n_unique() == departures.height == round(336_776 * SCALE)
    assert weather.select("origin", "changed_at").n_unique() == 26_115
    assert set(weather["origin"]) == set(departures["origin"]) == {"EWR", "JFK", "LGA"}


def test_a_row_s_time_is_that_of_the_schedule_and_of_the_reading() -> None:
    departures, weather = (log.rows for log in logs().all)
    assert (departures["changed_at"] == departures["scheduled_at"]).all()
    told = weather.filter(pl.col("op") == "u")
    assert (told["changed_at"] == told["read_at"]).all()
    gone = weather.filter(pl.col("op") == "d")
    assert gone.height == logs().weather.deletes > 0
    assert gone.select(pl.all_horizontal(pl.col(*logs().weather.spec.values).is_null()).all()).item()


def test_nothing_is_told_before_its_time_and_of_readings_nothing_after_the_grace() -> None:
    lateness = readings().select(pl.col("arrived_at") - pl.col("hour")).to_series()
    assert lateness.is_between(5 * MINUTE, GRACE, closed="left").all()
    assert (lateness > 2 * HOUR).any()
    departures = module._departures(SCALE, np.random.default_rng(1))
    late = departures.select(pl.col("arrived_at") - pl.col("changed_at")).to_series()
    assert (late >= timedelta()).all()
    assert (late > GRACE).any()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("scale", [0.005, 0.05])
def test_all_that_makes_the_join_hard_is_in_a_small_log(steps: int, scale: float) -> None:
    counts = dict(weather_logs(steps, scale=scale).counts)
    assert counts.pop(TOO_LATE) == 0
    assert min(counts.values()) > 0


def test_readings_can_be_told_too_late() -> None:
    assert weather_logs(1, scale=0.005, latest=4 * GRACE).counts[TOO_LATE] > 1_000


def test_readings_are_corrected_withdrawn_and_told_again_for_the_hour_they_are_of() -> None:
    rows = readings()
    assert rows.select(pl.struct("origin", "hour").n_unique().over("reading")).max().item() == 1
    before = {name: pl.col(name).shift(1).over("reading") for name in ("op", "temp")}
    corrected = rows.filter((pl.col("op") == "u") & (before["op"] == "u") & pl.col("temp").is_not_null())
    assert corrected.height > 1_000
    again = rows.filter((pl.col("op") == "u") & (before["op"] == "d"))
    assert again.height > 100
    assert again["read_at"].null_count() == 0
    changed = rows.filter((pl.col("op") == "u") & (before["op"] == "u") & (pl.col("temp") != before["temp"]))
    assert changed.height == corrected.height


def test_the_log_has_the_rows_in_the_order_in_which_they_are_told() -> None:
    told = readings().select("origin", "op", changed_at="hour").rows()
    log = weather_logs(STEPS, scale=SCALE).weather.rows
    assert log["step"].is_sorted()
    assert readings()["arrived_at"].is_sorted()
    assert len(told) > 28_000
    overtaken = pl.col("changed_at") < pl.col("changed_at").cum_max().over("origin")
    assert log.filter(overtaken).height == logs().counts["readings told after a later one of their airport"]


def test_a_step_of_the_weather_is_told_while_the_departures_of_that_step_are() -> None:
    starts = [
        rows["changed_at"].min() for _, rows in logs().departures.rows.group_by("step", maintain_order=True)
    ]
    for (step,), rows in logs().weather.rows.group_by("step", maintain_order=True):
        assert isinstance(step, int)
        if step:
            assert rows["changed_at"].min() > starts[step] - 24 * HOUR  # type: ignore[operator]
        if step + 1 < STEPS:
            assert rows["changed_at"].max() < starts[step + 1] + 24 * HOUR  # type: ignore[operator]


START = datetime(2013, 1, 1, tzinfo=UTC)


def told(times: list[tuple[Any, ...]], *columns: str) -> pl.DataFrame:
    """Rows whose numbers are minutes since the start."""
    rows = pl.DataFrame(times, schema=list(columns), orient="row")
    return rows.with_columns(
        (pl.lit(START) + pl.duration(minutes=pl.col(name))).alias(name)
        for name, dtype in rows.schema.items()
        if dtype.is_integer()
    )


@pytest.mark.parametrize(
    ("at", "left", "waits", "too_late"),
    [
        (10, 20, 0, 0),  # told when all is known of its hour
        (10, 14, 1, 0),  # before its reading
        (70, 75, 1, 0),  # before the correction of its reading
        (70, 250, 0, 0),
        (70, 251, 0, 1),
        (-5, 0, 0, 0),  # there is no reading yet
        (130, 130, 0, 0),  # the next hour has none: the reading before counts, and its last word is told
    ],
)
def test_departures_are_counted_that_come_before_the_last_word_on_their_weather(
    at: int, left: int, waits: int, too_late: int
) -> None:
    readings = told(
        [
            ("JFK", "a", "u", 0, 15),
            ("JFK", "b", "u", 60, 70),
            ("JFK", "b", "u", 60, 100),
            ("LGA", "c", "u", 0, 170),
        ],
        "origin",
        "reading",
        "op",
        "hour",
        "arrived_at",
    )
    counts = module._counts(told([("JFK", at, left)], "origin", "changed_at", "arrived_at"), readings)
    assert list(counts.values()) == [0, 1, 0, waits, too_late, 0]


def test_a_reading_is_overtaken_by_a_later_one_of_its_airport_alone() -> None:
    rows = [
        ("JFK", "a", "u", 60, 61),
        ("LGA", "b", "u", 0, 62),
        ("JFK", "c", "u", 0, 63),
        ("JFK", "c", "d", 0, 190),
    ]
    readings = told(rows, "origin", "reading", "op", "hour", "arrived_at")
    departures = told([("JFK", 0, 0)], "origin", "changed_at", "arrived_at")
    assert list(module._counts(departures, readings).values()) == [2, 0, 1, 1, 0, 1]
