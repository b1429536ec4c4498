"""The plan as text: golden files pin what `Table.explain` prints.

To write them anew after a change that was meant: ``UPDATE_GOLDEN=1 pytest tests/plans/test_explain.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tablestream.plan.explain import explained
from tablestream.plan.line import Mode, Output
from tablestream.plan.lower import lower
from tablestream.topology.nodes import Fields
from tests.plans.catalogue import by_both, has_a, own_key, pointer_of
from tests.plans.tables import (
    LONG,
    counted,
    filtered,
    foreign_key_join,
    grouped,
    key_join,
    one_to_many,
    source,
    topped,
)

GOLDEN = Path(__file__).parent.parent / "golden"


def _types(fields: Fields) -> pl.Schema:
    return pl.Schema({one.name: pl.Int64() if one.type == LONG else pl.String() for one in fields})


def _left_join() -> list[Output]:
    return [Output(foreign_key_join(source("positions"), source("tickers"), "left"))]


def _joins_on_one_key() -> list[Output]:
    first = key_join(source("a"), source("b"), "inner")
    return [Output(key_join(first, source("c"), "outer"))]


def _join_of_joins() -> list[Output]:
    first = foreign_key_join(source("positions"), source("tickers"), "left")
    return [Output(foreign_key_join(first, source("exchanges"), "inner"))]


def _self_join() -> list[Output]:
    rows = source("employees")
    return [Output(foreign_key_join(rows, rows, "outer", own_key))]


def _filtered_minimal() -> list[Output]:
    joined = key_join(filtered(source("a"), has_a), source("b"), "left")
    return [Output(filtered(joined, has_a), minimal=True)]


def _two_outputs() -> list[Output]:
    positions, tickers = source("positions"), source("tickers")
    joined = foreign_key_join(positions, tickers, "left")
    pairs = one_to_many(tickers, positions, "left")
    return [Output(joined, final=True), Output(pairs, before=True), Output(joined, rejected=True)]


def _groups() -> list[Output]:
    positions = source("positions")
    joined = foreign_key_join(positions, source("tickers"), "left")
    by_ticker = counted(joined)
    return [
        Output(grouped(joined, by_both, width=2), final=True),
        Output(foreign_key_join(positions, by_ticker, "left")),
    ]


def _top() -> list[Output]:
    bids = source("bids")
    return [Output(topped(bids, n=3, order=((pointer_of, False),))), Output(counted(topped(bids)))]


PLANS: dict[str, Callable[[], list[Output]]] = {
    "left_join": _left_join,
    "joins_on_one_key": _joins_on_one_key,
    "join_of_joins": _join_of_joins,
    "self_join": _self_join,
    "filtered_minimal": _filtered_minimal,
    "two_outputs": _two_outputs,
    "groups": _groups,
    "top": _top,
}


@pytest.mark.parametrize("name", sorted(PLANS))
@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
def test_explain(name: str, *, compat: bool) -> None:
    shown = explained(lower(PLANS[name](), _types, Mode(compat=compat))) + "\n"
    file = GOLDEN / f"{name}{'_compat' if compat else ''}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown)
    assert shown == file.read_text()
