"""The order of what happens in a query: the rules that the simulator follows, and that Spark must follow, too.

``tests/golden/orders`` has orders that real runs of Spark had; `tests.faults.recorder` records them. A test checks them
and the simulator's own against these rules:

==================  ==============================================================================================
event               comes only if
==================  ==============================================================================================
starts              (always) the query starts, or starts again
begins M R T A      M is the first micro-batch that is not committed, and its sinks have not been written in this run;
                    all tasks of earlier rounds of M that began in this run have ended; if a task of a later round
                    has begun or the sinks are being written, T has ended: its output is lost, and T runs again;
                    attempt A of task T has not begun before
ends M R T A        the attempt has begun, and has neither ended nor failed
fails M R T A       the same
writes M            M is the first that is not committed; every task that began in this run has ended
written M           the sinks are written in this run
committed M         the sinks were written in this run
restored M          M is committed or the first that is not: a backup is back, in which M is the first that is not
==================  ==============================================================================================

A task has ended when one of its attempts has. If another one begins after that, its end counts, or that of one that
begins beside it. Attempts of an earlier run may still end or fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

STARTS, BEGINS, ENDS, FAILS = "starts", "begins", "ends", "fails"
WRITES, WRITTEN, COMMITTED, RESTORED = "writes", "written", "committed", "restored"


class Event(NamedTuple):
    """What happened, in which micro-batch, and to which attempt of which task of which round, where it is one."""

    what: str
    micro_batch: int = -1
    round: int = -1
    task: int = -1
    attempt: int = -1

    def __str__(self) -> str:
        """Return it as a line of a recorded order."""
        return " ".join([self.what, *(str(number) for number in self[1:] if number >= 0)])


def event_of(line: str) -> Event:
    """Read a line of a recorded order."""
    what, *numbers = line.split()
    return Event(what, *map(int, numbers))


@dataclass
class Rules:
    """What has happened so far, and whether the next event may come.

    Attributes
    ----------
    committed
        How many micro-batches are.
    tasks
        The tasks (round, task) of the current micro-batch that began in this run of the query: for each the attempts
        whose end counts; none when it has ended.
    ended
        The tasks that have ended once.
    open
        The attempts that began and neither ended nor failed, of all runs.
    """

    committed: int = 0
    runs: int = 0
    tasks: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    ended: set[tuple[int, int]] = field(default_factory=set)
    attempts: set[tuple[int, Event]] = field(default_factory=set)
    open: list[Event] = field(default_factory=list)
    sinks: str = ""

    def allows(self, event: Event) -> bool:
        """Take the next event; say whether it may come."""
        if event.what == STARTS:
            self.runs += 1
            self._forget()
            return True
        if event.what == RESTORED:
            return self._restored(event)
        if event.what in {ENDS, FAILS}:
            return self._ends(event)
        if event.micro_batch != self.committed or not self.runs:
            return False
        return self._begins(event) if event.what == BEGINS else self._writes(event)

    def _restored(self, event: Event) -> bool:
        """Go on from a backup."""
        is_known = event.micro_batch <= self.committed
        self.committed, self.runs = event.micro_batch, self.runs + 1
        self._forget()
        return is_known

    def _begins(self, event: Event) -> bool:
        """Whether an attempt may begin now."""
        place = event.round, event.task
        is_late = self.sinks == WRITES or any(work > event.round for work, _ in self.tasks)
        early = is_late and place not in self.ended
        waits = any(work < event.round and going for (work, _), going in self.tasks.items())
        again = (self.runs, event) in self.attempts
        self.attempts.add((self.runs, event))
        self.tasks.setdefault(place, set()).add(event.attempt)
        self.open.append(event)
        return not (early or waits or again or self.sinks == WRITTEN)

    def _ends(self, event: Event) -> bool:
        """Whether an attempt may end or fail now."""
        began = event._replace(what=BEGINS)
        if began not in self.open:
            return False
        self.open.remove(began)
        place = event.round, event.task
        counts = (self.runs, began) in self.attempts and event.micro_batch == self.committed
        if event.what == ENDS and counts and event.attempt in self.tasks[place]:
            self.tasks[place].clear()
            self.ended.add(place)
        return True

    def _writes(self, event: Event) -> bool:
        """Whether the sinks or the commit log may be written now."""
        before = {WRITES: "", WRITTEN: WRITES, COMMITTED: WRITTEN}
        if event.what not in before or self.sinks != before[event.what] or any(self.tasks.values()):
            return False
        self.sinks = event.what
        if event.what == COMMITTED:
            self.committed += 1
            self._forget()
        return True

    def _forget(self) -> None:
        """Begin a micro-batch, or begin it again."""
        self.sinks, self.tasks, self.ended = "", {}, set()


def first_violation(events: Iterable[Event]) -> str | None:
    """Return the first event that may not come where it does, with its place; None if all may."""
    rules = Rules()
    for number, event in enumerate(events):
        if not rules.allows(event):
            return f"event {number}: {event}"
    return None
