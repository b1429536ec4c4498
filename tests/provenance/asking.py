"""Asks why a plan that ran without Spark has a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tablestream.provenance.finding import Asked
from tablestream.provenance.registry import FOLLOW, described
from tablestream.provenance.steps import decode, encode
from tablestream.provenance.walk import Row, Walk
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tests.plans.engine import _types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestream.planner.catalogue import StoredTable
    from tablestream.provenance.finding import Finding, Key
    from tablestream.topology.nodes import Node
    from tests.plans.engine import Engine


class InEngine:
    """Reads the state of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.reads = engine, 0

    def rows(
        self, table: StoredTable, keys: Sequence[Key], first: int = 0, limit: int | None = None
    ) -> list[Row]:
        self.reads += 1
        wanted = set(keys)
        width = len(next(iter(wanted)))
        return [row for row in self._all(table) if row.key[first : first + width] in wanted][:limit]

    def _all(self, table: StoredTable) -> Iterator[Row]:
        shards = [shard for number, shard in self.engine.stores if number == table.round]
        for shard in shards[: 1 if table.copied else None]:
            store = self.engine.stores[table.round, shard]
            state = ShardState(store, NoCache(), table.traces, table.fingerprint)
            for frame in table.frames(state, _types):
                for row in frame.to_dicts():
                    key = tuple(row[f"_k{number}"] for number in range(len(table.key)))
                    names = [one.name for one in table.value]
                    value = dict(zip(names, row["v"].values(), strict=False)) if names else {}
                    yield Row(key, value, row["_ts"], row.get("_to") is not None)


def walk(engine: Engine, limit: int = 1000) -> Walk:
    """A walk of an engine's plan, as a checkpoint has it."""
    outputs = {engine.plan.names[one.node]: one.node for one in engine.outputs}
    lineage = decode(encode(described(engine.plan, outputs, lambda _: None)))
    assert lineage is not None
    return Walk(lineage, InEngine(engine), FOLLOW, limit)


def why(engine: Engine, node: Node, *keys: Any) -> list[Finding]:
    """Ask about keys; a text is a key of one part."""
    asked = [Asked(key if isinstance(key, tuple) else (key,)) for key in keys]
    return walk(engine).find(engine.plan.names[node], asked)
