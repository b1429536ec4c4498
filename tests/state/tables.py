"""Small traces for the tests of the state: rows by (key, unique), with a hash that may be made to collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tablestream.state.checks import facts_of, faults_of
from tablestream.state.manifest import decode
from tablestream.state.trace_spec import TraceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tablestream.state.checks import Fault
    from tablestream.state.manifest import Manifest
    from tablestream.state.store import MemoryStore
    from tablestream.state.trace import Trace

SCHEMA = pl.Schema(
    {
        "_kh": pl.Int64(),
        "_k0": pl.String(),
        "_uh": pl.Int64(),
        "_u0": pl.Int64(),
        "_ts": pl.Int64(),
        "_live": pl.Boolean(),
        "v": pl.Struct({"text": pl.String(), "amount": pl.Decimal(18, 2)}),
    }
)
ONE_ROW_PER_KEY = TraceSpec("left", SCHEMA, key=("_k0",))
MANY_ROWS_PER_KEY = TraceSpec("many", SCHEMA, key=("_k0",), number=1, unique=("_u0",))
MANY_ROWS_HASHED = TraceSpec("hashed", SCHEMA, key=("_k0",), number=2, unique=("_u0",), unique_hash="_uh")
SPECS = (ONE_ROW_PER_KEY, MANY_ROWS_PER_KEY, MANY_ROWS_HASHED)

# Hashes by name: one without collisions, one with some, one with nothing else.
HASHES: dict[str, Callable[[int], int]] = {
    "spread": lambda n: n * -7046029254386353131 % 2**63,
    "pairs": lambda n: n // 2,
    "constant": lambda _: 7,
}

Row = tuple[str | None, int]


def number(key: str | None) -> int:
    """Turn a key into a number, so that a hash can be made of it."""
    return 0 if key is None else int.from_bytes(key.encode(), "big") + 1


def frame(rows: Mapping[Row, int | None], hashed: str = "spread") -> pl.DataFrame:
    """Make a frame of rows (key, unique) -> version; the version None is a tombstone."""
    function = HASHES[hashed]
    records = [
        {
            "_kh": function(number(key)),
            "_k0": key,
            "_uh": function(unique),
            "_u0": unique,
            "_ts": version,
            "_live": version is not None,
            "v": None if version is None else {"text": f"a text that is not short {version}", "amount": None},
        }
        for (key, unique), version in rows.items()
    ]
    return pl.DataFrame(records, schema=SCHEMA)


def keys(names: Iterable[str | None], hashed: str = "spread") -> pl.DataFrame:
    """Make a frame of keys to look up."""
    return frame(dict.fromkeys(((name, 0) for name in names), 0), hashed).select("_kh", "_k0")


def versions(found: pl.DataFrame) -> dict[Row, Any]:
    """Read back what `frame` wrote; a row that comes twice, or is not whole, fails."""
    assert found.schema == SCHEMA
    assert found["_live"].all()
    assert found["v"].struct.field("text").to_list() == [
        f"a text that is not short {ts}" for ts in found["_ts"]
    ]
    result = dict(zip(zip(found["_k0"], found["_u0"], strict=True), found["_ts"], strict=True))
    assert len(result) == found.height
    return result


def fill(trace: Trace, count: int, first: int = 0) -> None:
    """Insert one run of `count` live rows with keys of their own."""
    trace.insert(frame({(f"k{n}", 0): n for n in range(first, first + count)}))


def faults(store: MemoryStore, manifest: Manifest | None = None) -> list[Fault]:
    """What is wrong in a shard, by its manifest or by another one."""
    facts = {
        (run, chunk): facts_of(trace, run, chunk, data) for (trace, run, chunk), data in store.chunks.items()
    }
    known = manifest or (None if store.manifest is None else decode(store.manifest))
    return [] if known is None else list(faults_of(known, facts))
