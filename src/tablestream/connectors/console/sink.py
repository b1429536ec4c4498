"""Outputs printed by this process: the first changes of each micro-batch, in order."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from tablestream.arguments.kinds import whole
from tablestream.base.data_text import visible, visible_lines
from tablestream.base.printing import printing_to
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import ORDER, KeyedSink
from tablestream.errors import ArgumentError, PlanError


@dataclass(frozen=True, slots=True)
class FirstChanges:
    """The first changes of a micro-batch."""

    title: str
    """The output, the micro-batch, and how many changes it has."""
    rows: DataFrame
    """The changes, sorted by ``_order`` and without it."""
    left_out: int
    """How many changes follow."""

    @classmethod
    def of(
        cls, changes: DataFrame, limit: int | None, output_name: str, micro_batch_id: int
    ) -> FirstChanges | None:
        """Find the first `limit` changes, or all; None if there is no change."""
        count = changes.count()
        if not count:
            return None
        left_out = 0 if limit is None else max(0, count - limit)
        some = f"the first {limit} of {count:,}" if left_out else f"{count:,}"
        title = f"{output_name}, micro-batch {micro_batch_id}: {some} change{'s'[: count != 1]}"
        ordered = changes.orderBy(ORDER).drop(ORDER)
        return cls(title, ordered.limit(limit) if limit is not None and left_out else ordered, left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChangesSink(KeyedSink, ABC):
    """Shows the first changes of each micro-batch, in order. A micro-batch that is done again is shown again."""

    INSTEAD: ClassVar[str]
    """What to do under Spark Connect."""

    limit: int | None
    """How many of a micro-batch; None for all."""

    @property
    def target(self) -> str:
        return "console"

    @property
    def is_shared(self) -> bool:
        return True

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse Spark Connect, where another process calls ``foreachBatch``."""
        if not has_context(spark):
            raise PlanError(
                "Changes cannot be shown on the console under Spark Connect: the server would show them.",
                hint=self.INSTEAD,
            )

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Show the first changes of one micro-batch, if there are any."""
        first = FirstChanges.of(changes, self.limit, output_name, micro_batch_id)
        if first is not None:
            self.show(first, micro_batch_id, output_name)

    @abstractmethod
    def show(self, first: FirstChanges, micro_batch_id: int, output_name: str) -> None:
        """Show the changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink(FirstChangesSink):
    """The standard output of this process; made by `to_console`."""

    INSTEAD = "Write them to files, and read those."

    limit: int
    truncate: bool | int

    def show(self, first: FirstChanges, micro_batch_id: int, output_name: str) -> None:  # noqa: ARG002 (the title says both)
        print(visible(first.title))  # noqa: T201 - that is what it is for
        # Spark escapes line ends and tabs, and no other control character.
        with printing_to(lambda text, out: out.write(visible_lines(text))):
            first.rows.show(self.limit, self.truncate)
        if first.left_out:
            print(f"... and {first.left_out:,} more\n")  # noqa: T201 - the same
        sys.stdout.flush()  # also into a pipe or a file, micro-batch by micro-batch


def to_console(*, n_rows: int = 20, truncate: bool | int = True) -> ConsoleSink:
    """Print the changes of an output, to look at them while a query runs, also beside other outputs.

    Each micro-batch with changes prints its first ones, in their order (``_order``) and as ``DataFrame.show`` does,
    and how many more there are.

    Parameters
    ----------
    n_rows
        The largest number of changes per micro-batch.
    truncate
        As for ``DataFrame.show``: whether values are cut to 20 characters, or to how many.

    Returns
    -------
    ConsoleSink
        For ``table.to(...)``. Several outputs of a query may have one: the lines begin with the output's name.

    Raises
    ------
    ArgumentError
        An argument is not such a number.
    PlanError
        When the query starts under Spark Connect, where the server would print the changes.

    Notes
    -----
    A micro-batch that is done again, after a failure or a restart, is printed again. It sorts its changes, so it costs
    more than the rows that it prints.

    Examples
    --------
    >>> changes = spark.sql("SELECT id, 'upsert' AS _change_type, struct(id) AS _order FROM range(3)")
    >>> to_console(n_rows=2).write(changes, 0, "a query", "positions")
    positions, micro-batch 0: the first 2 of 3 changes
    +---+------------+
    | id|_change_type|
    +---+------------+
    |  0|      upsert|
    |  1|      upsert|
    +---+------------+
    <BLANKLINE>
    ... and 1 more
    <BLANKLINE>
    """
    return ConsoleSink(limit=_checked_rows(n_rows), truncate=_checked_truncate(truncate))


def _checked_rows(n_rows: Any) -> int:
    number = whole(n_rows)
    if number is None or number < 1:
        raise ArgumentError(
            f"n_rows={n_rows!r} is no number of changes.", hint="Give a whole number of at least 1."
        )
    return number


def _checked_truncate(truncate: Any) -> bool | int:
    number = bool(truncate) if isinstance(truncate, bool | np.bool) else whole(truncate)
    if number is None or number < 0:
        raise ArgumentError(
            f"truncate={truncate!r} is neither a bool nor a number of characters.",
            hint="Give False for whole values, or the number of characters.",
        )
    return number
