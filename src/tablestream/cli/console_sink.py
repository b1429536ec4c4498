"""A sink that shows changes on the console."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tablestream.cli.reading import json_lines, polars_rows
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import ORDER, KeyedSink
from tablestream.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.cli.screen import Screen


@dataclass(frozen=True)
class ConsoleSink(KeyedSink):
    """Shows the first changes of each micro-batch, in order. A micro-batch that is done again is shown again.

    Attributes
    ----------
    screen
        Where to show them.
    limit
        How many of a micro-batch; None for all.
    """

    screen: Screen = field(repr=False)
    limit: int | None

    @property
    def target(self) -> str:
        """There is one console."""
        return "console"

    @property
    def needs_final(self) -> bool:
        """Every change is shown."""
        return False

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse Spark Connect: the server would show the changes."""
        if not has_context(spark):
            raise PlanError(
                "Changes cannot be shown on the console under Spark Connect: the server would show them.",
                hint="Write them to files, such as --to parquet:out/changes.",
            )

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Show the changes of one micro-batch, if there are any."""
        count = changes.count()
        if not count:
            return
        left_out = 0 if self.limit is None else max(0, count - self.limit)
        some = f"the first {self.limit} of {count:,}" if left_out else f"{count:,}"
        title = f"{output_name}, micro-batch {micro_batch_id}: {some} change{'s'[: count != 1]}"
        place = {"output": output_name, "micro_batch": micro_batch_id}
        ordered = changes.orderBy(ORDER).drop(ORDER)
        shown = ordered.limit(self.limit) if self.limit is not None and left_out else ordered
        self.screen.changes(title, lambda: polars_rows(shown), lambda: _lines(shown, place, left_out))


def _lines(shown: DataFrame, place: Mapping[str, Any], left_out: int) -> Iterator[str]:
    """Yield an event for each change, and one that says how many are left out, if any."""
    facts = [F.lit(value).alias(name) for name, value in {"event": "change", **place}.items()]
    yield from json_lines(shown.select(*facts, F.struct("*").alias("row")))
    if left_out:
        yield json.dumps({"event": "omitted", **place, "changes": left_out})
