"""Hold the engine to its twin: the same records, whole, cut and restarted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tablestream.runtime.slices import SLICE_ROWS
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Node, OneToMany, Source
from tablestream.topology.streams import StreamJoin
from tests.plans.engine import Engine, Hasher, Output, Step, stable_hash
from tests.plans.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.plans.tables import Record


def sources_of(nodes: Sequence[Node]) -> list[Source]:
    """Return the sources of a plan in the order of their declaration."""
    return [node for node in ancestors(*nodes) if isinstance(node, Source)]


def assert_like_twin(
    nodes: Sequence[Node],
    pieces: Sequence[Sequence[Record]],
    *,
    compat: bool = False,
    shards: int = 2,
    slice_rows: int = SLICE_ROWS,
    hasher: Hasher = stable_hash,
    ordered: bool = False,
    restarts: bool = False,
    bootstrap: Sequence[Record] = (),
) -> None:
    """Assert that the engine, micro-batch by micro-batch, gives the twin's changes and drops as many records.

    Changes of one step to different keys may come in any order, unless `ordered` or in compat; with unmatched ones of
    a one-to-many join they may in compat, too. The rows of a bootstrap come with the first micro-batch.
    """
    apart = {node for node in ancestors(*nodes) if isinstance(node, StreamJoin) and node.grace is not None}
    unmatched_ones = any(isinstance(node, OneToMany) and node.keeps_unmatched for node in ancestors(*nodes))
    outputs = [Output(node) for node in nodes]
    engine = Engine(outputs, compat, shards, slice_rows, hasher)
    twin = Model(outputs, compat=compat, shard=lambda key: hasher(key) % (1 << 64) % shards)
    for number, piece in enumerate(pieces):
        rows = [] if number else bootstrap
        got = engine.steps(piece, bootstrap=rows)
        started = twin.start(rows) if rows else [[] for _ in nodes]
        wanted = [[*first, *later] for first, later in zip(started, twin.steps(piece), strict=True)]
        for node, mine, his in zip(nodes, got, wanted, strict=True):
            if not (compat or node.is_stream or apart.intersection(ancestors(node))):
                assert_once_per_key_and_step(mine)
            if (ordered or compat) and not unmatched_ones:
                assert mine == his, node.name
            else:
                assert by_step_and_key(mine) == by_step_and_key(his), node.name
        late = 0 if compat else twin.late  # Kafka Streams counts none of these
        assert (engine.lost, engine.late) == (twin.dropped, late)
        if restarts:
            engine = engine.restarted()


def by_step_and_key(steps: Sequence[Step]) -> list[Step]:
    """Sort changes so that only those of one step to different keys change places."""
    return sorted(steps, key=lambda step: (step.number, repr(step.change.key)))


def assert_once_per_key_and_step(steps: Sequence[Step]) -> None:
    """Assert that steps follow each other and that each key leaves once in each."""
    numbers = [step.number for step in steps]
    assert numbers == sorted(numbers)
    times = Counter((step.number, step.change.key) for step in steps)
    assert max(times.values(), default=1) == 1, times.most_common(3)
