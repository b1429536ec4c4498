"""What the demo's change logs hold, and that a seed fixes all of it."""

from __future__ import annotations

import importlib.util
from functools import cache

import polars as pl
import pytest

from examples.demo import flights as module
from examples.demo.change_logs import ChangeLog, LogSpec
from examples.demo.flights import FLIGHTS, SPECS, FlightLogs, MissingDataError, flight_logs

STEPS, SCALE = 4, 0.05


@cache
def logs() -> FlightLogs:
    return flight_logs(STEPS, scale=SCALE)


def previous(column: str, log: ChangeLog) -> pl.Expr:
    return pl.col(column).shift(1).over(log.spec.key)


def test_equal_seeds_give_equal_logs_and_other_seeds_do_not() -> None:
    again, other = flight_logs(STEPS, scale=SCALE), flight_logs(STEPS, scale=SCALE, seed=2014)
    assert all(first.rows.equals(second.rows) for first, second in zip(logs().all, again.all, strict=True))
    assert not any(
        first.rows.equals(second.rows) for first, second in zip(logs().all, other.all, strict=True)
    )


def test_the_whole_data_are_used_and_scale_takes_a_share_of_the_flights() -> None:
    whole = module.first_flights()
    assert whole.height == 336_776
    known = logs().flights.rows.filter(pl.col("op") == "u")["flight_id"].unique()
    assert known.len() == round(336_776 * SCALE)
    assert known.is_in(whole["flight_id"].implode()).all()
    assert logs().planes.rows["tailnum"].n_unique() == 3_322
    assert logs().airlines.rows["carrier"].n_unique() == 16
    assert logs().airports.rows["faa"].n_unique() == 1_458 + 2


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_delete_has_no_values_and_every_log_has_some(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    deletes = log.rows.filter(pl.col("op") == "d")
    assert log.deletes == deletes.height > 0
    assert deletes.select(pl.all_horizontal(pl.col(*log.spec.values).is_null()).all()).item()
    assert log.rows["op"].is_in(["u", "d"]).all()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_log_has_rows_that_change_go_and_come_back(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    before = previous("op", log)
    upsert = pl.col("op") == "u"
    assert log.rows.filter(upsert & (before == "u")).height > 0
    assert log.rows.filter(upsert & (before == "d")).height > 0
    last = log.rows.unique(log.spec.key, keep="last", maintain_order=True)
    assert last.filter(pl.col("op") == "d").height > 0


def test_flights_move_to_other_planes_airlines_and_destinations() -> None:
    count = round(336_776 * SCALE)
    log = logs().flights
    assert log.moves("tailnum") >= int(0.02 * count)
    assert log.moves("dest") >= int(0.005 * count)
    assert log.moves("carrier") >= int(0.001 * count)
    lost = previous("tailnum", log).is_not_null() & pl.col("tailnum").is_null() & (pl.col("op") == "u")
    assert log.rows.filter(lost & (previous("op", log) == "u")).height > 0


def test_moves_are_counted_between_rows_of_one_key_only() -> None:
    rows = (
        logs()
        .flights.rows.head(6)
        .with_columns(
            flight_id=pl.Series([1, 1, 2, 1, 1, 1]),
            op=pl.Series(["u", "u", "u", "u", "d", "u"]),
            tailnum=pl.Series(["A", "B", "C", "B", None, "A"]),
        )
    )
    assert ChangeLog(logs().flights.spec, rows).moves("tailnum") == 1


def test_some_changes_repeat_the_row_and_some_deletes_are_of_flights_that_never_were() -> None:
    log = logs().flights
    repeated = [pl.col(name).eq_missing(previous(name, log)) for name in (*log.spec.values, "op")]
    assert log.rows.filter(pl.all_horizontal(*repeated) & (pl.col("op") == "u")).height > 0
    unknown = log.rows.filter(pl.col("flight_id") > 1_000_000)
    assert unknown.height > 0
    assert (unknown["op"] == "d").all()


def test_some_changes_are_late_but_a_later_file_never_starts_before_an_earlier_one_ends() -> None:
    rows = logs().flights.rows
    late = rows.filter(pl.col("changed_at") < pl.col("changed_at").cum_max().over("step", "part"))
    assert 0 < late.height < rows.height * 0.03
    files = rows.group_by("step", "part").agg(
        first=pl.col("changed_at").first(), last=pl.col("changed_at").max()
    )
    ends = files.group_by("step").agg(pl.col("last").max())
    followed = files.join(ends.with_columns(pl.col("step") + 1), on="step", suffix="_before")
    assert followed.height == (STEPS - 1) * FLIGHTS.parts
    assert (followed["first"] >= followed["last_before"]).all()


def test_a_flight_keeps_its_part_and_steps_are_of_one_size() -> None:
    rows = logs().flights.rows
    assert rows.group_by("flight_id").agg(pl.col("part").n_unique())["part"].max() == 1
    sizes = rows.group_by("step").len()["len"]
    assert sizes.len() == STEPS
    assert sizes.max() - sizes.min() <= 1  # type: ignore[operator]


@pytest.mark.parametrize("spec", SPECS[1:], ids=lambda spec: spec.name)
def test_the_small_tables_change_in_the_steps_in_which_the_flights_do(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    starts = logs().flights.rows.group_by("step", maintain_order=True).agg(pl.col("changed_at").first())
    for step, start in starts.rows()[1:]:
        belongs = (pl.col("step") >= step) == (pl.col("changed_at") >= start)
        assert log.rows.select(belongs.all()).item()
    assert log.rows["changed_at"].is_sorted()
    assert log.rows["step"].n_unique() > 1


def test_some_destinations_come_late_and_some_never() -> None:
    airports = logs().airports.rows
    first = airports.unique("faa", keep="first", maintain_order=True)
    late = first.filter(pl.col("step") > 0)["faa"].to_list()
    assert sorted(late) == ["BQN", "SJU"]
    unknown = set(logs().flights.rows["dest"].drop_nulls()) - set(airports["faa"])
    assert unknown == {"STT", "PSE"}


def test_a_column_has_the_type_that_its_spec_says() -> None:
    for log in logs().all:
        assert {name: log.rows.schema[name] for name in log.spec.schema.names()} == dict(log.spec.schema)
    assert [spec.name for spec in SPECS] == ["flights", "planes", "airlines", "airports"]


def test_without_the_data_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDataError, match="`make env` installs it"):
        flight_logs(2)
