"""Measures of an operator's work in a micro-batch, beside the records that it drops.

Every shard that has work in a round reports measures for all operators of the round. The state of a shard without work
is not reported. So a shard also reports by how much its state grew, and the number of reporting shards is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tablestream.runtime.drops import ONLY_COUNTED, DropRules, Drops
from tablestream.runtime.rounds import Round
from tablestream.state.shard import ShardState

#: The names of these figures in a query's progress: drops by reason, and measures by operator.
OBSERVED, MEASURED = "tablestream", "tablestream_operators"
#: The name of examples of the drops in it, if the query itself does not read them.
DROPS = "tablestream_drops"

ROWS_IN, ROWS_OUT = "rows-in", "rows-out"
STATE_ROWS, STATE_ROWS_ADDED = "state-rows", "state-rows-added"
STATE_BYTES, STATE_BYTES_ADDED = "state-bytes", "state-bytes-added"
CACHE_HITS, FETCHES, MERGES = "cache-hits", "fetches", "merges"
SHARDS = "shards"
"""How many shards had work and are included in the other figures."""
FIGURES = "measures"
"""The field of `MEASURED` with the sums over the shards, by operator and measure. `SHARDS` has the number of shards."""

MEASURES = (
    ROWS_IN, ROWS_OUT, STATE_ROWS, STATE_ROWS_ADDED, STATE_BYTES, STATE_BYTES_ADDED, CACHE_HITS, FETCHES, MERGES,
    SHARDS,
)  # fmt: skip
#: The name under which the alignment buffer is measured; no operator has this name.
ALIGNMENT = "(align)"


@dataclass
class Counts:
    """What is counted while a shard processes its messages."""

    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Records that operators drop, by operator and reason."""
    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    """Messages that an operator received, and rows that it emitted, by operator."""
    rules: DropRules = ONLY_COUNTED
    """What the query does about drops."""
    drops: Drops = field(init=False)
    """Counts into `dropped`, with an example of each."""

    def __post_init__(self) -> None:
        """Count drops into the given counter."""
        self.drops = Drops(self.rules, self.dropped)

    def measures(self, work: Round, state: ShardState) -> dict[tuple[str, str], int]:
        """Return the measures of the round, in the order of `measured` and `MEASURES`.

        Call it before the state is committed.
        """
        found: dict[tuple[str, str], int] = {}
        for operator, traces in _traces(work):
            sizes = [state.sizes(name) for name in traces]
            uses = [state.use(name) for name in traces]
            values = {
                ROWS_IN: self.rows_in[operator],
                ROWS_OUT: self.rows_out[operator],
                STATE_ROWS: sum(now.rows for _, now in sizes),
                STATE_ROWS_ADDED: sum(now.rows - before.rows for before, now in sizes),
                STATE_BYTES: sum(now.size_bytes for _, now in sizes),
                STATE_BYTES_ADDED: sum(now.size_bytes - before.size_bytes for before, now in sizes),
                CACHE_HITS: sum(use.cache_hits for use in uses),
                FETCHES: sum(use.fetches for use in uses),
                MERGES: sum(use.merges for use in uses),
                SHARDS: 1,
            }
            found |= {(operator, measure): value for measure, value in values.items()}
        return found


def measured(rounds: Sequence[Round]) -> list[str]:
    """Return the names of the operators that are measured."""
    return [operator for work in rounds for operator, _ in _traces(work)]


def _traces(work: Round) -> Iterator[tuple[str, list[str]]]:
    """The operators of a round, each with the names of its traces."""
    if work.alignment is not None:
        yield ALIGNMENT, [spec.name for spec in work.alignment.traces]
    for placed in work.operators:
        yield placed.name, [spec.name for spec in placed.trace_specs]
