"""What a checkpoint keeps of the plan so that `why` can explain its rows."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tablestream.base.calling import user_line
from tablestream.connectors.small_texts import first_line, write_line
from tablestream.connectors.spark_place import seen_by_spark
from tablestream.errors import StateError
from tablestream.planner.evolution import Remains
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.provenance import steps
from tablestream.provenance.kept_rows import kept_rows
from tablestream.provenance.registry import described
from tablestream.provenance.steps import Lineage
from tablestream.spark.columns import SparkExpression
from tablestream.spark.row import Plain
from tablestream.spark.stored_plan import PLAN_TEXT
from tablestream.topology.nodes import Expression, Node

_STEPS = f"{PLAN_TEXT}/steps"


def store_steps(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, outputs: Mapping[str, Node]
) -> None:
    """Store how the tables of a plan are made, if it is not there.

    `outputs`: the table of each output, by the output's name.
    """
    text = steps.encode(described(plan, outputs, _copied))
    if first_line(spark, f"{checkpoint}/{_STEPS}", "part-*") != text:
        write_line(spark, f"{checkpoint}/{_STEPS}", text, mode="overwrite")


def stored_steps(spark: SparkSession, checkpoint: str) -> Lineage:
    """Read how they are made; raise `StateError` if the checkpoint does not have it."""
    text = first_line(spark, f"{checkpoint}/{_STEPS}", "part-*")
    found = None if text is None else steps.decode(text)
    if found is None:
        raise StateError(
            f"The checkpoint {seen_by_spark(spark, checkpoint)} does not say how its tables are made: it is that of no"
            " query of this library, or another version started it.",
            hint="Start the query once more with this version; the plan may stay as it is.",
            where=user_line(),
        )
    return found


def stored_remains(spark: SparkSession, checkpoint: str) -> Remains:
    """Say what the state has of each source; nothing if another version started the query, which does not say it."""
    try:
        return kept_rows(stored_steps(spark, checkpoint))
    except StateError:
        return {}


def _copied(expression: Expression) -> str | None:
    """The column that an expression is, if it is one."""
    given = expression.given if isinstance(expression, SparkExpression) else None
    return given.name if isinstance(given, Plain) else None
