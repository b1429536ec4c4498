"""Columns follow from what operators and rules declare: a missing one is an error, a new operator needs one rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.errors import PlanError
from tablestream.operators.buffer.suppress import Suppress
from tablestream.operators.joins.key_join import KeyJoin
from tablestream.operators.operator import PARENT, Context, Emission, Operator, keyed_changes
from tablestream.operators.reduce.regroup import OLD, Regroup
from tablestream.operators.to_table import ToTable
from tablestream.operators.upsert import Upsert
from tablestream.planner import rules
from tablestream.planner.lowering import Draft, Lowering, Made, Want
from tablestream.planner.result import Result
from tablestream.runtime.measures import Counts
from tablestream.runtime.order import in_order
from tablestream.runtime.ports import Port
from tablestream.runtime.rounds import Placed, Round
from tablestream.runtime.run_round import run_round
from tablestream.state.cache import NoCache
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, TS, hop_columns
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.topology.nodes import Field, Node, OneParent
from tests.plans.catalogue import by_key, has_a
from tests.plans.engine import Engine, Output
from tests.plans.tables import (
    REDUCED,
    STRING,
    VALUE,
    Change,
    Record,
    counted,
    counts,
    filtered,
    grouped,
    key_join,
    source,
    stream,
    suppressed,
    to_table,
    topped,
)

if TYPE_CHECKING:
    from tablestream.state.trace_spec import TraceSpec


def forgets(monkeypatch: pytest.MonkeyPatch, operator: type[Operator], column: str) -> None:
    """Let an operator's outputs lack a column."""
    outputs = operator.outputs.fget  # type: ignore[attr-defined]

    def without(one: Operator) -> tuple[pl.Schema, ...]:
        return tuple(
            pl.Schema({name: kind for name, kind in schema.items() if name != column})
            for schema in outputs(one)
        )

    monkeypatch.setattr(operator, "outputs", property(without))


@pytest.mark.parametrize(
    ("operator", "column", "plan", "who", "port"),
    [
        (Regroup, OLD, lambda: counted(source("A")), "A_n/regroup", "A_n[groups]"),
        (Suppress, "v0", lambda: suppressed(source("A"), 5), "A_suppress", "output 1"),
        (Suppress, LIVE, lambda: counted(suppressed(source("A"), 5)), "A_suppress", "A_suppress"),
        (KeyJoin, "v1", lambda: key_join(source("A"), source("B")), "A_B", "output 1"),
    ],
    ids=["to an operator", "to an output", "to readers", "one of several values"],
)
def test_a_plan_whose_operator_forgets_a_column_cannot_be_lowered(
    operator: type[Operator],
    column: str,
    plan: Callable[[], Node],
    who: str,
    port: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgets(monkeypatch, operator, column)
    with pytest.raises(PlanError, match="needs columns") as raised:
        Engine([Output(plan())])
    assert f"'{port}' needs columns that '{who}' does not give it: {column}." in str(raised.value)


def test_a_row_time_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    forgets(monkeypatch, KeyJoin, ROW_TS)
    a, b = source("A"), source("B")
    Engine([Output(filtered(key_join(a, b), has_a), minimal=True), Output(key_join(a, b), before=True)])


def test_a_column_that_nobody_computes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(one: ToTable) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**keyed_changes(one.keys, one.value), "_weather": pl.String()}),)

    monkeypatch.setattr(ToTable, "inputs", property(inputs))
    records = stream("S")
    engine = Engine([Output(to_table(records))])
    with pytest.raises(PlanError, match=r"'S_table\[records\]' needs columns .* 'S' .*: _weather\."):
        engine.run([Record(records, "a", "x", 1)])


def test_a_message_without_a_column_is_not_filled() -> None:
    upsert = Upsert(pl.Schema({"_k0": pl.String()}), pl.Struct({"c0": pl.String()}))
    work = Round(1, (Placed("rows", upsert, (1,), ((Port(2, 2, 2, KEY_HASH, "result"),),)),), ())
    state = ShardState(MemoryStore(), NoCache(), work.traces, work.fingerprint)
    place = {"_t": 1, "_p": "p", "_o": 1, "_h0": 1}
    message = {**place, KEY_HASH: 1, "_k0": "a", TS: 1, LIVE: True, "v": {"c0": "x"}}
    (out,) = run_round(work, [{1: [pl.DataFrame([message])]}], state, Counts())
    assert in_order([out[1]], hop_columns(2))["v"].to_list() == [{"c0": "x"}]
    del message["v"]
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="v"):
        list(run_round(work, [{1: [pl.DataFrame([message])]}], state, Counts()))


# A new operator, with a key that no other has: one operator, one rule.


@dataclass(frozen=True, eq=False)
class Copies(OneParent):
    """Each row of a table twice, under its key and a number."""

    @property
    def meaning(self) -> str:
        return "copies"


@dataclass(frozen=True)
class Copying(Operator):
    """Emit each change twice."""

    keys: pl.Schema
    value: pl.DataType

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("times",)

    @property
    def times(self) -> int:
        """How often a row is there."""
        return 2

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(pl.Schema({**self.keys, "_k1": pl.String()}), self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:  # noqa: ARG002
        """Emit the changes, copy after copy."""
        changes = inputs[0].select(pl.col(SEQ).alias(PARENT), *self.inputs[0])
        for number in range(self.times):
            rows = changes.with_columns(
                pl.lit(f"{number}").alias("_k1"), pl.lit(number, pl.Int64).alias("_n")
            )
            yield Emission(0, rows)


def _copies(line: Lowering, node: Copies) -> Made:
    """The rule: everything but the operator itself."""
    number = 1 + line.produce(node.parent)
    want = Want(((node.serial,), 0), number, KEY_HASH, f"{line.names[node]}[rows]")
    reads = [line.read(node.parent, want, node.parent.key)]
    operator = Copying(line.key_of(node.parent), line.value_of(node))
    draft = Draft(node, line.names[node], number, operator, reads)
    return Made(number, Result.computed(node), (draft,))


def test_a_new_operator_needs_an_operator_and_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules._PLACE, Copies, _copies)
    table, other = source("A"), source("B", width=2)
    copies = Copies("copies", "", (*table.key, Field("k1", STRING)), VALUE, table)
    outputs = [copies, filtered(copies, has_a), counted(copies, by_key), key_join(copies, other)]
    engine = Engine([Output(node) for node in outputs])
    log = [Record(table, "x", "a", 1), Record(other, ("x", "1"), "b", 2), Record(table, "x", "c", 3)]
    twice = [(("x", "0"), "a", 1), (("x", "1"), "a", 1), (("x", "0"), "c", 3), (("x", "1"), "c", 3)]
    every, with_a, groups, joined = engine.run(log)
    assert every == [Change(*one) for one in twice]
    assert [change.value for change in with_a] == ["a", "a", None, None]
    assert [(change.key, change.value) for change in groups] == [
        (("0",), "a,1"),
        (("1",), "a,1"),
        (("0",), "c,1"),
        (("1",), "c,1"),
    ]
    assert [(change.key, change.value) for change in joined] == [
        (("x", "1"), "(a,b)"),
        (("x", "1"), "(c,b)"),
    ]
    assert engine.dropped == Counter()


@pytest.mark.parametrize(
    ("groups", "travels"),
    [(counts, False), (lambda rows: grouped(rows, None, REDUCED), False), (counted, True), (topped, True)],
)
def test_a_rows_key_travels_to_its_group_only_if_the_group_keeps_rows(
    groups: Callable[[Node], Node], *, travels: bool
) -> None:
    operators = [
        placed.operator
        for work in Engine([Output(groups(source("A")))]).plan.rounds
        for placed in work.operators
    ]
    regroup, group = operators
    assert isinstance(regroup, Regroup)
    assert regroup.outputs == group.inputs
    assert [name in regroup.outputs[0] for name in (KEY_HASH, "_k0")] == [travels, travels]
