"""The plan as text: golden files pin what `Table.explain` prints.

To write them anew after a change that was meant: ``UPDATE_GOLDEN=1 pytest tests/plans/test_explain.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tablestream.errors import PlanError
from tablestream.planner.explain import explained
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Output, PlanOptions
from tablestream.topology.nodes import Fields, How, Node
from tablestream.topology.streams import Grace
from tests.plans.catalogue import by_both, has_a, own_key, pointer_of
from tests.plans.tables import (
    LONG,
    ForeignKey,
    captured,
    counted,
    filtered,
    foreign_key_join,
    grouped,
    kept,
    key_join,
    looked_up,
    materialized,
    merged,
    named_time,
    one_to_many,
    pointers,
    points,
    rekeyed,
    reordered,
    source,
    starred,
    stream,
    suppressed,
    to_table,
    topped,
    unfolded,
    whole_transactions,
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


def _streams() -> list[Output]:
    trades = stream("trades")
    priced = looked_up(trades, source("prices"), "left")
    legs = unfolded(merged(rekeyed(priced), stream("corrections")), pointers)
    return [Output(to_table(legs), final=True), Output(looked_up(trades, source("venues"), copied=True))]


def _versions() -> list[Output]:
    prices = materialized(source("prices"), 8)
    quoted = looked_up(stream("trades"), prices, grace=Grace(5))
    return [
        Output(quoted),
        Output(foreign_key_join(materialized(source("orders"), 3), prices, "left"), before=True),
        Output(key_join(prices, source("fees"), "inner"), final=True),
    ]


def _star() -> list[Output]:
    lookups: tuple[tuple[Node, How, ForeignKey], ...]
    lookups = ((source("customers"), "left", points(0)), (source("products"), "inner", points(1)))
    return [
        Output(starred(source("orders"), *lookups)),
        Output(starred(source("bids"), *lookups, copied=True)),
    ]


def _suppress() -> list[Output]:
    held = suppressed(counted(source("positions")), 5, max_records=10, wall_clock=7)
    return [
        Output(held),
        Output(suppressed(reordered(source("quotes"), 3), 2, max_bytes=100, fail_when_full=True)),
    ]


def _top() -> list[Output]:
    bids = source("bids")
    return [Output(topped(bids, n=3, order=((pointer_of, False),))), Output(counted(topped(bids)))]


def _captured() -> list[Output]:
    whole = whole_transactions()
    orders, customers = captured("orders", whole), captured("customers", whole, follows_moves=False)
    return [
        Output(foreign_key_join(orders, customers, "left")),
        Output(captured("alone"), final=True),
        Output(orders, rejected=True),
    ]


def _keep() -> list[Output]:
    recent = kept(foreign_key_join(source("positions"), source("quotes"), "left"), 86_400_000_000, named_time)
    return [Output(recent), Output(counted(kept(source("bids"), 5, wall_clock=7)))]


PLANS: dict[str, Callable[[], list[Output]]] = {
    "left_join": _left_join,
    "joins_on_one_key": _joins_on_one_key,
    "join_of_joins": _join_of_joins,
    "self_join": _self_join,
    "filtered_minimal": _filtered_minimal,
    "two_outputs": _two_outputs,
    "groups": _groups,
    "streams": _streams,
    "versions": _versions,
    "star": _star,
    "suppress": _suppress,
    "top": _top,
    "captured": _captured,
    "keep": _keep,
}
#: Kafka Streams has none of these.
DEFAULT_ONLY = {"captured": "captured from a database", "keep": r"has no keep\(\)"}


@pytest.mark.parametrize("name", sorted(PLANS))
@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
def test_explain(name: str, *, compat: bool) -> None:
    if compat and name in DEFAULT_ONLY:
        with pytest.raises(PlanError, match=DEFAULT_ONLY[name]):
            lower(PLANS[name](), _types, PlanOptions(compat=compat))
        return
    shown = explained(lower(PLANS[name](), _types, PlanOptions(compat=compat))) + "\n"
    file = GOLDEN / f"{name}{'_compat' if compat else ''}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown)
    assert shown == file.read_text()


def test_a_source_that_is_materialized_needs_no_evolvable() -> None:
    node = materialized(source("positions"))
    plans = {
        "behind materialize": Output(grouped(node)),
        "as it is": Output(grouped(source("positions"))),
    }
    shown = {name: explained(lower([output], _types, PlanOptions())) for name, output in plans.items()}
    lacking = "Sources not whole without evolvable=True: positions"
    assert [name for name, text in shown.items() if lacking in text] == ["as it is"]
    rejected = [Output(node, rejected=True), Output(grouped(node.parent))]  # it is not in the state
    assert lacking in explained(lower(rejected, _types, PlanOptions()))
    assert lacking not in explained(lower([plans["as it is"]], _types, PlanOptions(evolvable=True)))
