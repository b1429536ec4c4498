"""What the logs of positions, tickers and clients hold, and that a seed fixes all of it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from examples.demo.change_logs import ChangeLog, LogSpec, write_log
from examples.demo.holdings import SPECS, HoldingLogs, holding_logs
from examples.demo.holdings_list import mailing_list_by_polars

if TYPE_CHECKING:
    from pathlib import Path

STEPS, SCALE = 4, 0.08


@cache
def logs() -> HoldingLogs:
    return holding_logs(STEPS, scale=SCALE)


def test_equal_seeds_give_equal_logs_and_other_seeds_do_not() -> None:
    again, other = holding_logs(STEPS, scale=SCALE), holding_logs(STEPS, scale=SCALE, seed=2025)
    assert all(first.rows.equals(second.rows) for first, second in zip(logs().all, again.all, strict=True))
    assert not any(
        first.rows.equals(second.rows) for first, second in zip(logs().all, other.all, strict=True)
    )


def test_every_hazard_happens_in_bulk() -> None:
    counts = logs().counts
    positions = logs().positions.rows["position_id"].n_unique()
    assert positions == 2_000
    rare = {what: count for what, count in counts.items() if count < positions // 100}
    # There are 20 tickers, and each of them changes its exchange two times or three.
    assert rare.keys() <= {"changes of a ticker's exchange between a position's coming and going"}
    assert all(count >= 10 for count in rare.values())


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("scale", [0.008, 0.032])
def test_no_hazard_is_missing_from_a_small_log(steps: int, scale: float) -> None:
    counts = dict(holding_logs(steps, scale=scale).counts)
    later = counts.pop("positions inserted again in a later step")
    assert min(counts.values()) > 0
    assert (later > 0) == (steps > 1)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_delete_has_no_values_and_rows_go_and_come_back(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    deletes = log.rows.filter(pl.col("op") == "d")
    assert log.deletes == deletes.height > 0
    assert deletes.select(pl.all_horizontal(pl.col(*log.spec.values).is_null()).all()).item()
    upserts = log.rows.filter(pl.col("op") == "u")
    assert upserts.drop_nulls(list(log.spec.values)).height == upserts.height
    before = pl.col("op").shift(1).over(log.spec.key)
    assert log.rows.filter((pl.col("op") == "u") & (before == "d")).height > 0


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_log_is_in_order_and_a_key_keeps_its_part(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    assert log.rows["changed_at"].is_sorted()
    assert log.rows["step"].is_sorted()
    assert log.rows["step"].n_unique() == STEPS
    assert log.rows.group_by(log.spec.key).agg(pl.col("part").n_unique())["part"].max() == 1
    assert log.rows["part"].n_unique() == log.spec.parts


@pytest.mark.parametrize("spec", SPECS[1:], ids=lambda spec: spec.name)
def test_the_small_tables_change_in_the_steps_in_which_the_positions_do(spec: LogSpec) -> None:
    log = next(one for one in logs().all if one.spec == spec)
    starts = logs().positions.rows.group_by("step", maintain_order=True).agg(pl.col("changed_at").first())
    for step, start in starts.rows()[1:]:
        belongs = (pl.col("step") >= step) == (pl.col("changed_at") >= start)
        assert log.rows.select(belongs.all()).item()


def test_deletes_and_moves_back_follow_within_seconds() -> None:
    rows = logs().positions.rows.with_columns(
        pl.col("op", "ticker", "changed_at").shift(1).over("position_id").name.suffix("_before"),
        back=pl.col("ticker") == pl.col("ticker").shift(2).over("position_id"),
        waited=pl.col("changed_at").diff().over("position_id"),
    )
    followed = (pl.col("op") == "d") & (pl.col("op_before") == "u")
    at_once = rows.filter(followed & (pl.col("waited") == timedelta(seconds=1)))
    assert at_once.height > 100
    moved_back = pl.col("back") & (pl.col("ticker") != pl.col("ticker_before"))
    assert rows.filter(moved_back & (pl.col("waited") == timedelta(seconds=2))).height > 150


def test_some_positions_point_at_what_nobody_lists() -> None:
    positions = logs().positions.rows
    for name, log in (("ticker", logs().tickers), ("client", logs().clients)):
        assert set(positions[name].drop_nulls()) - set(log.rows[name])


def test_a_column_has_the_type_that_its_spec_says() -> None:
    for log in logs().all:
        assert {name: log.rows.schema[name] for name in log.spec.schema.names()} == dict(log.spec.schema)
    assert [spec.name for spec in SPECS] == ["positions", "tickers", "clients"]


def final(log: ChangeLog) -> dict[Any, dict[str, Any]]:
    """Work the log off row by row."""
    table: dict[Any, dict[str, Any]] = {}
    for row in log.rows.iter_rows(named=True):
        table.pop(row[log.spec.key], None)
        if row["op"] == "u":
            table[row[log.spec.key]] = row
    return table


def test_the_batch_computation_is_what_loops_over_the_final_tables_give(tmp_path: Path) -> None:
    for log in logs().all:
        write_log(log, tmp_path / log.spec.name, STEPS)
    positions, tickers, clients = map(final, logs().all)
    held: Counter[tuple[str, str]] = Counter()
    amounts: Counter[tuple[str, str]] = Counter()
    for row in positions.values():
        if row["ticker"] in tickers and row["client"] in clients:
            group = row["client"], tickers[row["ticker"]]["exchange"]
            held[group] += 1
            amounts[group] += row["amount"]
    expected = [
        (client, exchange, held[client, exchange], amounts[client, exchange], clients[client]["email"])
        for client, exchange in sorted(held)
    ]
    columns = ("client", "exchange", "positions", "amount", "email")
    assert mailing_list_by_polars(tmp_path).select(columns).rows() == expected
    assert len(expected) > 500
