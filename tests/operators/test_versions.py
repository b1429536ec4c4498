"""Versions that expire leave the state run by run: what is read never depends on which runs were merged."""

from __future__ import annotations

import polars as pl
import pytest

from tablestream.operators.versions import Versions
from tablestream.state import trace as traces
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

VERSIONS = Versions("_kh", pl.Schema({"k0": pl.String()}), pl.String(), history_us=10)
#: Time of the put, whether a row exists, the largest time of the shard afterwards.
Put = tuple[int, bool, int]


def as_of(puts: list[Put], time: int) -> str | None:
    """Put versions of one key, each in a micro-batch of its own, then look one up."""
    shard = ShardState(MemoryStore(), NoCache(), [VERSIONS.trace], "")
    trace = shard.trace(VERSIONS.name)
    key = pl.DataFrame({"_kh": [1], "k0": ["k"]})
    for at, exists, observed in puts:
        row = key.with_columns(
            pl.lit(at).alias("_ts"), pl.lit(f"at {at}" if exists else None, pl.String).alias("v")
        )
        opened = VERSIONS.opened(trace, row)
        opened.put(0, at, exists=exists)
        opened.remember(trace, observed)
    opened = VERSIONS.opened(trace, key.clear().with_columns(pl.lit("").alias("v")), key)
    place = opened.as_of(0, time, puts[-1][2])
    return None if place < 0 else opened.payload[place]


@pytest.mark.parametrize("merged", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("puts", "time", "wanted"),
    [
        ([(0, True, 0), (5, True, 5), (8, False, 100)], 100, None),
        ([(0, True, 0), (5, True, 5), (8, False, 100), (101, True, 101)], 95, None),
        ([(0, True, 0), (5, True, 5), (8, False, 100), (101, True, 101)], 101, "at 101"),
        ([(0, True, 0), (5, True, 5), (8, True, 100)], 100, "at 8"),
        ([(0, True, 0), (5, True, 5), (8, False, 8)], 7, "at 5"),
    ],
)
def test_a_version_is_not_valid_again_when_those_after_it_have_expired(
    monkeypatch: pytest.MonkeyPatch, merged: int, puts: list[Put], time: int, wanted: str | None
) -> None:
    monkeypatch.setattr(traces, "runs_to_merge", lambda rows: min(merged, len(rows)))
    assert as_of(puts, time) == wanted
