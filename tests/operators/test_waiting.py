"""The release rule by time is a sorted list, however rows are cut; and what goes on waiting is not written again."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import polars as pl
import pytest

from tablestream.operators.buffer.time_index import by_time
from tablestream.operators.buffer.waiting import (
    ARRIVAL,
    ARRIVALS,
    ARRIVED,
    BY_ARRIVAL,
    WAITING,
    ReleaseRule,
    Waiting,
    numbered,
)
from tablestream.operators.operator import Context, WallClock
from tablestream.state.cache import NoCache
from tablestream.state.changes import SEQ, STEP
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

#: A row: its time and its key.
Row = tuple[int, str]
COLUMNS = {"k": pl.String(), ARRIVAL: pl.Int64(), ARRIVED: pl.Int64()}
SPECS = (
    by_time(WAITING, "_ts", COLUMNS, [ARRIVAL], ARRIVAL),
    by_time(BY_ARRIVAL, ARRIVED, {"_ts": pl.Int64(), ARRIVAL: pl.Int64()}, [ARRIVAL], ARRIVAL),
)


@dataclass
class Buffer:
    """Rows that wait in a shard, which is opened in each micro-batch."""

    rule: ReleaseRule
    store: MemoryStore = field(default_factory=MemoryStore)
    context: Context = field(default_factory=lambda: Context(lambda _: pytest.fail("no state"), Counter()))

    def run(self, rows: list[Row], without: str = "", tick_us: int | None = None) -> list[Row]:
        """Let rows come one by one; return those that leave. Rows with the key `without` are taken out."""
        state, context = ShardState(self.store, NoCache(), numbered_traces(SPECS), ""), self.context
        context.trace = state.trace
        if self.rule.wall_clock_us is not None:
            context.clock = WallClock(tick_us or 0, None if tick_us is None else len(rows) + 1)
        arrived = pl.DataFrame(rows, {"_ts": pl.Int64(), "k": pl.String()}, orient="row")
        arrived = arrived.with_row_index(SEQ, 1).with_columns(
            pl.col(SEQ).cast(pl.Int64), pl.lit(0, pl.Int64).alias(STEP)
        )
        new = numbered(
            arrived.with_columns(pl.lit(value=True).alias("_live")), list(SPECS[0].schema), context
        )
        due = pl.concat([self.rule.due(context, new["_ts"]), *self._overdue(context)]).unique(ARRIVAL)
        waiting = Waiting(self.rule, context, due.sort(ARRIVAL), new, "_ts", ["k"])
        for row, key in enumerate(waiting.rows["k"]):
            waiting.waits[row] &= key != without
        left = [one for row in range(waiting.stored, waiting.rows.height) for one in waiting.take(row)]
        left += waiting.overdue()
        waiting.remember()
        state.commit()
        return [waiting.rows.select("_ts", "k").row(row) for row in left]

    def _overdue(self, context: Context) -> list[pl.DataFrame]:
        found = self.rule.overdue(context)
        return [
            context.trace(WAITING).lookup(one.select("_ts")).join(one, on=ARRIVAL, how="semi")
            for one in found
        ]

    @property
    def written(self) -> int:
        """The rows of the runs that the state has."""
        return sum(
            run.rows
            for run in ShardState(self.store, NoCache(), numbered_traces(SPECS), "").trace(WAITING).runs
        )


@pytest.mark.parametrize("seed", range(10))
def test_rows_leave_in_the_order_of_time_key_and_arrival_however_they_are_cut(seed: int) -> None:
    rng, wait = random.Random(seed), 10
    log = [(number // 2 + rng.randint(-14, 3), rng.choice("abc")) for number in range(200)]
    buffer, got = Buffer(ReleaseRule(wait, late="late")), list[Row]()
    for end in sorted({*rng.sample(range(200), 12), 200}):
        got += buffer.run(log[buffer.context.marks.get(ARRIVALS, 0) : end])
    held, want, now, late = list[Row](), list[Row](), -100, 0
    for row in log:
        if row[0] < now - wait:
            late += 1
            want.append(row)
            continue
        now = max(now, row[0])
        held = sorted([*held, row])
        want += [one for one in held if one[0] <= now - wait]
        held = [one for one in held if one[0] > now - wait]
    assert got == want
    assert late
    assert buffer.context.dropped == Counter(late=late)


def test_at_the_bound_a_row_is_due_and_not_late() -> None:
    buffer = Buffer(ReleaseRule(10, late="late"))
    assert buffer.run([(5, "a"), (14, "b")]) == []
    assert buffer.run([(15, "c")]) == [(5, "a")]
    assert buffer.run([(5, "d")]) == [(5, "d")]
    assert not buffer.context.dropped
    assert buffer.run([(4, "e")]) == [(4, "e")]
    assert buffer.context.dropped == Counter(late=1)


def test_stream_time_is_the_operator_s_or_that_of_a_mark() -> None:
    own, marked = Buffer(ReleaseRule(10)), Buffer(ReleaseRule(10, mark="newest"))
    for buffer in (own, marked):
        assert buffer.run([(7, "a"), (3, "b")]) == []
        assert buffer.run([(-4, "c"), (5, "d")]) == [(-4, "c")]
    assert own.context.observed == marked.context.marks["newest"] == 7
    assert marked.context.observed is None


def test_a_row_that_is_taken_out_leaves_unseen() -> None:
    buffer = Buffer(ReleaseRule(10))
    buffer.run([(1, "a"), (2, "b"), (3, "a")])
    assert buffer.run([(13, "c")], without="a") == [(2, "b")]
    assert buffer.run([(30, "d")]) == [(13, "c")]


def test_what_goes_on_waiting_is_not_written_again() -> None:
    buffer = Buffer(ReleaseRule(1_000))
    buffer.run([(time, "a") for time in range(100)])
    assert buffer.written == 100
    buffer.run([(50, "b")])
    assert buffer.written == 101


def test_by_the_wall_clock_rows_leave_in_the_order_of_their_times() -> None:
    buffer = Buffer(ReleaseRule(1_000, wall_clock_us=5))
    assert buffer.run([(9, "a"), (7, "b")], tick_us=3) == []
    assert buffer.context.clock is not None
    assert buffer.context.clock.wake_us == 8
    assert buffer.run([(1, "c")], tick_us=7) == []
    assert buffer.run([], tick_us=8) == [(7, "b"), (9, "a")]
    assert buffer.context.clock.wake_us == 12
    assert buffer.run([], tick_us=12) == [(1, "c")]
    assert buffer.context.clock.wake_us is None
