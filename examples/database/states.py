"""States of the join, as the database had them, and the check that the changes of a query go through these.

A state has a row for each order. A row is compared as texts, with the hash of the long one, so that the database's
values and Spark's can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5

#: The columns of the join, in the order of a `Row`; the last one is long.
COLUMNS = ("order_id", "customer_id", "sku", "quantity", "name", "email", "price", "description")
Row = tuple[str | None, ...]
State = dict[str, Row]
#: What a change does to a row: its new values, or None if it goes.
Difference = dict[str, Row | None]
_SHOWN = 5


def row_of(values: Iterable[object]) -> Row:
    """A row as texts; the last value as its hash."""
    *short, long = (None if value is None else str(value) for value in values)
    return (*short, None if long is None else md5(long.encode(), usedforsecurity=False).hexdigest())


def difference(before: Mapping[str, Row], after: Mapping[str, Row]) -> Difference:
    """The rows that are not in both states as they are."""
    gone: Difference = {key: None for key in before if key not in after}
    return gone | {key: row for key, row in after.items() if before.get(key) != row}


@dataclass
class History:
    """The states that a database had: a first one, and what each commit made of it, if anything."""

    first: State
    last: State = field(init=False)
    commits: int = 0
    steps: list[tuple[int, Difference]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last = dict(self.first)

    def add(self, state: State) -> None:
        """Note the state after the next commit."""
        self.commits += 1
        made = difference(self.last, state)
        if made:
            self.steps.append((self.commits, made))
        self.last = state


@dataclass(frozen=True)
class Change:
    """One change of the query's output; no row: a delete."""

    micro_batch: int
    key: str
    row: Row | None


@dataclass(frozen=True)
class Replay:
    """What the replay of a query's changes found.

    Attributes
    ----------
    changes, micro_batches
        How many were replayed after the first state was reached.
    states
        How many states of the database they went through.
    problems
        Lines that say what is wrong; none if all is well.
    """

    changes: int
    micro_batches: int
    states: int
    problems: tuple[str, ...]


def replay(changes: Sequence[Change], history: History) -> Replay:
    """Apply changes one after the other, and compare them with what the commits did.

    The changes up to the first state are the snapshot's; they may show parts of it. From there on the changes must be
    those of the first commit, in any order, then those of the second, and so on to the last. A change that leaves its
    row as it is counts as none. Each micro-batch must end with a commit.
    """
    state: State = {}
    at = 0
    while state != history.first:
        if at == len(changes):
            return Replay(0, 0, 0, ("The state with which the load began was never reached.",))
        _apply(state, changes[at])
        at += 1
    follower = _Follower(state, history.steps)
    rest = changes[at:]
    for number, change in enumerate(rest):
        ends = number + 1 == len(rest) or rest[number + 1].micro_batch != change.micro_batch
        problem = follower.take(change) or (follower.unfinished(change.micro_batch) if ends else None)
        if problem:
            return Replay(number, len({one.micro_batch for one in rest[:number]}), follower.reached, problem)
    lost = len(history.steps) - follower.reached
    problems = (f"The changes of the last {lost:,} commits are missing.",) if lost else ()
    return Replay(len(rest), len({one.micro_batch for one in rest}), follower.reached, problems)


def compare(found: State, expected: State, of_found: str, of_expected: str) -> tuple[str, ...]:
    """Say how two states differ; nothing if they do not."""
    wrong = sorted(difference(found, expected))
    if not wrong:
        return ()
    lines = [f"{len(wrong):,} rows differ between {of_found} and {of_expected}:"]
    for key in wrong[:_SHOWN]:
        lines += [f"  {of_found}: {found.get(key)}", f"  {of_expected}: {expected.get(key)}"]
    return tuple(lines)


class _Follower:
    """Goes from commit to commit with the changes that it is given."""

    def __init__(self, state: State, steps: Sequence[tuple[int, Difference]]) -> None:
        self.reached = 0
        self._state, self._steps = state, steps
        self._open: Difference = {}

    def take(self, change: Change) -> tuple[str, ...] | None:
        """Apply a change; say what is wrong with it."""
        if self._state.get(change.key) == change.row:
            return None
        if self.reached == len(self._steps):
            return (f"Micro-batch {change.micro_batch} has a change that no commit made:", f"  {change}")
        if not self._open:
            self._open = dict(self._steps[self.reached][1])
        if change.key not in self._open or self._open[change.key] != change.row:
            return (*self._differs(change), f"  {change}")
        _apply(self._state, change)
        del self._open[change.key]
        self.reached += not self._open
        return None

    def unfinished(self, micro_batch: int) -> tuple[str, ...] | None:
        """Say which commit a micro-batch shows in part."""
        if not self._open:
            return None
        commit = self._steps[self.reached][0]
        return (
            f"Micro-batch {micro_batch} ends in the middle of commit {commit}.",
            f"  missing: {self._open}",
        )

    def _differs(self, change: Change) -> tuple[str, ...]:
        commit, whole = self._steps[self.reached]
        wanted = self._open.get(change.key, "no change of this row")
        return (
            (
                f"Micro-batch {change.micro_batch} has a change that commit {commit} did not make, after"
                f" {len(whole) - len(self._open)} of the commit's {len(whole)} changes."
            ),
            f"  the commit: {wanted}",
        )


def _apply(state: State, change: Change) -> None:
    if change.row is None:
        state.pop(change.key, None)
    else:
        state[change.key] = change.row
