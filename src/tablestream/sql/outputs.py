"""What a file of statements results in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tablestream.connectors.sink import Sink
from tablestream.spark.requests import OutputRequest
from tablestream.sql.handles import Handle


@dataclass(frozen=True)
class SqlOutputs:
    """What a file of statements results in.

    Attributes
    ----------
    written
        The views that say where they are written.
    unwritten
        The materialized views that do not say it, and that no other view reads, by their names.
    """

    written: tuple[OutputRequest, ...]
    unwritten: Mapping[str, Handle]

    def to(self, sinks: Sequence[Sink]) -> list[OutputRequest]:
        """Return all outputs; what does not say where it is written goes to each of some sinks."""
        others = (one for name, view in self.unwritten.items() for one in to_each(view, sinks, name))
        return [*self.written, *others]


def to_each(view: Handle, sinks: Sequence[Sink], name: str) -> Iterator[OutputRequest]:
    """Yield a table or a stream as outputs to several sinks."""
    for number, sink in enumerate(sinks, start=1):
        yield view.to(sink, name=name if number == 1 else f"{name}_{number}")
