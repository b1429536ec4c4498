"""How a change log comes about: rows that arrive, and edit by edit what becomes of them.

A history is made up before it is cut into files. Its rows have the columns of the log's key and values, ``op``, and
``arrived_at``, the moment at which the row arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from examples.demo.change_logs import DELETE, MOMENT, UPSERT, ChangeLog, LogSpec

Edit = Callable[[pl.DataFrame, np.random.Generator], pl.DataFrame]

HOUR = timedelta(hours=1)


class History:
    """Builds a log edit by edit; knows the latest row of every key, so that edits add up.

    Parameters
    ----------
    first
        The first row of every key: key, values, ``arrived_at``.
    spec
        The log's description.
    rng
        What all chance is drawn from.
    """

    def __init__(self, first: pl.DataFrame, spec: LogSpec, rng: np.random.Generator) -> None:
        self._spec, self._rng = spec, rng
        self._told = [first.with_columns(op=pl.lit(UPSERT))]
        self._latest = self._told[0].sort(spec.key)

    @property
    def latest(self) -> pl.DataFrame:
        """The latest row of every key, deletes too, by key."""
        return self._latest

    def edit(
        self,
        share: float,
        change: Edit,
        *,
        within: timedelta,
        at_least: timedelta = HOUR,
        op: str = UPSERT,
        among: Sequence[str] | pl.Series | None = None,
    ) -> pl.DataFrame:
        """Change a `share` of the keys whose latest row has `op`, and return what was told.

        Each changes after its latest row: not before `at_least`, and sooner than `within`, in whole seconds.
        """
        rows = self._latest.filter(pl.col("op") == op)
        if among is not None:
            rows = rows.filter(pl.col(self._spec.key).is_in(list(among)))
        chosen = self._later(sample(rows, share, self._rng), at_least, within)
        changed = change(chosen, self._rng)
        self.tell(changed)
        return changed

    def tell(self, changed: pl.DataFrame) -> None:
        """Add rows, one per key, which are the latest then."""
        changed = changed.select(self._latest.columns)
        self._told.append(changed)
        # Sorted, because the next edit draws its rows by their number.
        rest = self._latest.join(changed, on=self._spec.key, how="anti")
        self._latest = pl.concat([rest, changed]).sort(self._spec.key)

    def delete(
        self,
        share: float,
        *,
        within: timedelta,
        at_least: timedelta = HOUR,
        returning: float,
        among: Sequence[str] | pl.Series | None = None,
    ) -> None:
        """Delete a `share` of the keys, and bring a share of those back, with the values they had."""
        living = self._latest
        gone = self.edit(share, self._without_values, within=within, at_least=at_least, among=among)
        back, keys = self.as_in(living), gone[self._spec.key]
        self.edit(returning, back, within=within, at_least=at_least, op=DELETE, among=keys)

    def as_in(self, earlier: pl.DataFrame) -> Edit:
        """Return the edit that gives rows the values that their keys have in `earlier`."""
        key = self._spec.key
        values = earlier.select(key, *self._spec.values)

        def restored(rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
            again = rows.drop(self._spec.values).join(values, on=key, how="left", maintain_order="left")
            return again.with_columns(op=pl.lit(UPSERT)).select(rows.columns)

        return restored

    def rows(self) -> pl.DataFrame:
        """Return all rows in order of arrival; a key's own rows stay in the order they were told."""
        return pl.concat(self._told).sort("arrived_at", self._spec.key, maintain_order=True)

    def _later(self, rows: pl.DataFrame, at_least: timedelta, within: timedelta) -> pl.DataFrame:
        first_s, end_s = int(at_least.total_seconds()), int(within.total_seconds())
        delays_s = self._rng.integers(first_s, end_s, rows.height)
        return rows.with_columns(pl.col("arrived_at") + seconds(delays_s))

    def _without_values(self, rows: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in self._spec.values.items()]
        return rows.with_columns(*nulls, op=pl.lit(DELETE))


def moved(rows: pl.DataFrame, column: str, pool: pl.Series, rng: np.random.Generator) -> pl.DataFrame:
    """Point `column` at another value of `pool`, drawn with the frequency the pool has it."""
    drawn = pool.gather(rng.integers(0, pool.len(), rows.height))
    distinct = pool.unique().sort()
    beside = distinct.gather((distinct.search_sorted(drawn) + 1) % distinct.len())
    same = drawn.eq_missing(rows[column])
    return rows.with_columns(beside.zip_with(same, drawn).alias(column))


def sample(rows: pl.DataFrame, share: float, rng: np.random.Generator) -> pl.DataFrame:
    """Return a `share` of the rows, at least one of a share above zero, in their order."""
    count = min(rows.height, max(round(rows.height * share), 1 if share else 0))
    return rows[np.sort(rng.choice(rows.height, count, replace=False))] if count else rows.clear()


def arriving(rows: pl.DataFrame, days: np.typing.NDArray[np.int64], beginning: datetime) -> pl.DataFrame:
    """Return `rows` arriving so many days after the `beginning`, and those of day zero the day before it."""
    moments = [beginning + timedelta(days=int(day) if day else -1) for day in days]
    return rows.with_columns(arrived_at=pl.Series(moments, dtype=MOMENT))


def seconds(counts: np.typing.NDArray[np.int64]) -> pl.Expr:
    """Return so many seconds for each row."""
    return pl.lit(pl.Series(counts * 1_000_000, dtype=pl.Duration("us")))


def cut_evenly(spec: LogSpec, rows: pl.DataFrame, steps: int) -> tuple[pl.DataFrame, pl.Series]:
    """Give rows in order of arrival a step, of about as many rows each, and a part by their (whole) key.

    Returns
    -------
    tuple of DataFrame and Series
        The rows, and the moments at which all steps but the first begin.
    """
    step = pl.int_range(pl.len()) * steps // pl.len()
    part = pl.col(spec.key) % spec.parts
    rows = rows.with_columns(step=step.cast(pl.Int32), part=part.cast(pl.Int32))
    starts = rows.group_by("step").agg(pl.col("arrived_at").min()).sort("step")["arrived_at"]
    return rows, starts[1:]


def cut_at(
    spec: LogSpec, rows: pl.DataFrame, starts: pl.Series, *, changed_at: str = "arrived_at"
) -> ChangeLog:
    """Cut a log of one part where another one's later steps begin; `changed_at` has the moment of a change."""
    step = starts.search_sorted(rows["arrived_at"], side="right")
    files = rows.with_columns(pl.Series("step", step, pl.Int32), part=pl.lit(0, pl.Int32))
    return as_log(spec, files.with_columns(changed_at=changed_at))


def as_log(spec: LogSpec, rows: pl.DataFrame) -> ChangeLog:
    """Return rows that have their moment, step and part as a log."""
    return ChangeLog(spec, rows.select(*spec.schema.names(), "step", "part"))
