"""The flights' batch join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from examples.demo.change_logs import write_log
from examples.demo.flights import flight_logs
from examples.demo.flights_join import joined_by_polars

if TYPE_CHECKING:
    from pathlib import Path


def test_the_batch_join_keeps_every_living_flight_once(tmp_path: Path) -> None:
    logs = flight_logs(2, scale=0.01)
    for log in logs.all:
        write_log(log, tmp_path / log.spec.name, 2)
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
