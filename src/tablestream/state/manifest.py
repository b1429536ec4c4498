"""The manifest: the small part of a shard's state that describes the rest.

It is JSON, never pickle: a checkpoint outlives the code that wrote it, and reading it must run no code. The first line
has the version and the checksum of the second line. The second line repeats the version, so that the checksum covers
it, and has everything else, including the checksums of the chunks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tablestream.errors import DamagedStateError, StateError
from tablestream.state.run import RESTORE_HINT, ChunkInfo, RunInfo, checksum

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 2


@dataclass(frozen=True)
class Manifest:
    """What a shard holds, as of one micro-batch. It is immutable: the ``with_`` methods return a new one.

    Examples
    --------
    >>> manifest = Manifest("f00d").with_clock("orders", 7)
    >>> decode(encode(manifest)) == manifest
    True
    """

    fingerprint: str
    """Of the plan that made the state."""
    next_run: int = 0
    """The number of the next run. Numbers are never used again, so two runs of equal content have different numbers."""
    traces: Mapping[str, tuple[RunInfo, ...]] = field(default_factory=dict)
    """The live runs of every trace that has any, oldest first."""
    clocks: Mapping[str, int] = field(default_factory=dict)
    """Observed times and other counters, by name."""

    def runs(self, trace: str) -> tuple[RunInfo, ...]:
        """Return the live runs of a trace, oldest first."""
        return self.traces.get(trace, ())

    def with_runs(self, trace: str, runs: tuple[RunInfo, ...]) -> Manifest:
        """Return the manifest with other runs for a trace."""
        others = {name: old for name, old in self.traces.items() if name != trace}
        return replace(self, traces={**others, trace: runs} if runs else others)

    def with_clock(self, name: str, value: int) -> Manifest:
        """Return the manifest with a clock set."""
        return replace(self, clocks={**self.clocks, name: value})

    def with_next_run(self) -> Manifest:
        """Return the manifest after a run has taken the number ``next_run``."""
        return replace(self, next_run=self.next_run + 1)


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest; equal manifests give equal bytes."""
    document = {
        "version": FORMAT_VERSION,  # what the checksum covers: the head's own number could be damaged
        "fingerprint": manifest.fingerprint,
        "next_run": manifest.next_run,
        "traces": {name: [_run_to_list(run) for run in runs] for name, runs in manifest.traces.items()},
        "clocks": dict(manifest.clocks),
    }
    content = _json(document)
    return _json({"version": FORMAT_VERSION, "checksum": checksum(content)}) + b"\n" + content


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Manifest:
    """Decode what `encode` wrote; raise `StateError` for another version's, `DamagedStateError` for anything else."""
    first, _, content = data.partition(b"\n")
    try:
        head = json.loads(first)
        version = head["version"]
        document = json.loads(content) if head.get("checksum") == checksum(content) else None
        if document is not None and document.get("version", version) != version:
            raise ValueError("its version is not that of its content")  # noqa: TRY301 - as any other damage
        if version == FORMAT_VERSION:
            if document is None:
                raise ValueError("its checksum is wrong")  # noqa: TRY301 - the same
            return _from_document(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise DamagedStateError(
            f"The manifest in the state of record cannot be read: {problem!r}.",
            hint=RESTORE_HINT,
        ) from problem
    raise StateError(
        f"The state has format version {version!r}; this tablestream reads version {FORMAT_VERSION}.",
        hint="Run the version of tablestream that wrote the checkpoint, or start with a new checkpoint.",
    )


def _run_to_list(run: RunInfo) -> list[Any]:
    chunks = [[c.rows, c.size_bytes, c.checksum, c.min_hash, c.max_hash] for c in run.chunks]
    return [run.number, run.rows, run.dead, chunks]


def _run_from_list(values: list[Any]) -> RunInfo:
    number, rows, dead, chunks = values
    return RunInfo(int(number), int(rows), int(dead), tuple(_chunk_from_list(chunk) for chunk in chunks))


def _chunk_from_list(values: list[Any]) -> ChunkInfo:
    rows, size_bytes, name, min_hash, max_hash = values
    return ChunkInfo(int(rows), int(size_bytes), str(name), int(min_hash), int(max_hash))


def _from_document(document: Mapping[str, Any]) -> Manifest:
    return Manifest(
        fingerprint=str(document["fingerprint"]),
        next_run=int(document["next_run"]),
        traces={
            name: tuple(_run_from_list(run) for run in runs) for name, runs in document["traces"].items()
        },
        clocks={name: int(value) for name, value in document["clocks"].items()},
    )
