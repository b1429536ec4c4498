"""States that were written once and must be read for ever: each plan of the simulator after half of its input.

``python -m tests.state.golden_states`` writes the file of this version. Run it when the format of the state changes,
and keep the files of earlier versions: what they hold is still read, or is migrated when it is read.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tablestream import __version__
from tablestream.state.store import MemoryStore
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Step, stable_hash
from tests.simulation.plans import CASES
from tests.simulation.world import Entry, make_world, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent.parent / "golden" / "states"
MICRO_BATCHES, SHARDS = 10, 2


@dataclass(frozen=True)
class GoldenState:
    """The state of a plan after a part of its input.

    Attributes
    ----------
    plan, compat
        The plan, by its name in `CASES`, and its mode.
    micro_batches, times_us
        All of the input, and the wall clock at each micro-batch.
    stores
        The state after the first half of the micro-batches: by "round/shard" the manifest, the plan, the tables and the
        chunks, as JSON has them.
    """

    plan: str
    compat: bool
    micro_batches: list[list[Entry]]
    times_us: list[int]
    stores: dict[str, dict[str, Any]]

    @property
    def first_half(self) -> range:
        """The micro-batches that are in the stored state."""
        return range(len(self.micro_batches) // 2)

    @property
    def second_half(self) -> range:
        """The micro-batches that come after it."""
        return range(len(self.micro_batches) // 2, len(self.micro_batches))

    def engine(self) -> Engine:
        """Return an engine at the start of the input."""
        case = CASES[self.plan]
        return Engine(list(case.outputs()), self.compat, SHARDS, hasher=stable_hash, align=case.align)

    def restored(self) -> Engine:
        """Return an engine that goes on from the stored state."""
        engine = self.engine()
        for place, facts in self.stores.items():
            number, shard = map(int, place.split("/"))
            engine.stores[number, shard] = _store(facts)
        engine.position = sum(len(self.micro_batches[number]) for number in self.first_half)
        return engine

    def run(self, engine: Engine, numbers: Sequence[int]) -> list[list[list[Step]]]:
        """Run some micro-batches; the changes of each, per output."""
        sources = sources_of([output.node for output in engine.outputs])
        return [
            engine.steps(records_of(self.micro_batches[number], sources), self.times_us[number])
            for number in numbers
        ]


def read(path: Path) -> Iterator[GoldenState]:
    """Read the states of one version."""
    for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]:
        facts = json.loads(line)
        facts["micro_batches"] = [[_entry(entry) for entry in piece] for piece in facts["micro_batches"]]
        yield GoldenState(**facts)


def write(path: Path) -> int:
    """Write the states of this version; return how many there are."""
    lines = [json.dumps({"tablestream": __version__})]
    for name, case in CASES.items():
        for compat in case.modes:
            lines.append(json.dumps(asdict(_made(name, compat=compat))))  # noqa: PERF401 (a line a state)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return len(lines) - 1


def _made(name: str, *, compat: bool) -> GoldenState:
    world = make_world(len(name), plan=name, micro_batches=MICRO_BATCHES)
    state = GoldenState(name, compat, list(map(list, world.micro_batches)), list(world.times_us), {})
    engine = state.engine()
    state.run(engine, state.first_half)
    for (number, shard), store in engine.stores.items():
        state.stores[f"{number}/{shard}"] = _facts(store)
    return state


def _facts(store: MemoryStore) -> dict[str, Any]:
    chunks = [[*place, base64.b64encode(data).decode()] for place, data in sorted(store.chunks.items())]
    manifest = None if store.manifest is None else store.manifest.decode()
    return {"manifest": manifest, "plan": store.plan, "tables": store.tables, "chunks": chunks}


def _store(facts: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    store.manifest = None if facts["manifest"] is None else facts["manifest"].encode()
    store.plan, store.tables = facts["plan"], facts["tables"]
    for trace, run, chunk, data in facts["chunks"]:
        store.chunks[trace, run, chunk] = base64.b64decode(data)
    return store


def _entry(values: list[Any]) -> Entry:
    source, key, value, ts, written = values
    return Entry(source, tuple(key), value, ts, None if written is None else tuple(written))


if __name__ == "__main__":
    newest = max((int(file.name.split(".")[0]) for file in FOLDER.glob("*.jsonl.gz")), default=0)
    place = FOLDER / f"{newest + 1:03}.jsonl.gz"
    print(f"{write(place)} states are in {place}.")  # noqa: T201 - for whoever writes it
