"""Plans with many columns, aggregates, outputs and joins: what Spark sends to its workers of them stays small."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.serializers import CloudPickleSerializer

from tablestream.errors import PlanError
from tablestream.planner.lower import MOST_ROUNDS
from tablestream.spark.processor import RoundProcessor
from tablestream.spark.round_worker import RoundWorker, Settings
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Aggregate, Field, Named, Node
from tests.plans.engine import Engine, Output
from tests.plans.tables import STRING, Python, counted, foreign_key_join, key_join, mapped, source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Spark sends a larger function as a broadcast variable, which a stateful stage cannot read.
MOST = 1 << 20


def least_and_greatest(columns: int) -> Node:
    """A group with the least and the greatest value of each of many columns."""
    table = source("A")
    fields = tuple(Field(f"i{number}", STRING) for number in range(columns))
    measures = tuple(Measure(function, number) for number in range(columns) for function in ("min", "max"))
    return Aggregate(
        "groups", "", table.key, tuple(Field(f"o{number}", STRING) for number in range(2 * columns)), table,
        (Python(lambda value, _: value[0]),), tuple(Named(one.name, Python(str)) for one in fields), fields, measures,
        None, False,
    )  # fmt: skip


def wide() -> Node:
    table = source("A")
    table = replace(table, value=tuple(Field(f"c{number}", STRING) for number in range(1000)))
    return key_join(table, source("B"))


def fifty_joins() -> Node:
    node: Node = source("A")
    for number in range(35):
        node = key_join(node, source(f"B{number}"))
    for number in range(15):
        node = foreign_key_join(node, source(f"C{number}"), "left")
    return node


LARGE: dict[str, Callable[[], Sequence[Node]]] = {
    "1,000 columns": lambda: [wide()],
    "180 aggregates": lambda: [least_and_greatest(90)],
    "100 outputs": lambda: [counted(source(f"T{number}")) for number in range(100)],
    "50 joins": lambda: [fifty_joins()],
}


def chain(joins: int) -> Node:
    """Foreign-key joins, each with the table before."""
    node: Node = source("A")
    right = source("B")
    for _ in range(joins):
        node = foreign_key_join(node, right, "left")
    return node


def selects(count: int) -> Node:
    """Selects, each of the table before."""
    node: Node = source("A")
    for _ in range(count):
        node = mapped(node, lambda value: value)
    return node


def processors(nodes: Sequence[Node]) -> list[RoundProcessor]:
    rounds = Engine([Output(node) for node in nodes]).plan.rounds
    return [RoundProcessor(RoundWorker(work, 16, Settings("", 1))) for work in rounds]


@pytest.mark.parametrize("plan", LARGE)
def test_a_round_of_a_large_plan_stays_below_the_size_from_which_spark_broadcasts(plan: str) -> None:
    for processor in processors(LARGE[plan]()):
        pickled: bytes = CloudPickleSerializer().dumps(processor)  # type: ignore[no-untyped-call]
        assert len(pickled) < MOST / 4
        opened: RoundProcessor = CloudPickleSerializer().loads(pickled)  # type: ignore[no-untyped-call]
        assert opened.worker.work.text == processor.worker.work.text


def test_a_plan_has_as_many_rounds_as_spark_can_plan() -> None:
    allowed = MOST_ROUNDS // 2
    assert len(Engine([Output(chain(allowed))]).plan.rounds) == MOST_ROUNDS
    with pytest.raises(
        PlanError, match=rf"has {MOST_ROUNDS + 2} rounds.*at most {MOST_ROUNDS}.*join_many.*another query"
    ):
        Engine([Output(chain(allowed + 1))])


@pytest.mark.parametrize("deep", [lambda: chain(600), lambda: selects(3000)], ids=["joins", "selects"])
def test_a_plan_that_python_cannot_follow_is_refused(deep: Callable[[], Node]) -> None:
    with pytest.raises(PlanError, match=r"The plan is too deep.*join_many"):
        Engine([Output(deep())])
