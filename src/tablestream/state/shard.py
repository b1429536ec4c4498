"""A shard's state: the traces of a round, read at its start and committed at its end."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tablestream.errors import DamagedStateError, PlanChangedError
from tablestream.state import manifest as manifests
from tablestream.state.manifest import Manifest
from tablestream.state.run import CHUNK_SIZE_BYTES, RESTORE_HINT, RunStorage, RunUse
from tablestream.state.sealed import seal, unseal
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.state.cache import ChunkCache
    from tablestream.state.run import RunInfo
    from tablestream.state.store import StateStore


@dataclass(frozen=True)
class TraceSize:
    """How much a trace holds: rows, including tombstones and replaced rows, and their compressed bytes."""

    rows: int
    size_bytes: int

    @classmethod
    def of(cls, runs: Sequence[RunInfo]) -> TraceSize:
        """Sum up runs."""
        return cls(sum(run.rows for run in runs), sum(run.size_bytes for run in runs))


class ShardState:
    """The state of one shard of one round, as of one micro-batch.

    Traces change in memory and write their new runs. `commit` makes the changes visible by writing the manifest.
    Nothing is read before it is needed.

    Parameters
    ----------
    store
        The state of record.
    cache
        Where decoded chunks are kept.
    specs
        The traces of the round, with distinct names and numbers.
    fingerprint
        Of the plan.
    plan_text
        The plan as text, to report what changed if the fingerprint differs.
    tables
        The tables that the plan's state holds, as text, for readers outside the query.
    older_fingerprint
        The one that older versions gave the same plan: it is replaced with the next commit.
    chunk_size_bytes
        The largest size of a chunk; smaller in tests.

    Examples
    --------
    >>> import polars as pl
    >>> from tablestream.state.cache import NoCache
    >>> from tablestream.state.store import MemoryStore
    >>> schema = pl.Schema({"_kh": pl.Int64, "_k0": pl.String, "_live": pl.Boolean})
    >>> spec = TraceSpec("left", schema, key=("_k0",))
    >>> store = MemoryStore()
    >>> state = ShardState(store, NoCache(), [spec], "f00d")
    >>> state.trace("left").insert(pl.DataFrame({"_kh": [7], "_k0": ["a"], "_live": [True]}))
    >>> state.commit()
    >>> ShardState(store, NoCache(), [spec], "f00d").trace("left").scan().rows()
    [(7, 'a', True)]
    """

    def __init__(
        self,
        store: StateStore,
        cache: ChunkCache,
        specs: Sequence[TraceSpec],
        fingerprint: str,
        plan_text: str = "",
        *,
        tables: str = "",
        older_fingerprint: str | None = None,
        chunk_size_bytes: int = CHUNK_SIZE_BYTES,
    ) -> None:
        self._store = store
        self._specs = {spec.name: spec for spec in specs}
        if not len(self._specs) == len({spec.number for spec in specs}) == len(specs):
            raise ValueError("two traces of a shard share a name or a number")
        self._storages = {spec.name: RunStorage(spec, store, cache, chunk_size_bytes) for spec in specs}
        self._fingerprint, self._older_fingerprint = fingerprint, older_fingerprint
        self._plan_text, self._tables = plan_text, tables
        self._traces: dict[str, Trace] = {}
        self._is_new = False  # nothing in the store yet
        self._committed: Manifest | None = None  # None until it is read
        self._current = Manifest(fingerprint)

    @property
    def is_new(self) -> bool:
        """Whether the store was looked at, and has nothing of the shard yet."""
        return self._is_new

    def trace(self, name: str) -> Trace:
        """Return a trace by name; KeyError if the round has no such trace.

        Raises `PlanChangedError`: if another plan made the state. Raises `DamagedStateError`: if the manifest is
        missing, or is not what was written.
        """
        if name not in self._traces:
            runs = self._manifest().runs(name)
            self._traces[name] = Trace(self._storages[name], runs, self._next_number)
        return self._traces[name]

    def sizes(self, name: str) -> tuple[TraceSize, TraceSize]:
        """Return the size of a trace in the state of record: at the last commit, and now."""
        manifest = self._manifest()
        assert self._committed is not None  # noqa: S101 - it was read just now
        now = self._traces[name].runs if name in self._traces else manifest.runs(name)
        return TraceSize.of(self._committed.runs(name)), TraceSize.of(now)

    def use(self, name: str) -> RunUse:
        """Return how the runs of a trace were used."""
        return self._storages[name].use

    def clock(self, name: str) -> int | None:
        """Return a clock, or None before it is first set."""
        return self._manifest().clocks.get(name)

    def set_clock(self, name: str, value: int) -> None:
        """Set a clock."""
        self._current = self._manifest().with_clock(name, value)

    def commit(self) -> None:
        """Write the manifest and remove replaced runs; if nothing changed in the shard, write nothing."""
        if self._committed is None:
            return
        manifest = self._current
        for name, trace in self._traces.items():
            manifest = manifest.with_runs(name, trace.runs)
        if manifest != self._committed:
            if self._is_new or manifest.fingerprint != self._committed.fingerprint:
                self._store.write_plan(seal(self._plan_text))
                self._store.write_tables(seal(self._tables))
            self._store.write_manifest(manifests.encode(manifest))
            self._committed, self._current, self._is_new = manifest, manifest, False
        for trace in self._traces.values():
            trace.remove_dropped()

    def _next_number(self) -> int:
        number = self._current.next_run
        self._current = self._current.with_next_run()
        return number

    def _manifest(self) -> Manifest:
        """Read the manifest when it is first needed, and raise if it belongs to another plan.

        A plan is written together with a manifest. If the state has a plan but no manifest, the shard is not new but
        damaged.
        """
        if self._committed is None:
            data = self._store.read_manifest()
            if data is None and self._store.read_plan() is not None:
                raise manifest_missing()
            manifest = self._current if data is None else manifests.decode(data)
            if manifest.fingerprint not in {self._fingerprint, self._older_fingerprint}:
                old = self._store.read_plan()
                raise plan_changed("" if old is None else unseal(old, "plan"), self._plan_text)
            self._committed, self._is_new = manifest, data is None
            self._current = replace(manifest, fingerprint=self._fingerprint)
        return self._current


def manifest_missing() -> DamagedStateError:
    """The error for a shard that has state but no manifest."""
    return DamagedStateError(
        "The manifest of a shard is missing from the state of record.", hint=RESTORE_HINT
    )


def plan_changed(old: str, new: str) -> PlanChangedError:
    """The error for a changed plan: what differs between two plans, as texts with one line per fact."""
    changes = _difference(old, new)
    return PlanChangedError(
        "The plan is not the one that made the state in the checkpoint."
        + (f"\n{changes}\n" if changes else ""),
        hint="Start the old plan on this checkpoint, or the new plan with a new checkpoint and new targets.",
    )


def _difference(old: str, new: str) -> str:
    r"""What differs between two plans. A line that stands in several places is shown at the first.

    A fact of a table stands in each round that reads it.

    Examples
    --------
    >>> print(_difference("round 1\n  a\nround 2\n  a\n  c", "round 1\n  b\nround 2\n  b"))
    --- plan in the checkpoint
    +++ plan started now
    @@ -2 +2 @@
    -  a
    +  b
    @@ -4,2 +4 @@
    -  c
    """
    names = "plan in the checkpoint", "plan started now"
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=0))
    shown, seen = lines[:2], set[str]()
    for hunk in "\n".join(lines).split("\n@@ ")[1:]:
        place, *changed = hunk.split("\n")
        first = [line for line in changed if line not in seen]
        shown += [f"@@ {place}", *first] if first else []
        seen.update(first)
    return "\n".join(shown)
