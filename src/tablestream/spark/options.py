"""What users write about outputs and plans, checked: the values that the planner reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from tablestream.arguments.kinds import flag, whole
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_known, checked_length
from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.planner import physical_plan
from tablestream.planner.evolution import Facts
from tablestream.planner.physical_plan import Align, Output, PlanOptions
from tablestream.topology.nodes import Node

Emit = Literal["every", "final"]
Compat = Literal["kafka-streams"] | None
Tombstones = Literal["all", "minimal"]
#: Whether a plan's records wait for each other; with a duration, not for a partition that is silent for that long.
Alignment = bool | str | timedelta

#: What becomes of a row for which an expression fails.
FailedRow = Literal["fail", "null", "reject"]
#: The same for all tables of a plan, or by their names.
OnError = FailedRow | Mapping[str, FailedRow]

#: The number of parts of a plan's state.
DEFAULT_SHARDS = 16


def output_of(
    node: Node,
    emit: Emit = "every",
    before: bool = False,
    tombstones: Tombstones = "all",
    *,
    latest_only: bool = False,
    numbered: bool = False,
) -> Output:
    """Return an output of a plan, from the words of `Table.changes`."""
    before = flag(before, "before")  # one of NumPy becomes Python's
    check_known("emit", emit, ("every", "final"))
    check_known("tombstones", tombstones, ("all", "minimal"))
    return Output(
        node, emit == "final", before, tombstones == "minimal", latest_only=latest_only, numbered=numbered
    )


def plan_options(
    compat: Compat = None,
    shards: int | None = None,
    align: Alignment = False,
    on_error: OnError = "fail",
) -> PlanOptions:
    """Return the options of a plan, from the words of `Table.changes`."""
    check_known("compat", compat, (None, "kafka-streams"))
    return PlanOptions(compat is not None, _shards(shards), _align(align), _on_error(on_error))


def kept_options(
    options: PlanOptions, facts: Facts | None, shards: int | None, evolvable: bool | None
) -> PlanOptions:
    """Return the options of a plan in a checkpoint: what the user does not say is as it was."""
    keeps = evolvable is None and facts is not None and facts.evolvable
    kept = replace(options, evolvable=keeps if evolvable is None else flag(evolvable, "evolvable"))
    return kept if shards is not None or facts is None else replace(kept, shards=facts.shards)


def _on_error(on_error: OnError) -> physical_plan.OnError:
    """Return what becomes of rows for which an expression fails."""
    known = ("fail", "null", "reject")
    if not isinstance(on_error, Mapping):
        check_known("on_error", on_error, known)
        return physical_plan.OnError(str(on_error))
    for name, chosen in on_error.items():
        check_known(f"on_error[{name!r}]", chosen, known)
    return physical_plan.OnError(named=tuple((str(name), str(chosen)) for name, chosen in on_error.items()))


def _align(align: Alignment) -> Align | None:
    """Return how a plan's records wait for each other."""
    if isinstance(align, bool):
        return Align() if align else None
    return Align(checked_length(align, "align", Place("the plan", user_line())))


def _shards(shards: int | None) -> int:
    """Return the number of shards."""
    number = DEFAULT_SHARDS if shards is None else whole(shards)
    if number is None or not 1 <= number <= 4096:
        raise ArgumentError(
            f"shards={shards!r} is not a number between 1 and 4096.",
            hint="A shard is a part of the state; a few per core are enough.",
            where=user_line(),
        )
    return number
