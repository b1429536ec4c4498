"""The rows of an output in the state of a query, to bring a target over whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tablestream.connectors.sink import CHANGE_TYPE, NUMBER, ORDER
from tablestream.errors import StateError, TargetError
from tablestream.planner.catalogue import decode
from tablestream.spark.state_reader import read_stored
from tablestream.spark.stored_rows import VALID_FROM, VALID_TO
from tablestream.spark.stored_state import StoredState
from tablestream.topology.graph import named_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.planner.physical_plan import PhysicalPlan
    from tablestream.topology.nodes import Node


def stored_output(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, node: Node, micro_batch: int
) -> DataFrame:
    """Return the rows of a table after a micro-batch, as changes that insert them; `TargetError` if there are none."""
    name = named_as(node, plan.names)
    try:
        known = StoredState.of(spark, checkpoint, micro_batch).tables().by_name.get(name)
    except StateError as error:
        raise _not_stored(name, error.reason) from error
    now = [table for work in plan.rounds for table in decode(work.tables).tables if table.name == name]
    if known is None or known not in now or (known.key, known.value) != (node.key, node.value):
        raise _not_stored(name, f"The state does not have the rows of '{name}'.")
    _, rows = read_stored(spark, checkpoint, name, micro_batch, None)
    if known.history is not None:
        rows = rows.where(F.col(VALID_TO).isNull()).drop(VALID_FROM, VALID_TO)
    number = F.lit(0).cast("bigint").alias(NUMBER)
    return rows.select("*", F.lit("insert").alias(CHANGE_TYPE), F.struct(number).alias(ORDER))


def _not_stored(name: str, why: str) -> TargetError:
    return TargetError(
        f"The target of '{name}' cannot be rebuilt. {why}",
        hint="What the state keeps can be: groups, versioned tables, and what has materialize(). Otherwise write to a"
        " new target with a new checkpoint, which reads the sources from their beginning.",
    )
