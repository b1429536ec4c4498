"""How deep a plan may be.

Each round is a stage behind the others, and Spark's planner calls itself for every part of a stage. A long line of
rounds ends a query with a ``StackOverflowError``, which says nothing about the plan; one that Python itself cannot
follow ends with a ``RecursionError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tablestream.base.calling import user_line
from tablestream.errors import PlanError

#: A chain of 20 foreign-key joins. In a Java stack of the default size, Spark planned these, and not 60 rounds.
MOST_ROUNDS = 40

_HINT = (
    "Look up several tables by foreign keys of one row in one step, with join_many: that takes three rounds in all."
    " Or write a table in the middle to a target, and read it with another query."
)


def check_rounds(rounds: int) -> None:
    """Refuse a plan with too many rounds.

    Raises
    ------
    PlanError
        It has more than `MOST_ROUNDS`.
    """
    if rounds > MOST_ROUNDS:
        raise PlanError(
            f"The plan has {rounds} rounds, one behind the other; at most {MOST_ROUNDS} are possible.",
            hint=_HINT,
            where=user_line(),
        )


@contextmanager
def within_stack() -> Iterator[None]:
    """Refuse a plan that is too deep for Python's stack.

    Raises
    ------
    PlanError
        The stack was not enough.
    """
    try:
        yield
    except RecursionError:
        raise PlanError(
            "The plan is too deep: too many tables are made one from the other.",
            hint=_HINT,
            where=user_line(),
        ) from None
