"""A sink that shows changes on the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, cast

import polars as pl
from pyspark.sql import functions as F

from tablestream.connectors.files import JSON_OPTIONS
from tablestream.connectors.sink import ORDER
from tablestream.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.cli.screen import Screen


@dataclass(frozen=True)
class ConsoleSink:
    """Shows the first changes of each micro-batch, in order. A micro-batch that is done again is shown again.

    Attributes
    ----------
    screen
        Where to show them.
    limit
        How many of a micro-batch.
    """

    screen: Screen = field(repr=False)
    limit: int
    key_columns: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """There is one console."""
        return "console"

    @property
    def needs_final(self) -> bool:
        """Every change is shown."""
        return False

    def keyed_by(self, names: Sequence[str]) -> Self:
        """Return the same sink with the key columns."""
        return replace(self, key_columns=tuple(names))

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse Spark Connect: the server would show the changes."""
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise PlanError(
                "Changes cannot be shown on the console under Spark Connect: the server would show them.",
                hint="Write them to files, such as --to parquet:out/changes.",
            )

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Show the changes of one micro-batch, if there are any."""
        count = changes.count()
        if not count:
            return
        shown = changes.orderBy(ORDER).drop(ORDER).limit(self.limit)
        some = f"the first {self.limit} of {count:,}" if count > self.limit else f"{count:,}"
        title = f"{output_name}, micro-batch {micro_batch_id}: {some} change{'s'[: count != 1]}"

        def lines() -> list[str]:
            event = {"event": "change", "output": output_name, "micro_batch": micro_batch_id}
            facts = [F.lit(value).alias(name) for name, value in event.items()]
            row = F.struct(*facts, F.struct("*").alias("row"))
            return [str(line) for (line,) in shown.select(F.to_json(row, JSON_OPTIONS)).collect()]

        self.screen.changes(title, cast("pl.DataFrame", pl.from_arrow(shown.toArrow())), lines)
