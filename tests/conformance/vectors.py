"""Read the recorded outputs of Kafka Streams; `vectors/README.md` says what they are."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.reference import Output

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent / "vectors"


@dataclass(frozen=True)
class Event:
    """One input record and the outputs that it caused, in order."""

    topic: str
    key: str | None
    value: str | None
    ts: int
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Sequence:
    """One topology with its parameters, its input and output, and its final count of dropped records."""

    op: str
    params: dict[str, Any]
    seed: int
    events: tuple[Event, ...]
    dropped: int

    @property
    def versioned(self) -> bool:
        """Whether an input table has a history."""
        return any(name.endswith("history_ms") and ms is not None for name, ms in self.params.items())

    def __str__(self) -> str:
        """Name the sequence, for test ids."""
        return _name(self.op, self.params, self.seed)


@dataclass(frozen=True)
class StoreCall:
    """One call of a versioned store and what it returned."""

    name: str
    arguments: tuple[Any, ...]
    result: Any


@dataclass(frozen=True)
class StoreSequence:
    """The calls of one versioned store."""

    op: str
    params: dict[str, Any]
    seed: int
    calls: tuple[StoreCall, ...]

    def __str__(self) -> str:
        """Name the sequence, for test ids."""
        return _name(self.op, self.params, self.seed)


@cache
def sequences(family: str) -> tuple[Sequence, ...]:
    """Read all sequences of a family, such as `pk_join`."""
    return tuple(
        Sequence(op, params, seed, tuple(_event(*event) for event in events), dropped)
        for op, params, seed, dropped, events in _lines(family)
    )


@cache
def store_sequences(family: str) -> tuple[StoreSequence, ...]:
    """Read all sequences of `versioned_store` or `versioned_store_dense`."""
    return tuple(
        StoreSequence(
            op, params, seed, tuple(StoreCall(name, tuple(rest), result) for name, *rest, result in calls)
        )
        for op, params, seed, calls in _lines(family)
    )


def foreign_key(value: str, key: object = None) -> str | None:
    """Extract the foreign key as the recorded topologies do."""
    del key
    _, bar, right_key = value.partition("|")
    return right_key if bar else None


def group(value: str, key: object = None) -> tuple[str | None, str | None]:
    """Select the group and what is aggregated as the recorded topologies do."""
    del key
    name, _, item = value.partition(":")
    return (None if name == "_" else name, item or None)


def added(aggregate: str, item: str) -> str:
    """Add to an aggregate as the recorded topologies do."""
    return f"{aggregate}+{item}"


def subtracted(aggregate: str, item: str) -> str:
    """Subtract from an aggregate as the recorded topologies do."""
    return f"{aggregate}-{item}"


def joined(left: str | None, right: str | None) -> str:
    """Join two values as the recorded topologies do."""
    return f"({'null' if left is None else left},{'null' if right is None else right})"


def replay(sequence: Sequence, answer: Callable[[Event], list[Output]]) -> None:
    """Assert that `answer` gives the recorded outputs, record for record."""
    for number, event in enumerate(sequence.events):
        got = tuple(answer(event))
        assert got == event.outputs, f"{sequence}, record {number}: {event}; got {got}"


def _lines(family: str) -> list[list[Any]]:
    with lzma.open(FOLDER / f"{family}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _event(topic: str, key: str | None, value: str | None, ts: int, *outputs: list[Any]) -> Event:
    return Event(topic, key, value, ts, tuple(Output(*output) for output in outputs))


def _name(op: str, params: dict[str, Any], seed: int) -> str:
    return "-".join([op, *(f"{name}={value}" for name, value in params.items()), str(seed)])
