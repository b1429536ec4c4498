"""A sink that keeps a micro-batch's changes and marks it as complete, as the sinks of files do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.plans.engine import Step
from tests.simulation.world import Kind


class SinkFailed(Exception):  # noqa: N818 - an event of the simulation
    """The sink fails, and with it the query."""


@dataclass
class Frame:
    """What `foreachBatch` passes: the changes of all outputs."""

    outputs: Sequence[Sequence[Step]]

    def persist(self, level: object) -> Frame:
        """Do nothing: the changes are here."""
        del level
        return self

    def count(self) -> int:
        """Count the changes."""
        return sum(map(len, self.outputs))

    def unpersist(self) -> None:
        """Do nothing."""


@dataclass(eq=False)
class MarkingSink:
    """Writes change by change, and then a mark. Readers see what is marked.

    Attributes
    ----------
    fails
        Called after each change, before the mark and after it, with the number of the micro-batch; may raise.
    data, marks
        What is stored, and which micro-batches are complete.
    """

    target: str
    fails: Callable[[int, Kind], None]
    key_columns: tuple[str, ...] = ()
    needs_final: bool = False
    data: dict[int, list[Step]] = field(default_factory=dict)
    marks: set[int] = field(default_factory=set)

    def write(self, changes: Any, micro_batch_id: int, query_id: str, output_name: str) -> None:
        """See `tablestream.connectors.sink.Sink`."""
        del query_id, output_name
        if micro_batch_id in self.marks:
            return
        self.put(changes, micro_batch_id)
        self.fails(micro_batch_id, Kind.SINK_FAILS_BEFORE_MARK)
        self.mark(micro_batch_id)
        self.fails(micro_batch_id, Kind.SINK_FAILS_AFTER_MARK)

    def put(self, changes: Sequence[Step], micro_batch_id: int) -> None:
        """Replace the data of an earlier attempt."""
        self.data[micro_batch_id] = []
        for change in changes:
            self.data[micro_batch_id].append(change)
            self.fails(micro_batch_id, Kind.SINK_FAILS_IN_DATA)

    def mark(self, micro_batch_id: int) -> None:
        """Mark a micro-batch as complete."""
        self.marks.add(micro_batch_id)

    def read(self) -> dict[int, list[Step]]:
        """Return the complete micro-batches."""
        return {number: self.data[number] for number in sorted(self.marks)}
