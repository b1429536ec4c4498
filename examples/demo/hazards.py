"""What makes a hand-written join race, counted in change logs of positions, tickers and clients.

A step is what one micro-batch reads. Rows of one position are taken in the order of its log.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from examples.demo.change_logs import DELETE, UPSERT, ChangeLog

_UPSERT, _DELETE = pl.lit(UPSERT), pl.lit(DELETE)


def hazards(positions: ChangeLog, tickers: ChangeLog, clients: ChangeLog) -> Mapping[str, int]:
    """Count each hazard."""
    rows = _with_the_two_before(positions)
    gone, came = pl.col("op") == _DELETE, pl.col("op") == _UPSERT
    was_there, was_gone = pl.col("op_1") == _UPSERT, pl.col("op_1") == _DELETE
    at_once, all_at_once = pl.col("step") == pl.col("step_1"), pl.col("step") == pl.col("step_2")
    inserted = was_there & (pl.col("op_2").is_null() | (pl.col("op_2") == _DELETE))
    moved = was_there & (pl.col("op_2") == _UPSERT) & (pl.col("ticker_1") != pl.col("ticker_2"))
    back = came & moved & (pl.col("ticker") == pl.col("ticker_2")) & all_at_once

    def count(condition: pl.Expr) -> int:
        return rows.filter(condition).height

    visits = rows.filter(back).select("step", ticker="ticker_1", came="changed_at_1", went="changed_at")
    return {
        "positions deleted in the step of their insert": count(gone & inserted & at_once),
        "positions inserted again in the step of their delete": count(came & was_gone & at_once),
        "positions inserted again in a later step": count(came & was_gone & ~at_once),
        "moves to another ticker": positions.moves("ticker"),
        "moves to another ticker and back in one step": count(back),
        "moves with the delete right behind, in one step": count(gone & moved & all_at_once),
        "changes of a ticker's exchange": tickers.moves("exchange"),
        "changes of a ticker's exchange between a position's coming and going": _amid(visits, tickers),
        "changes of a client's e-mail": clients.moves("email"),
    }


def _with_the_two_before(log: ChangeLog) -> pl.DataFrame:
    """Return the rows of a log with those columns of the key's two rows before that hazards are told by."""
    columns = ("op", "ticker", "step", "changed_at")
    return log.rows.with_columns(
        pl.col(name).shift(back).over(log.spec.key).alias(f"{name}_{back}")
        for name in columns
        for back in (1, 2)
    )


def _amid(visits: pl.DataFrame, tickers: ChangeLog) -> int:
    """Count the changes of exchange that fall into a visit, and into its step."""
    before = pl.col("exchange").shift(1).over("ticker")
    changes = tickers.rows.filter(pl.col("exchange") != before).select("ticker", "step", "changed_at")
    met = changes.join(visits, on=["ticker", "step"])
    amid = met.filter(pl.col("changed_at").is_between("came", "went", closed="none"))
    return amid.unique(["ticker", "changed_at"]).height
