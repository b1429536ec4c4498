"""Where ``tablestream run`` writes the changes of a table: ``--to FORMAT:DIRECTORY``, or the screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from tablestream.cli.display import json_lines, polars_rows
from tablestream.cli.screen import Screen
from tablestream.cli.target import outputs_of
from tablestream.connectors.console.sink import FirstChanges, FirstChangesSink
from tablestream.connectors.delta.sink import to_delta
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError
from tablestream.spark.requests import OutputRequest
from tablestream.sql.outputs import SqlOutputs, to_each

CONSOLE = "console"
_SINKS: dict[str, Callable[[str], Sink]] = {
    "parquet": to_files,
    "json": lambda directory: to_files(directory, "json"),
    "delta": to_delta,
}


def sink_of(text: str, screen: Screen, limit: int | None) -> Sink:
    """Return the sink that a text names."""
    if text == CONSOLE:
        return ScreenSink(screen=screen, limit=limit)
    kind, _, directory = text.partition(":")
    if kind not in _SINKS or not directory:
        raise ArgumentError(
            f"--to {text} names no target.",
            hint=f"Write {CONSOLE}, {', '.join(f'{one}:DIRECTORY' for one in _SINKS)}. For others return outputs,"
            " such as table.to(ts.to_kafka(...)).",
        )
    return _SINKS[kind](directory)


def written_to(found: Any, to: Sequence[Sink], console: Sink) -> list[OutputRequest] | None:
    """Return outputs, or a table or a stream as outputs to what the user names; None for anything else.

    Without a name, the changes of a table go to the console. Outputs that have sinks already are refused another one.
    """
    is_file = isinstance(found, SqlOutputs)
    given = outputs_of(found)
    if given and to and not (is_file and found.unwritten):
        raise ArgumentError(
            "The outputs say themselves where they are written.", hint="Omit --to, or return the table."
        )
    if is_file:
        return list(found.to(to or [console]))
    if given:
        return given
    if not hasattr(found, "to") or not hasattr(found, "changes"):
        return None
    name = found.to(console).name
    return list(to_each(found, to or [console], name))


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
