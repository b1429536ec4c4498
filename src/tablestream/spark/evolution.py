"""What becomes of a query that evolves, as users get it: a line for each part, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from tablestream.connectors.shipping import has_context
from tablestream.errors import StateError
from tablestream.planner.evolution import PartFate
from tablestream.spark.state_tables import TableSize, summary

#: On two cores a join of 10,000,000 rows took 79 s, ten plans with 1,000,000 orders 15 to 37 s (docs/scale.md).
_START_S, _ROWS_PER_CORE_SECOND = 15, 80_000
_MINUTE_S = 60


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
        half or twice as long. None: it cannot evolve, nothing is left to be done, or the rows are not known.
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
        """A line for each part."""
        if self.is_same:
            return "The checkpoint has this plan: the query can go on with it."
        width = max((len(one.name) for one in self.parts), default=0)
        lines = [f"{one.part:<8}  {one.name:<{width}}  {one.fate:<12}  {one.why}" for one in self.parts]
        last = [footer(self)] if footer(self) else []
        return "\n".join([f"From micro-batch {self.micro_batch}:", *lines, *last])


def footer(evolution: Evolution) -> str:
    """How long it takes, or what helps if the query cannot evolve."""
    about_s = evolution.about_s
    return evolution.hint if about_s is None else f"It takes about {_rounded(about_s)}."


def sized(evolution: Evolution, spark: SparkSession, checkpoint: str) -> Evolution:
    """Say how many rows of the kept sources are read, of which a merge may remove some, and how long that takes."""
    is_kept = [one.fate == "kept" for one in evolution.parts]
    sizes = _sizes(spark, checkpoint) if any(is_kept) else {}
    read = [sizes.get(one.name) if kept else None for one, kept in zip(evolution.parts, is_kept, strict=True)]
    parts = tuple(
        replace(one, why=f"the state has it: at most {size or '0 rows'}") if kept else one
        for one, size, kept in zip(evolution.parts, read, is_kept, strict=True)
    )
    rows = sum(size.rows for size in read if size is not None)
    is_known = has_context(spark) and not evolution.is_same and not evolution.refused
    about_s = _START_S + rows / (_ROWS_PER_CORE_SECOND * _cores(spark)) if is_known else None
    return replace(evolution, parts=parts, about_s=about_s)


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
