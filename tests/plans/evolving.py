"""Let a plan go on from the state of another one, and hold it to itself as it runs from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tablestream.planner.evolution import not_rebuilt
from tablestream.topology.graph import ancestors
from tests.plans.comparing import by_step_and_key, sources_of
from tests.plans.engine import Engine, Hasher, Output, Step, stable_hash
from tests.plans.tables import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Node, Source


_Told = list[list[tuple[int, Any, Any]]]


def evolves(nodes: Sequence[Node]) -> bool:
    """Whether rows say what a plan remembers."""
    return not any(not_rebuilt(one) or one.is_stream for one in ancestors(*nodes))


def assert_evolves(
    before: Sequence[Node],
    after: Sequence[Node],
    first: Sequence[Sequence[Record]],
    rest: Sequence[Sequence[Record]],
    *,
    shards: tuple[int, int] = (2, 3),
    hasher: Hasher = stable_hash,
) -> None:
    """Assert that a plan which goes on from the state of another one says what it says if it ran from the start.

    Parameters
    ----------
    before, after
        The two plans. The first one reads the tables of the second.
    first, rest
        What comes before and afterwards, as the first plan's records.
    shards
        Of both plans.
    """
    outputs, sources = [Output(node) for node in after], sources_of(after)
    old = Engine([Output(node) for node in before], shards=shards[0], hasher=hasher, evolvable=True)
    old, _ = _run(old, first)
    always, _ = _run(Engine(outputs, hasher=hasher), [of_plan(piece, sources) for piece in first])
    new = Engine(outputs, shards=shards[1], hasher=hasher, position=always.position)
    new.steps([], bootstrap=kept_rows(old, sources))
    later = [of_plan(piece, sources) for piece in rest]
    assert _run(new, later)[1] == _run(always, later)[1]


def of_plan(records: Sequence[Record], sources: Sequence[Source]) -> list[Record]:
    """The records as those of another plan's sources; what it does not read stays as it is."""
    named = {one.name: one for one in sources}
    return [one._replace(source=named.get(one.source.name, one.source)) for one in records]


def kept_rows(engine: Engine, sources: Sequence[Source]) -> list[Record]:
    """What the state has of sources, as rows that the next plan starts with."""
    assert {one.name for one in engine.plan.whole} >= {one.name for one in sources}
    if not any(store.tables for store in engine.stores.values()):
        return []  # no record has come yet
    return [Record(one, row.key, row.value, row.ts) for one in sources for row in engine.read(one.name)]


def _run(engine: Engine, pieces: Sequence[Sequence[Record]]) -> tuple[Engine, _Told]:
    """Restart after each piece: the engine at the end, and the changes of each output, by step and key.

    A rebuilt row has the time of the rows that are there, so times are left out.
    """
    steps: list[list[Step]] = [[] for _ in engine.outputs]
    for piece in pieces:
        for number, new in enumerate(engine.steps(piece)):
            steps[number] += new
        engine = engine.restarted()
    told = [[(one.number, one.change.key, one.change.value) for one in by_step_and_key(of)] for of in steps]
    return engine, told
