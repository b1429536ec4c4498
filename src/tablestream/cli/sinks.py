"""Where ``tablestream run`` writes the changes of a table: ``--to FORMAT:DIRECTORY``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tablestream.cli.screen_sink import ScreenSink
from tablestream.cli.target import outputs_of
from tablestream.connectors.delta.sink import to_delta
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from tablestream.cli.screen import Screen
    from tablestream.spark.runner import OutputRequest

CONSOLE = "console"
_SINKS: dict[str, Callable[[str], Sink]] = {
    "parquet": to_files,
    "json": lambda directory: to_files(directory, "json"),
    "delta": to_delta,
}


def sink_of(text: str, screen: Screen, limit: int | None) -> Sink:
    """Return the sink that a text names.

    Raises
    ------
    ArgumentError
        It names none.
    """
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


def sinks_of(texts: Sequence[str], screen: Screen, limit: int | None) -> list[Sink]:
    """Return the sinks that texts name; raises as `sink_of`."""
    return [sink_of(text, screen, limit) for text in texts]


def written_to(found: Any, to: Sequence[Sink], console: Sink) -> list[OutputRequest] | None:
    """Return outputs, or a table or a stream as outputs to what the user names; None for anything else.

    Without a name, the changes of a table go to the console.

    Raises
    ------
    ArgumentError
        Outputs that have sinks already are to be written elsewhere.
    """
    given = outputs_of(found)
    if given:
        if to:
            raise ArgumentError(
                "The outputs say themselves where they are written.", hint="Omit --to, or return the table."
            )
        return given
    if not hasattr(found, "to") or not hasattr(found, "changes"):
        return None
    first, *others = to or [console]
    name = found.to(first).name
    return [found.to(first), *(found.to(one, name=f"{name}_{n}") for n, one in enumerate(others, start=2))]
