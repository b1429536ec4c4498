"""Options as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tablestream.arguments import check_known, checked_length
from tablestream.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.kinds import flag, whole
from tablestream.planner import physical_plan
from tablestream.planner.physical_plan import Align

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


@dataclass(frozen=True)
class OutputSpec:
    """How an output emits its changes; see `Table.changes`. With `rejected`, the rejected records instead.

    `latest_only`: for a versioned table, only changes that are the latest of their row.
    `numbered`: ``_order`` ends with the number of the change among those of its key in the micro-batch.

    Raises
    ------
    ArgumentError
        An option is unknown.
    """

    emit: Emit = "every"
    before: bool = False
    tombstones: Tombstones = "all"
    rejected: bool = False
    latest_only: bool = False
    numbered: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "before", flag(self.before, "before"))  # one of NumPy becomes Python's
        check_known("emit", self.emit, ("every", "final"))
        check_known("tombstones", self.tombstones, ("all", "minimal"))


def checked_compat(compat: Compat) -> bool:
    """Return whether a plan is in compat mode."""
    check_known("compat", compat, (None, "kafka-streams"))
    return compat is not None


def checked_on_error(on_error: OnError) -> physical_plan.OnError:
    """Return what becomes of rows for which an expression fails."""
    known = ("fail", "null", "reject")
    if not isinstance(on_error, Mapping):
        check_known("on_error", on_error, known)
        return physical_plan.OnError(str(on_error))
    for name, chosen in on_error.items():
        check_known(f"on_error[{name!r}]", chosen, known)
    return physical_plan.OnError(named=tuple((str(name), str(chosen)) for name, chosen in on_error.items()))


def checked_align(align: Alignment) -> Align | None:
    """Return how a plan's records wait for each other."""
    if isinstance(align, bool):
        return Align() if align else None
    return Align(checked_length(align, "align", "the plan", user_line()))


def checked_shards(shards: int | None) -> int:
    """Return the number of shards."""
    number = DEFAULT_SHARDS if shards is None else whole(shards)
    if number is None or not 1 <= number <= 4096:
        raise ArgumentError(
            f"shards={shards!r} is not a number between 1 and 4096.",
            hint="A shard is a part of the state; a few per core are enough.",
            where=user_line(),
        )
    return number
