"""A sink that shows changes on the screen of ``tablestream run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tablestream.cli.reading import json_lines, polars_rows
from tablestream.connectors.console.sink import FirstChanges, FirstChangesSink

if TYPE_CHECKING:
    from tablestream.cli.screen import Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSink(FirstChangesSink):
    """Shows changes on a screen."""

    INSTEAD = "Write them to files, such as --to parquet:out/changes."

    screen: Screen = field(repr=False)

    def show(self, first: FirstChanges, micro_batch_id: int, output_name: str) -> None:
        """Show the changes as the screen does: as a table, or as events."""
        place = {"output": output_name, "micro_batch": micro_batch_id}
        self.screen.changes(first.title, lambda: polars_rows(first.rows), lambda: _lines(first, place))


def _lines(first: FirstChanges, place: Mapping[str, Any]) -> Iterator[str]:
    """Yield an event for each change, and one that says how many are left out, if any."""
    facts = [F.lit(value).alias(name) for name, value in {"event": "change", **place}.items()]
    yield from json_lines(first.rows.select(*facts, F.struct("*").alias("row")))
    if first.left_out:
        yield json.dumps({"event": "omitted", **place, "changes": first.left_out})
