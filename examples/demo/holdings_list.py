"""The holdings' result: which clients hold something on an exchange, how much, and whom to e-mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

import tablestream as ts
from examples.demo.change_logs import final_table
from examples.demo.holdings import CLIENTS, SPECS, TICKERS, holding_logs
from examples.demo.pipeline import table
from examples.demo.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


def mailing_lists(spark: SparkSession, directory: Path) -> Mapping[str, ts.Table]:
    """Return the mailing list twice: by a distributed join with the tickers, and by one with a global table.

    Parameters
    ----------
    spark
        The session to read with.
    directory
        Where the three change logs lie, each in a directory of its table's name.
    """
    positions, tickers, clients = (table(spark, spec, directory) for spec in SPECS)
    everywhere = table(spark, TICKERS, directory, everywhere=True)
    return {
        "distributed": mailing_list(positions, tickers, clients),
        "global": mailing_list(positions, everywhere, clients),
    }


def mailing_list(positions: ts.Table, tickers: ts.Table, clients: ts.Table) -> ts.Table:
    """Return per client and exchange what is held, and the client's name and address."""
    listed = positions.join(
        tickers, on="ticker", how="inner", select=lambda p, t: [p.client, t.exchange, p.amount]
    )
    held = listed.group_by("client", "exchange").agg(
        positions=ts.functions.count(), amount=ts.functions.sum("amount")
    )
    return held.join(
        clients,
        on="client",
        how="inner",
        select=lambda h, c: [h.positions, h.amount, c.name, c.surname, c.email],
    )


def mailing_list_by_polars(directory: Path) -> pl.DataFrame:
    """Return the same from the final tables below `directory`, sorted by client and exchange."""
    positions, tickers, clients = (final_table(spec, directory / spec.name) for spec in SPECS)
    return (
        positions.join(tickers, on=TICKERS.key)
        .group_by(CLIENTS.key, "exchange")
        .agg(positions=pl.len().cast(pl.Int64), amount=pl.col("amount").cast(pl.Int64).sum())
        .join(clients, on=CLIENTS.key)
        .sort(CLIENTS.key, "exchange")
    )


HOLDINGS_LIST = Scenario(
    name="holdings",
    rows="lines of the mailing list",
    key=("client", "exchange"),
    shown=("client", "exchange", "positions", "amount", "name", "surname", "email"),
    logs=lambda steps, scale: holding_logs(steps, scale=scale),
    outputs=mailing_lists,
    batch=mailing_list_by_polars,
)
