"""Change streams as text, one line per input record.

`L k a@3 → k=(a,null)@3` reads: on topic L, value a of key k at time 3 gave the row k = (a,null) at time 3.
`~` is a tombstone or a null key, `-` is no output, `a/b` is a composite key, whose null parts are `~`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reference import OneToMany, StreamGlobalTableJoin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from tests.reference import Aggregate, GroupBy, Output, Reference

    Answer: TypeAlias = Callable[[str, str | None, str | None, int], Iterable[Output]]
    """(topic, key, value, ts) -> outputs."""

PORTS = {
    "L": 0,
    "R": 1,
    "T": 0,
    "one": OneToMany.ONE,
    "many": OneToMany.MANY,
    "S": StreamGlobalTableJoin.STREAM,
    "G": StreamGlobalTableJoin.TABLE,
}
both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])


def check(answer: Answer, trace: str) -> None:
    """Assert that `answer` gives each line's outputs."""
    lines = [" ".join(line.split()) for line in trace.strip().splitlines()]
    seen = []
    for line in lines:
        record = line.partition(" → ")[0]
        topic, key, change = record.split(" ")
        value, _, ts = change.rpartition("@")
        outputs = answer(topic, None if key == "~" else key, None if value == "~" else value, int(ts))
        seen.append(f"{record} → {' '.join(map(show, outputs)) or '-'}")
    assert seen == lines


def show(output: Output) -> str:
    """Write an output as text."""
    parts = output.key if isinstance(output.key, tuple) else (output.key,)
    key = "/".join("~" if part is None else str(part) for part in parts)
    return f"{key}={'~' if output.value is None else output.value}@{output.ts}"


def single(operator: Reference) -> Answer:
    """Answer records that each reach one port."""
    return lambda topic, key, value, ts: operator.change(PORTS[topic], key, value, ts)


def self_joined(operator: Reference) -> Callable[[str, str | None, str | None, int], list[Output]]:
    """Answer records of one table that is read at both ports."""
    return lambda _, key, value, ts: operator.step([(0, key, value, ts), (1, key, value, ts)])


def aggregated(groups: GroupBy, aggregate: Aggregate) -> Answer:
    """Answer records of a table that is grouped and aggregated."""
    return lambda _, key, value, ts: aggregate.step(groups.step([(0, key, value, ts)]))
