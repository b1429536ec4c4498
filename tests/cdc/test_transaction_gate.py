"""When transactions are released: all events, the order of the ends, the timeout, and repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from tablestream.operators.captured.transactions import EVENT, TRANSACTION, TransactionGate
from tablestream.operators.operator import Context, WallClock
from tablestream.operators.reasons import INCOMPLETE
from tablestream.state.cache import NoCache
from tablestream.state.changes import FOREIGN_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

End = tuple[str, dict[str, int]]
Event = tuple[str, int]


@dataclass
class Gate:
    """A gate for the tables ``a`` and ``b``, with its state."""

    timeout_us: int | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    marks: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    wake_us: int | None = None

    def run(
        self,
        ends: Sequence[End] = (),
        a: Sequence[Event] = (),
        b: Sequence[Event] = (),
        now: int = 0,
        later: Sequence[Event] = (),
        at_us: int = 0,
    ) -> list[str]:
        """Process a micro-batch and then the wall clock; return what is released, in its order.

        `later`: events of `a` in a second slice of the micro-batch. `at_us`: the time of the ends.
        """
        operator = TransactionGate(self.timeout_us, ("a", "b"))
        state = self.state
        clock = None if self.timeout_us is None else WallClock(now)
        context = Context(state.trace, self.dropped, clock=clock, marks=self.marks)
        stood = self._ends(operator, ends).with_columns(pl.lit(at_us, pl.Int64).alias(TS))
        frames = [stood, self._events(operator, a, 100), self._events(operator, b, 200)]
        found = [one.rows for one in operator.run(frames, context)]
        if later:
            slice_ = [frames[0].clear(), self._events(operator, later, 300), frames[2].clear()]
            found += [one.rows for one in operator.run(slice_, context)]
        if clock is not None:
            clock.tick, clock.wake_us = 1000, None
            found += [one.rows for one in operator.run([one.clear() for one in frames], context)]
            self.wake_us = clock.wake_us
        state.commit()
        return [name for rows in found for name in rows[TRANSACTION]]

    @property
    def state(self) -> ShardState:
        """The state after the last micro-batch."""
        traces = numbered_traces(TransactionGate(None).traces)
        return ShardState(self.store, NoCache(), traces, "")

    def _ends(self, operator: TransactionGate, ends: Sequence[End]) -> pl.DataFrame:
        rows = [
            _head(n) | {"v": {"c0": name, "c1": list(counts), "c2": list(counts.values())}}
            for n, (name, counts) in enumerate(ends, start=1)
        ]
        return pl.DataFrame(rows, {SEQ: pl.Int64(), STEP: pl.Int64(), **operator.inputs[0]})

    def _events(self, operator: TransactionGate, events: Sequence[Event], first: int) -> pl.DataFrame:
        rows = [
            _head(n) | {TRANSACTION: name, EVENT: number, "v": None}
            for n, (name, number) in enumerate(events, start=first)
        ]
        return pl.DataFrame(rows, {SEQ: pl.Int64(), STEP: pl.Int64(), **operator.inputs[1]})


def _head(place: int) -> dict[str, object]:
    return {SEQ: place, STEP: place, FOREIGN_HASH: 0, TS: 0, LIVE: True}


def test_a_transaction_is_released_when_all_its_events_have_arrived() -> None:
    gate = Gate()
    assert gate.run([("1", {"a": 2, "b": 1})], a=[("1", 1)]) == []
    assert gate.run(b=[("1", 3)]) == []
    assert gate.run(a=[("1", 2)]) == ["1"]


def test_tables_that_the_plan_does_not_have_are_not_waited_for() -> None:
    gate = Gate()
    assert gate.run([("1", {"a": 1, "other": 5})], a=[("1", 1)]) == ["1"]
    assert gate.run([("2", {"other": 5})]) == []
    assert gate.run([("3", {"b": 1})], b=[("3", 1)]) == ["3"]


def test_an_end_that_counts_no_event_waits_for_nothing() -> None:
    """A connector that was restarted within a transaction may write one, before or after the end with the counts."""
    gate = Gate()
    assert gate.run([("1", {})], a=[("1", 7)]) == ["1"]
    assert gate.run([("1", {"a": 1})]) == []
    assert gate.run([("2", {})], a=[("2", 1)], b=[("2", 2)]) == ["2"]
    assert gate.run(b=[("2", 3)]) == ["2"]
    assert gate.run([("3", {"a": 1})], a=[("3", 1)]) == ["3"]


def test_transactions_are_released_in_the_order_of_their_ends() -> None:
    gate = Gate()
    assert gate.run([("2", {"a": 1}), ("1", {"a": 1})], a=[("1", 1)]) == []
    assert gate.run(a=[("2", 1)]) == ["2", "1"]


def test_events_may_come_before_their_end_and_count_once() -> None:
    gate = Gate()
    assert gate.run(a=[("1", 1), ("1", 1)]) == []
    assert gate.run(a=[("1", 1)]) == []
    assert gate.run([("1", {"a": 2})]) == []
    assert gate.run(a=[("1", 2)]) == ["1"]


def test_an_event_in_a_later_slice_of_the_micro_batch_is_waited_for() -> None:
    gate = Gate(timeout_us=50)
    assert gate.run([("1", {"a": 2})], a=[("1", 1)], now=0) == []
    assert gate.run(b=[("2", 1)], later=[("1", 2)], now=100) == ["1"]
    assert not gate.dropped


def test_an_incomplete_transaction_goes_on_after_its_time() -> None:
    gate = Gate(timeout_us=50)
    ends = [("1", {"a": 2}), ("2", {"b": 1})]
    assert gate.run(ends, a=[("1", 1)], b=[("2", 1)], now=1000) == []
    assert gate.wake_us == 1050
    assert gate.run(now=1049) == []
    assert gate.run(now=1050) == ["1", "2"]
    assert gate.dropped[INCOMPLETE] == 1
    assert [gate.wake_us] == [None]
    assert gate.run(a=[("1", 2)], now=1051) == ["1"]


def test_what_the_connector_repeats_waits_for_nothing_and_leaves_nothing() -> None:
    gate = Gate()
    ends = [("1", {"a": 1}), ("2", {"a": 2})]
    assert gate.run(ends, a=[("1", 1), ("2", 1), ("2", 2)]) == ["1", "2"]
    assert gate.run(ends[1:], a=[("2", 2)]) == ["2"]
    assert gate.run([("3", {"a": 1})], a=[("3", 1)]) == ["3"]
    assert gate.state.trace("seen").scan().is_empty()
    assert gate.state.trace("line").scan().is_empty()


def test_who_stands_in_line_is_written_once() -> None:
    gate = Gate()
    gate.run([(str(number), {"a": 1}) for number in range(10)])
    for number in (9, 8, 7):
        assert gate.run(a=[(str(number), 1)]) == []
    (run,) = gate.state.trace("line").runs
    assert run.rows == 10
    assert run.number == 1


def test_ends_are_known_for_seven_days_of_their_time_and_then_forgotten() -> None:
    """An event that the connector repeats within them waits for nothing."""
    day, gate = 86_400_000_000, Gate()
    for number in range(40):
        assert gate.run([(str(number), {"a": 1})], a=[(str(number), 1)], at_us=number * day) == [str(number)]
    assert gate.run(a=[("33", 1)]) == ["33"]
    assert gate.state.trace("ended").scan().height < 16
