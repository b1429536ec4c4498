"""KIP-904's worked examples, and KIP-914's of a group, on the real operators: whole plans without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.notation import both_modes
from tests.conformance.test_operators_groups import item_of, minus, plus, selected
from tests.plans.engine import Engine, Output
from tests.plans.tables import Change, Record, aggregated, counts, grouped, source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Node

one_by_one_and_at_once = pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])


def answers(
    node: Node, records: Sequence[Record], *, compat: bool, at_once: bool, shards: int = 2
) -> list[Change]:
    """Work off records in one micro-batch, or in one each with a restart in between."""
    engine, found = Engine([Output(node)], compat=compat, shards=shards), []
    for piece in [records] if at_once else [[record] for record in records]:
        found += engine.run(piece)[0]
        engine = engine.restarted()
    return found


@one_by_one_and_at_once
@both_modes
def test_kip_904_a_count_by_key_and_value_never_shows_0(*, compat: bool, at_once: bool) -> None:
    table = source("T")
    node = counts(table, lambda value, key: (*key, value), width=2)
    records = [Record(table, "1", "", 8), Record(table, "1", "", 9)]
    got = answers(node, records, compat=compat, at_once=at_once)
    # By default a row that is written again changes nothing.
    assert got == [(("1", ""), 1, 8), (("1", ""), 1, 9)][: 2 if compat else 1]


def put_in(_: str, animal: str, zoo: str) -> str:
    return ",".join(sorted({*zoo.split(",")} - {""} | {animal}))


def taken_out(_: str, animal: str, zoo: str) -> str:
    return ",".join(sorted({*zoo.split(",")} - {animal}))


@one_by_one_and_at_once
@both_modes
def test_kip_904_a_set_never_loses_the_member_that_stays(*, compat: bool, at_once: bool) -> None:
    table = source("T")
    node = grouped(table, lambda _, zoo: zoo, aggregated(str, put_in, taken_out))
    records = [
        Record(table, "zoo1", "tiger", 8),
        Record(table, "zoo1", "tiger", 9),
        Record(table, "zoo1", "lion", 10),
    ]
    got = answers(node, records, compat=compat, at_once=at_once)
    assert got == [(("zoo1",), "tiger", 8), (("zoo1",), "tiger", 9), (("zoo1",), "lion", 10)]


@one_by_one_and_at_once
@both_modes
def test_kip_914_a_group_of_a_table_without_history_takes_a_late_row(*, compat: bool, at_once: bool) -> None:
    table = source("T")
    node = grouped(table, selected, aggregated(lambda: "0", plus, minus), of=item_of)
    records = [Record(table, "k", f"g:{value}", ts) for value, ts in [("v1", 1), ("v2", 10), ("v3", 5)]]
    assert answers(node, records, compat=compat, at_once=at_once) == [
        (("g",), "0+v1", 1),
        (("g",), "0+v1-v1+v2", 10),
        (("g",), "0+v1-v1+v2-v2+v3", 10),
    ]
