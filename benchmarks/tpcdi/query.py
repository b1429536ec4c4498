"""Trades with the account, customer and security of their time, as a table of the library and as SQL for DuckDB.

The histories of accounts and customers are joined first; a trade looks up the version of its time, and is corrected by
versions that arrive later. Securities never arrive late, so a trade looks them up once. Its state is the latest one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tablestream as ts
from benchmarks.in_duckdb import opened, versions_of
from benchmarks.tpcdi.logs import KEYS, SCHEMAS

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from pyspark.sql import Column, DataFrame, SparkSession

#: Six times as long as changes are late, and a third of the time from the first trade to the last one.
HISTORY = "5 minutes"
_OWNER = ("ca_name", "ca_status", "ca_c_id", "c_name", "c_tier", "c_net_worth")
_SECURITY = ("s_name", "s_company", "s_dividend")
_TRADE = ("t_ca_id", "t_symbol", "t_quantity")
_STATE = ("t_status", "t_price", "t_fee")


@dataclass(frozen=True)
class Logs:
    """The logs as tables and a stream, of frames that a function gives for their names."""

    frame: Callable[[str], DataFrame]

    def table(self, kind: str, history: str | None = None) -> ts.Table:
        """Read a log as a table, which can keep its history."""
        return ts.table(
            self.frame(kind),
            KEYS[kind],
            timestamp="changed_at",
            apply_as_deletes="deleted",
            except_columns=[*KEYS[kind], "deleted", "changed_at"],
            history=history,
            name=kind,
        )


def from_folder(spark: SparkSession, folder: Path) -> Logs:
    """Read the logs of a folder, one file of each a micro-batch."""
    return Logs(
        lambda kind: ts.from_files(spark, folder / kind, "parquet", SCHEMAS[kind], max_files_per_trigger=1)
    )


def trades_of_their_time(logs: Logs) -> ts.Table:
    """Each trade in its latest state, with what was valid when it was submitted."""
    trades, securities = logs.table("trade"), logs.table("security", HISTORY)
    owners = logs.table("account", HISTORY).join(
        logs.table("customer", HISTORY), on="ca_c_id", how="left", complete_history=True, name="owners"
    )
    submitted = trades.to_stream(name="submitted").filter("t_status = 'SBMT'")
    secured = submitted.join(
        securities,
        on="t_symbol",
        how="left",
        select=lambda t, s: [*_columns(t, _TRADE), *_columns(s, _SECURITY)],
        name="secured",
    )
    owned = secured.join_as_table(
        owners,
        on="t_ca_id",
        how="left",
        select=lambda t, o: [*_columns(t, (*_TRADE, *_SECURITY)), *_columns(o, _OWNER)],
        name="owned",
    )
    return owned.join(
        trades,
        on="t_id",
        select=lambda o, t: [*_columns(o, (*_TRADE, *_SECURITY, *_OWNER)), *_columns(t, _STATE)],
        name="trades",
    )


def _columns(row: ts.Row, names: tuple[str, ...]) -> list[Column]:
    return [row[name] for name in names]


SQL = f"""
    select t.t_id, {", ".join(f"t.{name}" for name in _TRADE)}, {", ".join(f"s.{name}" for name in _SECURITY)},
    {", ".join(f"{'a' if name.startswith('ca_') else 'c'}.{name}" for name in _OWNER)},
    {", ".join(f"l.{name}" for name in _STATE)}
    from (select * from trade_versions where t_status = 'SBMT') t
    asof left join account_versions a on t.t_ca_id = a.ca_id and t.changed_at >= a.changed_at
    asof left join customer_versions c on a.ca_c_id = c.c_id and t.changed_at >= c.changed_at
    asof left join security_versions s on t.t_symbol = s.s_symbol and t.changed_at >= s.changed_at
    join trade l on l.t_id = t.t_id
"""
"""A version that closes an account has no values, so that a trade after it finds none."""


def opened_logs(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a database with the final tables of the logs, and all their versions."""
    database = opened(folder, KEYS)
    for kind in KEYS:
        versions_of(database, folder, kind)
    return database
