"""What becomes of a query that evolves, as users get it: a line for each part, and how long it takes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from tablestream.connectors.shipping import has_context
from tablestream.connectors.spark_place import UNREADABLE
from tablestream.errors import StateError
from tablestream.planner.evolution import NOT_WHOLE, PartFate
from tablestream.spark.state_tables import TableSize, summary

#: On two cores a join of 10,000,000 rows took 79 s, ten plans with 1,000,000 orders 15 to 37 s (docs/scale.md).
_START_S, _ROWS_PER_CORE_SECOND = 15, 80_000
_MINUTE_S = 60
_MOST_REASONS = 3
_REFILL = "With ts.evolve(..., refill=True), or --refill, it can evolve now: all logs are read once more."
_NO_REFILL = "Without refill=True, or --refill, it can evolve: from the rows that the state has."
_KEEP = (
    "With evolvable=True, or --evolvable, from then on, the state keeps all sources whole for the next change;"
    " materialize() of a source keeps that one."
)
#: What helps whatever the plans are.
OTHER_PLAN = "Start the old plan on this checkpoint, or the new plan with a new checkpoint and new targets."


@dataclass(frozen=True)
class Evolution:
    """What becomes of each part of a query if it evolves into another plan.

    Attributes
    ----------
    parts : tuple
        Of each source, operator and output: ``part``, ``name``, ``fate`` and ``why``.
    micro_batch : int
        The last complete micro-batch of the old plan, from which the new one goes on.
    is_same : bool
        Whether the checkpoint has this plan, and each target its rows: nothing has to be done.
    hint : str
        What helps if the query cannot evolve, apart from another plan.
    about_s : float or None
        An estimate of the seconds that it takes, from the rows that are kept and Spark's default parallelism; it can be
        half or twice as long. If logs are read again, it takes this long or longer: they have at least these rows.
        None: it cannot evolve, nothing is left to be done, or the rows are not known.
    """

    parts: tuple[PartFate, ...]
    micro_batch: int
    is_same: bool
    hint: str = ""
    about_s: float | None = None

    @property
    def refused(self) -> tuple[PartFate, ...]:
        """The parts for which the query cannot evolve; none: it can."""
        return refused(self.parts)

    def __str__(self) -> str:
        """A line for each part; if the query cannot evolve, for each part that is refused."""
        if self.is_same:
            return "The checkpoint has this plan: the query can go on with it."
        shown = self.refused or self.parts
        width = max((len(one.name) for one in shown), default=0)
        lines = [f"{one.part:<8}  {one.name:<{width}}  {one.fate:<12}  {one.why}" for one in shown]
        last = [footer(self)] if footer(self) else []
        return "\n".join([f"From micro-batch {self.micro_batch}:", *lines, *last])


def footer(evolution: Evolution) -> str:
    """How long it takes; or that the query cannot evolve, and what helps."""
    if evolution.refused:
        return f"It cannot evolve into this plan. {evolution.hint}".strip()
    if evolution.about_s is None:
        return ""
    is_least = any(one.fate == "read again" for one in evolution.parts)
    more = ", or longer: all records are read again" if is_least else ""
    return f"It takes about {_rounded(evolution.about_s)}{more}."


def evolving(evolution: Evolution, checkpoint: str, options: Mapping[str, str] | None = None) -> str:
    """How a query with another plan can go on from its checkpoint, in Python and in a shell.

    `options`: the arguments that are not as the checkpoint has them, such as ``shards=32``, and what they are there.
    """
    given = dict(options or {})
    if helps := evolution.hint.startswith(_REFILL):
        given["refill=True"] = "--refill"
    shell = " ".join(["module:object --checkpoint", shlex.quote(checkpoint), *given.values()])
    arguments = f"(..., {', '.join(given)})" if given else ""
    in_a_shell = f"In a shell: `tablestream check {shell}`, then `tablestream evolve {shell}`."
    before = f"ts.check{arguments} says before what becomes of each part."
    if not evolution.refused:
        start = 'or on_plan_change="evolve" of ts.start'
        return f"Or let the query evolve: with ts.evolve{arguments}, {start}. {before} {in_a_shell}"
    if helps:
        again = "which reads all logs once more"
        return f"Or let the query evolve with ts.evolve{arguments}, {again}. {before} {in_a_shell}"
    reasons = [f"{one.part} {one.name}: {one.why}" for one in evolution.refused]
    more = [f"{len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
    return (
        f"The query cannot evolve into this plan. {'; '.join([*reasons[:_MOST_REASONS], *more])}."
        f" ts.check shows every reason. In a shell: `tablestream check {shell}`."
    )


def hint_of(parts: Sequence[PartFate], others: Sequence[PartFate], *, refill: bool) -> str:
    """What helps a query that cannot evolve. `others`: its parts with the other `refill`."""
    if not refused(parts):
        return ""
    helps = not refused(others)
    if refill:
        return _NO_REFILL if helps else ""
    not_whole = any(one.part == "source" and one.why.startswith(NOT_WHOLE) for one in refused(parts))
    return " ".join([*([_REFILL] if helps else []), *([_KEEP] if not_whole else [])])


def sized(evolution: Evolution, spark: SparkSession, checkpoint: str, tables: Mapping[str, str]) -> Evolution:
    """Say how many rows of the sources the state has, of which a merge may remove some, and how long it takes.

    `tables`: the table in the state that each source is; empty: none.
    """
    is_read = [one.part == "source" and one.fate in {"kept", "read again"} for one in evolution.parts]
    sizes = {}
    # Logs can be read again for a state that is damaged: then no size is known.
    with suppress(*(() if any(one.fate == "kept" for one in evolution.parts) else UNREADABLE)):
        sizes = _sizes(spark, checkpoint) if any(is_read) else {}
    found = [
        sizes.get(tables.get(one.name, "")) if read else None
        for one, read in zip(evolution.parts, is_read, strict=True)
    ]
    parts = tuple(
        replace(one, why=f"{one.why}{_as(one.name, tables[one.name])}: at most {size or '0 rows'}")
        if one.fate == "kept"
        else one
        for one, size in zip(evolution.parts, found, strict=True)
    )
    rows = sum(size.rows for size in found if size is not None)
    is_known = has_context(spark) and not evolution.is_same and not evolution.refused
    about_s = _START_S + rows / (_ROWS_PER_CORE_SECOND * _cores(spark)) if is_known else None
    return replace(evolution, parts=parts, about_s=about_s)


def _as(name: str, table: str) -> str:
    return "" if name == table else f", as {table}"


def refused(parts: Sequence[PartFate]) -> tuple[PartFate, ...]:
    """Return the parts for which a query cannot evolve."""
    return tuple(one for one in parts if one.fate == "refused")


def _sizes(spark: SparkSession, checkpoint: str) -> dict[str, TableSize]:
    """The sizes of the tables in the state; none if no record has come yet."""
    try:
        return {one.name: one for one in summary(spark, checkpoint).tables}
    except StateError:
        return {}


def _cores(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return max(1, spark.sparkContext.defaultParallelism)


def _rounded(time_s: float) -> str:
    """A time in tens of seconds, or in minutes.

    Examples
    --------
    >>> _rounded(17.3), _rounded(77.8), _rounded(3700)
    ('20 s', '1 min', '62 min')
    """
    return f"{time_s / _MINUTE_S:.0f} min" if time_s >= _MINUTE_S else f"{max(1, round(time_s / 10)) * 10} s"
