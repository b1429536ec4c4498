"""What a checkpoint keeps of the plan that started it: what a restart is compared with, and how its tables are made."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tablestream.base.calling import user_line
from tablestream.connectors.small_texts import documents, first_line, write_line
from tablestream.connectors.spark_place import seen_by_spark
from tablestream.errors import DamagedStateError, SessionSettingError, StateError
from tablestream.planner.evolution import Facts, Remains
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.provenance import steps
from tablestream.provenance.kept_rows import kept_rows
from tablestream.provenance.registry import described
from tablestream.provenance.steps import Lineage
from tablestream.spark.columns import SparkExpression
from tablestream.spark.relocation import check_place
from tablestream.spark.row import Plain
from tablestream.topology.nodes import Expression, Node

#: The directory in the checkpoint.
PLAN_TEXT = "tablestream"
#: The place of the facts that a later plan is compared with.
_FACTS = f"{PLAN_TEXT}/facts"
#: The place of how the tables are made, by which `why` explains their rows.
_STEPS = f"{PLAN_TEXT}/steps"
#: What decides the value of a cast or of a part of a time, and whether a failed cast is null.
_EVALUATING = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
#: Names of UTC: a server's default is often Etc/UTC where a user writes UTC.
_UTC = frozenset(
    {"utc", "etc/utc", "uct", "etc/uct", "zulu", "etc/zulu", "universal", "etc/universal", "z", "+00:00"}
)


def check_plan(spark: SparkSession, checkpoint: str, plan: PhysicalPlan) -> bool:
    """Refuse another plan, place or session than those that made the checkpoint; False if it has none stored."""
    stored = stored_text(spark, checkpoint)
    if stored is None:
        return False
    check_place(spark, checkpoint)
    plan.check_same(stored)
    if plan.rounds:
        check_settings(spark, checkpoint)
    return True


def check_settings(spark: SparkSession, checkpoint: str) -> None:
    """Refuse a session in which expressions give other values than those that the state was made of.

    State keeps what an expression gave: rows that do not change would keep the former values, and the result would be
    a mix, as with a changed expression.
    """
    now = _evaluation(spark)
    for document in documents(spark, f"{checkpoint}/{PLAN_TEXT}", "part-*"):
        stored = json.loads(document.get("session", "{}"))  # older versions stored no settings
        for name in _EVALUATING:
            value = stored.get(name, now[name])
            both = {now[name].casefold(), value.casefold()}
            if len(both) > 1 and not both <= _UTC:
                raise SessionSettingError(
                    f"The checkpoint was started with {name}={value}. This session has {now[name]}: expressions can"
                    " give other values than those in its state, and the result would be a mix of both.",
                    hint=f'Call spark.conf.set("{name}", "{value}") and declare the tables again, or start with a new '
                    "checkpoint.",
                    where=user_line(),
                )


def stored_text(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the text of the plan that made a checkpoint; None if it has none."""
    return next((str(one["value"]) for one in documents(spark, f"{checkpoint}/{PLAN_TEXT}", "part-*")), None)


def store_facts(spark: SparkSession, checkpoint: str, facts: Facts) -> None:
    """Store what a later plan is compared with, if it is not there."""
    known = _all_facts(spark, checkpoint)
    before = known[-1] if known else None
    facts = facts.following(before) if before else facts
    if before != facts:
        entry = {"entry": len(known), "facts": facts.document}
        write_line(spark, f"{checkpoint}/{_FACTS}", json.dumps(entry), mode="append")


def stored_facts(spark: SparkSession, checkpoint: str) -> Facts | None:
    """Return them; None in checkpoints that older versions have started."""
    return next(reversed(_all_facts(spark, checkpoint)), None)


def _all_facts(spark: SparkSession, checkpoint: str) -> list[Facts]:
    """All that were stored, the last ones last; `DamagedStateError` for what this version does not write."""
    stored = documents(spark, f"{checkpoint}/{_FACTS}", "part-*")
    try:
        return [Facts.read(one["facts"]) for one in sorted(stored, key=lambda one: int(one["entry"]))]
    except (KeyError, TypeError, ValueError) as problem:
        raise DamagedStateError(
            f"What the checkpoint {checkpoint} says of its plan cannot be read: {type(problem).__name__}.",
            hint="Use a complete checkpoint, and the version of tablestream that wrote it.",
        ) from problem


def store_plan(spark: SparkSession, checkpoint: str, plan: PhysicalPlan) -> None:
    """Store plan and session at the first start.

    If the query then does not start, what is stored is not binding. The text of an older version stays: it lacks what
    waits for outputs, which the shards compare.
    """
    facts = {"value": plan.text, "session": json.dumps(_evaluation(spark))}
    write_line(spark, f"{checkpoint}/{PLAN_TEXT}", json.dumps(facts), mode="overwrite")


def _evaluation(spark: SparkSession) -> dict[str, str]:
    """The settings of the session that decide what a Column makes of a row."""
    return {name: str(spark.conf.get(name)) for name in _EVALUATING}


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
