"""What operators leave out, as an output."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.operators.cells import column
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import OnError, PlanOptions
from tablestream.runtime.rejections import Shown
from tests.plans.engine import Engine, Output, _types
from tests.plans.tables import (
    Record,
    counts,
    filtered,
    foreign_key_join,
    key_join,
    looked_up,
    materialized,
    merged,
    points,
    rekeyed,
    source,
    stream,
    to_table,
)

if TYPE_CHECKING:
    from tablestream.topology.nodes import Node


def left_out(
    node: Node, log: list[Record], cuts: int = 1, *others: Output
) -> list[tuple[str, str, str, int]]:
    """Run a plan; (operator, reason, record, time) of what it leaves out, which is what it counts."""
    engine = Engine([Output(node, rejected=True), *others], shards=1)
    told: list[tuple[str, str, str, int]] = []
    for start in range(0, len(log), cuts):
        changes = engine.run(log[start : start + cuts])[0]
        told += [(str(one.key[0]), str(one.key[1]), one.value, one.ts) for one in changes]
        engine = engine.restarted()
    counted = {key: count for key, count in engine.dropped.items() if key[1] != "null-key" or key[0] != "S"}
    assert counted == {key: sum(one[:2] == key for one in told) for key in counted}
    return told


def as_json(key: str | None, value: str | None) -> str:
    return json.dumps({"k0": key, "v": value}, separators=(",", ":"))


@pytest.mark.parametrize("cuts", [1, 100])
def test_late_changes(cuts: int) -> None:
    table, other = source("T"), source("O")
    versions = materialized(table, 10)
    join = key_join(filtered(versions, lambda value: value != "no"), other, "left")
    log = [Record(table, "a", "new", 20), Record(table, "b", "gone", 9), Record(table, "a", "late", 15)]
    log += [Record(table, "a", None, 16), Record(table, "a", "no", 17)]
    expired = ("T_kept", "expired", as_json("b", "gone"), 9)
    late = [
        (join.name, "out-of-order", as_json("a", value), ts)
        for value, ts in (("late", 15), (None, 16), (None, 17))
    ]
    assert left_out(join, log, cuts) == [expired, *late]
    assert left_out(join, log, cuts, Output(join), Output(versions)) == [expired, *late]
    # Of what lies below, there is only that.
    assert left_out(versions, log) == [expired]
    pointed = foreign_key_join(other, versions, "left")
    assert left_out(pointed, log, cuts)[1:] == [
        (pointed.name, "out-of-order", as_json("a", value), ts)
        for value, ts in (("late", 15), (None, 16), ("no", 17))
    ]


def test_rows_that_point_at_nothing() -> None:
    left, right = source("L"), source("R")
    join = foreign_key_join(left, right)
    log = [Record(left, "a", "x|r", 1), Record(left, "b", "x", 2), Record(right, "r", "y", 3)]
    log.append(Record(left, "b", None, 4))
    assert left_out(join, log) == [(f"{join.name}/subscribe", "null-foreign-key", as_json("b", "x"), 2)]
    assert left_out(foreign_key_join(left, right, "left"), log) == []
    sides = materialized(left, 100), materialized(right, 100)
    histories = foreign_key_join(*sides, complete_history=True)
    assert left_out(histories, log) == [
        (f"{histories.name}/subscribe", "null-foreign-key", as_json("b", "x"), 2)
    ]
    assert left_out(foreign_key_join(*sides, "left", complete_history=True), log) == []


def test_records_of_streams() -> None:
    records, table = stream("S"), source("T")
    log = [Record(records, "a", None, 1), Record(records, "b", "x", 2), Record(records, None, "x|t", 3)]
    join = looked_up(records, table)
    wanted = [("null-key-or-value", as_json("a", None), 1), ("null-key-or-value", as_json("b", "x"), 2)]
    assert left_out(join, log) == [(join.name, *one) for one in wanted]
    kept = to_table(rekeyed(records))
    without = {as_json(None, None), as_json(None, "x")}
    assert {record for _, reason, record, _ in left_out(kept, log) if reason == "null-key"} == without
    groups = counts(records, points(0))
    assert left_out(groups, log) == [(groups.name, "null-key-or-value", '{"k0":"a"}', 1)]


@pytest.mark.parametrize("by_value", [False, True], ids=["key", "foreign"])
def test_changes_older_than_the_joint_history(*, by_value: bool) -> None:
    left, right = source("L"), source("R")
    sides = materialized(left, 100), materialized(right, 5)
    make = foreign_key_join if by_value else key_join
    join = make(*sides, "left", complete_history=True)
    log = [Record(left, "a", "x|a", 50), Record(right, "a", "y", 60), Record(left, "a", "late|a", 40)]
    operator = f"{join.name}/subscribe" if by_value else join.name
    engine = Engine([Output(join, rejected=True)], shards=1)
    if by_value:  # where the left rows are, only their times are known
        log.append(Record(left, "b", "|a", 60))
        log[2], log[3] = log[3], log[2]
    told = engine.run(log)[0]
    assert [(change.key, change.value) for change in told] == [
        ((operator, "expired"), as_json("a", "late|a"))
    ]


def test_a_stream_without_a_key_and_joins_on_one_key() -> None:
    records, table, other = stream("S", width=0), source("T"), source("O")
    join = looked_up(records, table, on=lambda value, _: value)
    (told,) = Engine([Output(join, rejected=True)]).run([Record(records, (), None, 1)])
    assert [change.value for change in told] == ['{"v":null}']
    inner = key_join(materialized(table, 10), other)
    engine = Engine([Output(key_join(inner, other), rejected=True), Output(key_join(inner, other, "left"))])
    log = [Record(table, "k", "v", 5), Record(table, "k", "late", 3)]
    assert [change.key for change in engine.run(log)[0]] == [(inner.name, "out-of-order")]
    assert engine.dropped == {(inner.name, "out-of-order"): 1}


END = 253402318799_000_000
"""The end of the year 9999 in New York, which is the year 10000 in UTC."""


def test_what_python_has_no_date_for_is_told_as_json() -> None:
    kinds = {
        "at": pl.Datetime("us", "UTC"),
        "local": pl.List(pl.Datetime("us")),
        "day": pl.Struct({"d": pl.Date}),
        "map": pl.Map(pl.Date, pl.Decimal(4, 1)),
    }
    cells = {"at": END, "local": [-62135596800_000_001], "day": {"d": 2932897}}
    cells["map"] = [{"key": 0, "value": Decimal("1.5")}]
    value = {f"c{n}": column([cells[name]], kind) for n, (name, kind) in enumerate(kinds.items())}
    messages = pl.DataFrame({"_k0": column([END], kinds["at"]), "_ts": [1], "_p": ["p"]}).with_columns(
        pl.DataFrame(value).to_struct().alias("v")
    )
    (told,) = Shown(("_k0",), ("k",), tuple(kinds)).rejected(messages, [], "join", "late").to_dicts()
    assert told["_key"] == '{"k":"+10000-01-01T04:59:59.000000Z"}'
    assert told["_record"] == (
        '{"k":"+10000-01-01T04:59:59.000000Z","at":"+10000-01-01T04:59:59.000000Z",'
        '"local":["0000-12-31T23:59:59.999999"],"day":{"d":"+10000-01-01"},"map":{"1970-01-01":"1.5"}}'
    )


def test_what_merged_streams_reject_does_not_hold_back_their_other_readers() -> None:
    """A source enters the plan in the first round that reads it, and rejected records go to the output at the end."""
    both = merged(stream("S"), stream("U"))
    outputs, rejecting = [Output(both, rejected=True), Output(to_table(both))], OnError("reject")
    plan = lower(outputs, _types, PlanOptions(on_error=rejecting))
    for readers in plan.sources.values():
        silent, told = sorted(readers, key=lambda one: not one.is_silent)
        assert (silent.port.number, silent.port.round) == (plan.endings[0].port.number, 2)
        assert (told.is_silent, told.port.round) == (False, 1)
