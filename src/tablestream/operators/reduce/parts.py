"""Parts of the messages to groups: results that grow with their group are not all in memory at once.

A list of rows that come one after the other has 1, 2, ..., n values: n messages make n * n / 2. So messages are worked
off in parts, each of which makes about `PART_BYTES`. How much a part makes is known only afterwards: the first one is
small, and each one decides how large the next one is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl

from tablestream.operators.cells import dtype
from tablestream.operators.operator import CanBeThin, Context, Emission
from tablestream.operators.reduce.groups import EXISTS, GroupEvents
from tablestream.operators.reduce.regroup import message_schema
from tablestream.state.trace_spec import TraceSpec

#: About so many bytes of results are made at once.
PART_BYTES = 32 << 20
#: The most turns of the first part, and by how much the next part may be larger than the one before.
FIRST_TURNS, GROWTH = 1024, 8


def has_any_size(kind: pl.DataType) -> bool:
    """Whether some values of a dtype can be much larger than others."""
    if isinstance(kind, pl.Struct):
        return any(has_any_size(dtype(one.dtype)) for one in kind.fields)
    return isinstance(kind, pl.String | pl.Binary | pl.List)


class Parts:
    """The parts of sorted messages; tell `made` after each of them.

    `events`: the messages. `size_bytes`: about how large the largest result is before the first message. None: results
    do not grow, so there is one part. `sorted_again`: sorts the messages of a part, and looks up what is stored of
    their groups by then.
    """

    def __init__(
        self,
        events: GroupEvents,
        size_bytes: float | None,
        sorted_again: Callable[[pl.DataFrame], GroupEvents],
    ) -> None:
        self._events, self._turns, self._sorted = events, len(events), sorted_again
        if size_bytes is not None and len(events) > 1:
            grown = events.messages["v"].estimated_size() / len(events)
            fits = min(PART_BYTES / max(size_bytes, 1.0), (PART_BYTES / max(grown, 1.0)) ** 0.5)
            self._turns = max(1, min(FIRST_TURNS, int(fits)))
        self._fixed, self._taken = size_bytes is None, 0

    def __iter__(self) -> Iterator[tuple[int, GroupEvents]]:
        """Yield the position of each part's first message, and its messages. No turn is divided."""
        starts = np.append(self._events.turn_start, len(self._events))
        turns = len(starts) - 1
        if self._turns >= turns:
            self._taken = turns
            yield 0, self._events
            return
        done = 0
        while done < turns:
            end = min(done + self._turns, turns)
            self._taken = end - done
            messages = self._events.messages[int(starts[done]) : int(starts[end])]
            yield int(starts[done]), self._sorted(messages)
            done = end

    def made(self, size_bytes: float) -> None:
        """Tell how many bytes of results the last part made."""
        if not self._fixed:
            # As if results grew from nothing, each by as much: then the last part's last one is twice its average.
            fits = self._taken * ((1 + PART_BYTES / max(size_bytes, 1.0)) ** 0.5 - 1)
            self._turns = max(1, min(GROWTH * self._turns, int(fits)))


@dataclass(frozen=True)
class OfGroups(CanBeThin):
    """Second half of a grouping: maintains something of each group.

    A *turn* is one message, or with ``atomic`` all messages of a step to one group. Each turn emits once.

    Input: the messages of `Regroup`.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    """The columns and dtypes of the table's key and of the group's."""
    value: pl.DataType
    """The dtype of the part of a row that travels to the group."""
    atomic: bool = field(default=True, kw_only=True)
    """Whether a step is one turn."""

    #: Whether a stored group exists.
    exists: ClassVar[pl.Expr] = EXISTS
    keep_empty = False

    @property
    @abstractmethod
    def needs_row_keys(self) -> bool:
        """Whether messages must have the key of their row."""

    @property
    @abstractmethod
    def _groups(self) -> TraceSpec:
        """What is remembered of each group."""

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (message_schema(self.keys if self.needs_row_keys else None, self.group_keys, self.value),)

    def _events(self, messages: pl.DataFrame, context: Context) -> GroupEvents:
        return GroupEvents.of(
            messages,
            context.trace(self._groups.name),
            list(self.group_keys),
            atomic=self.atomic,
            keep_empty=self.keep_empty,
            exists=self.exists,
        )

    def _parts(self, events: GroupEvents, size_bytes: float | None, context: Context) -> Parts:
        return Parts(events, size_bytes, lambda messages: self._events(messages, context))


@dataclass(frozen=True)
class OneResult(OfGroups):
    """Maintains one result of each group, which each turn emits."""

    keep_empty: bool = field(default=False, kw_only=True)
    """Whether the result keeps a group without rows."""

    keeps_shard = True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        events = self._events(arrived, context)
        parts = self._parts(events, self._largest(events), context)
        for _, part in parts:
            emission = self._applied(part, context)
            parts.made(emission.rows.estimated_size())
            yield emission

    @abstractmethod
    def _largest(self, events: GroupEvents) -> float | None:
        """About how large the largest result is before the messages; None: results are small, or few are emitted."""

    @abstractmethod
    def _applied(self, events: GroupEvents, context: Context) -> Emission:
        """Apply messages, return the result of each turn, and remember it."""
