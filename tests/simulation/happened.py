"""What happened in a simulated query: events for people, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.order import Event
from tests.simulation.world import Fault, Kind


class DriverDied(Exception):  # noqa: N818 - an event of the simulation
    """The driver's process ends."""


class SimulationError(AssertionError):
    """A rule of the engine does not hold in a world."""


@dataclass
class Happened:
    """The faults that are still to come, and what happened.

    Attributes
    ----------
    pending
        Faults that have not happened.
    events
        What happened, one line each.
    faults
        How many faults of each kind happened.
    micro_batches
        How many micro-batches began, with those that were repeated.
    order
        What began, ended, failed and was written; see `tests.simulation.order`.
    """

    pending: list[Fault]
    events: list[str] = field(default_factory=list)
    faults: Counter[Kind] = field(default_factory=Counter)
    micro_batches: int = 0
    order: list[Event] = field(default_factory=list)

    def take(
        self,
        kinds: Iterable[Kind],
        micro_batch: int,
        turn: int | None = None,
        of: tuple[int, int] = (0, 1),
    ) -> Sequence[Fault]:
        """Take the faults that are due.

        Parameters
        ----------
        kinds, micro_batch, turn
            What the faults say; any turn if it is None.
        of
            A number and how many there are, where a fault is for one of several.
        """
        wanted = set(kinds)
        due = [
            fault
            for fault in self.pending
            if fault.kind in wanted
            and fault.micro_batch == micro_batch
            and (turn is None or fault.turn == turn)
            and fault.where % of[1] == of[0]
        ]
        self.pending = [fault for fault in self.pending if fault not in due]
        return due

    def expects(self, kinds: Iterable[Kind], micro_batch: int, turn: int) -> bool:
        """Whether a fault is due, without taking it."""
        wanted = set(kinds)
        return any(
            fault.kind in wanted and (fault.micro_batch, fault.turn) == (micro_batch, turn)
            for fault in self.pending
        )

    def note(self, event: str) -> None:
        """Note an event."""
        self.events.append(event)

    def count(self, fault: Fault, event: str) -> None:
        """Note a fault that happened."""
        self.faults[fault.kind] += 1
        self.note(f"micro-batch {fault.micro_batch}: {fault.kind}: {event}")
