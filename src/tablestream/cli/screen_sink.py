"""A sink that shows changes on the screen of ``tablestream run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tablestream.cli.reading import json_lines, polars_rows
from tablestream.connectors.console import FirstChanges, refuse_connect
from tablestream.connectors.sink import KeyedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.cli.screen import Screen


@dataclass(frozen=True)
class ScreenSink(KeyedSink):
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
        refuse_connect(spark, "Write them to files, such as --to parquet:out/changes.")

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Show the changes of one micro-batch, if there are any."""
        first = FirstChanges.of(changes, self.limit, output_name, micro_batch_id)
        if first is None:
            return
        place = {"output": output_name, "micro_batch": micro_batch_id}
        self.screen.changes(first.title, lambda: polars_rows(first.rows), lambda: _lines(first, place))


def _lines(first: FirstChanges, place: Mapping[str, Any]) -> Iterator[str]:
    """Yield an event for each change, and one that says how many are left out, if any."""
    facts = [F.lit(value).alias(name) for name, value in {"event": "change", **place}.items()]
    yield from json_lines(first.rows.select(*facts, F.struct("*").alias("row")))
    if first.left_out:
        yield json.dumps({"event": "omitted", **place, "changes": first.left_out})
