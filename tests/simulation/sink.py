"""A sink that keeps a micro-batch's changes and marks it as complete, as the sinks of files do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tablestream.connectors.marks import Found, Mark, Moment, OnMismatch, Verdict, judged
from tests.plans.engine import Step
from tests.simulation.world import Kind


class SinkFailed(Exception):  # noqa: N818 - an event of the simulation
    """The sink fails, and with it the query."""


@dataclass
class Frame:
    """What `foreachBatch` passes: the changes of all outputs."""

    outputs: Sequence[Sequence[Step]]
    sparkSession: None = None  # noqa: N815 - Spark's name

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
    """A log that writes change by change, and then a mark. Readers see what is marked.

    Attributes
    ----------
    fails
        Called after each change, before the mark and after it, with the number of the micro-batch; may raise.
    data, marks
        What is stored, and which micro-batches are complete.
    last, history
        The last mark, with its proof, and all of them.
    on_mismatch, moment, replaces
        See `tablestream.connectors.marks`.
    """

    target: str
    fails: Callable[[int, Kind], None]
    key_columns: tuple[str, ...] = ()
    needs_final: bool = False
    data: dict[int, list[Step]] = field(default_factory=dict)
    marks: set[int] = field(default_factory=set)
    last: Mark | None = None
    history: list[Mark] = field(default_factory=list)
    on_mismatch: OnMismatch = "refuse"
    moment: Moment | None = None
    replaces: bool = False

    def at(self, moment: Moment) -> MarkingSink:
        """See `tablestream.connectors.marks.MarkedSink`. It stays the same object: there is one target."""
        self.moment = moment
        return self

    def settle(self, spark: Any, columns: Any, stored: Any) -> None:
        """See `tablestream.connectors.marks.MarkedSink`: what the checkpoint lacks is taken back."""
        del spark, columns, stored
        moment = self.moment
        assert moment is not None
        verdict = judged(self.found, moment.number, moment, self.on_mismatch, starting=True)
        if verdict is Verdict.SETTLE:
            self.go_back(moment.number)
            self.last = Mark(moment.number - 1, moment.before)

    def go_back(self, number: int) -> None:
        """Forget the micro-batches from a number on."""
        self.marks = {one for one in self.marks if one < number}
        self.history = [one for one in self.history if one.micro_batch < number]

    @property
    def found(self) -> Found:
        return Found(self.target, self.last, is_empty=not self.marks, follows=False)

    def keyed_by(self, names: Sequence[str]) -> MarkingSink:
        """See `tablestream.connectors.sink.Sink`."""
        del names
        return self

    def check(self, spark: Any, columns: Sequence[str]) -> None:
        """See `tablestream.connectors.sink.Sink`."""

    def write(self, changes: Any, micro_batch_id: int, query_id: str, output_name: str) -> None:
        """See `tablestream.connectors.sink.Sink`."""
        del query_id, output_name
        verdict = judged(self.found, micro_batch_id, self.moment, self.on_mismatch)
        if verdict is Verdict.DONE:
            return
        self.replaces = verdict is Verdict.SETTLE
        self.put(changes, micro_batch_id)
        self.fails(micro_batch_id, Kind.SINK_FAILS_BEFORE_MARK)
        if self.replaces:
            self.go_back(0)
        self.mark(micro_batch_id)
        self.fails(micro_batch_id, Kind.SINK_FAILS_AFTER_MARK)

    def stage(self, spark: Any, columns: Any, schema: Any) -> str:
        """See `tablestream.connectors.sink.StagedSink`: the simulation says which outputs are staged."""
        del spark, columns, schema
        return ""

    def commit(self, spark: Any, stage: Any, written: Any, micro_batch_id: int, query_id: str) -> None:
        """See `tablestream.connectors.sink.StagedSink`: what the tasks wrote are the changes."""
        del spark, stage
        self.write(written, micro_batch_id, query_id, "")

    def put(self, changes: Sequence[Step], micro_batch_id: int) -> None:
        """Replace the data of an earlier attempt."""
        self.data[micro_batch_id] = []
        for change in changes:
            self.data[micro_batch_id].append(change)
            self.fails(micro_batch_id, Kind.SINK_FAILS_IN_DATA)

    def mark(self, micro_batch_id: int) -> None:
        """Mark a micro-batch as complete."""
        assert self.moment is not None
        self.marks.add(micro_batch_id)
        self.last = Mark(micro_batch_id, self.moment.proof)
        self.history.append(self.last)

    def read(self) -> dict[int, list[Step]]:
        """Return the complete micro-batches."""
        return {number: self.data[number] for number in sorted(self.marks)}


@dataclass(eq=False)
class MaintainedSink(MarkingSink):
    """A table with one row per key, which gets the changes of a micro-batch and the mark in one act.

    Attributes
    ----------
    table
        Its rows.
    tables
        Its rows after each micro-batch.
    """

    needs_final: bool = True
    table: dict[Any, Any] = field(default_factory=dict)
    tables: dict[int, dict[Any, Any]] = field(default_factory=dict)

    def put(self, changes: Sequence[Step], micro_batch_id: int) -> None:
        """Prepare the rows. If the target is settled, all of them come."""
        super().put(changes, micro_batch_id)
        self.tables[micro_batch_id] = applied(changes, {} if self.replaces else self.table)

    def mark(self, micro_batch_id: int) -> None:
        """Replace the table."""
        super().mark(micro_batch_id)
        self.table = self.tables[micro_batch_id]


def applied(changes: Sequence[Step], table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Apply changes to a table."""
    rows = dict(table)
    for change in (one.change for one in changes):
        if change.value is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.value
    return rows
