"""Repeats of a writer: against logs of writers that fail, whose first records of each change are what they meant."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.operators.deduplicate import FAR, MICRO_BATCH, MOST_SPANS, RECORD_KEY, WRITER, Deduplicate
from tablestream.operators.operator import Context
from tablestream.operators.reasons import REPEATED, RESUMED
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces
from tests.marks import quick_first

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATOR = Deduplicate(pl.Schema({"_k0": pl.String()}), pl.Struct({"c0": pl.String()}))


@dataclass(frozen=True)
class Written:
    """A record; without a writer nobody said anything of it."""

    writer: str | None
    key: str
    micro_batch: int = 0
    number: int = 0


class Reader:
    """The operator with a state that outlives it."""

    def __init__(self) -> None:
        self.store, self.dropped = MemoryStore(), Counter[str]()

    def run(self, records: Sequence[Written]) -> list[Written]:
        """Work off a micro-batch; return what is passed on."""
        (schema,) = OPERATOR.inputs
        rows = [
            {
                "_kh": number, "_k0": f"{number}", "_ts": number, "_live": number % 2 == 0, "v": {"c0": f"{number}"},
                "_wh": None if one.writer is None else sum(one.writer.encode()) % 3, "_w": one.writer,
                "_fh": None if one.writer is None else sum(f"{one.writer}{one.key}".encode()) % 5,
                "_rk": one.key.encode(), "_mb": one.micro_batch, "_no": one.number, "_seq": number, "_step": number,
            }
            for number, one in enumerate(records, 1)
        ]  # fmt: skip
        frame = pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64})
        state = ShardState(self.store, NoCache(), numbered_traces(OPERATOR.traces), "plan")
        (emission,) = OPERATOR.run([frame], Context(state.trace, self.dropped))
        state.commit()
        passed = emission.rows.sort("_parent")
        assert passed.equals(
            frame.filter(pl.col("_seq").is_in(passed["_parent"].implode()))
            .rename({"_seq": "_parent"})
            .select(passed.columns)
        )
        return [records[number - 1] for number in passed["_parent"]]

    def remembered(self, *writers: str) -> set[tuple[str, str, int]]:
        """The keys known of some writers, each with its micro-batch."""
        state = ShardState(self.store, NoCache(), numbered_traces(OPERATOR.traces), "plan")
        asked = pl.DataFrame({"_wh": [sum(one.encode()) % 3 for one in writers], "_w": writers})
        rows = state.trace("written").lookup(asked).select(WRITER, RECORD_KEY, MICRO_BATCH).iter_rows()
        return {(writer, key.decode(), number) for writer, key, number in rows}


def batch(writer: str, micro_batch: int, rng: random.Random) -> list[list[Written]]:
    """A micro-batch: what each of its tasks writes, a key always by the same."""
    tasks: list[list[Written]] = [[], []]
    counts: Counter[str] = Counter()
    for _ in range(rng.randrange(8)):
        key = rng.choice("abcdef")
        tasks[ord(key) % 2].append(Written(writer, key, micro_batch, counts[key]))
        counts[key] += 1
    return tasks


def interleaved(parts: Sequence[Sequence[Written]], rng: random.Random) -> list[Written]:
    """Records of several sequences, each in its order."""
    turns = [number for number, part in enumerate(parts) for _ in part]
    rng.shuffle(turns)
    left = [iter(part) for part in parts]
    return [next(left[number]) for number in turns]


def writing(writer: str, rng: random.Random) -> tuple[list[Written], list[Written]]:
    """What a writer means to write, and what stands in the topic: failed attempts first, and some that come late."""
    meant: list[Written] = []
    log: list[Written] = []
    late: list[Written] = []
    for micro_batch in range(5):
        tasks = batch(writer, micro_batch, rng)
        meant += [one for task in tasks for one in task]
        attempts = [task[: rng.randint(0, len(task))] for task in tasks for _ in range(rng.randrange(3))]
        # A later attempt may overtake one that failed; but all is written before the next micro-batch begins.
        log += interleaved([*attempts, *tasks, late], rng)
        late = [one for task in tasks for one in task[: rng.randint(0, len(task))] if rng.random() < 0.3]
    return meant, log + late


def by_key(records: Sequence[Written]) -> dict[tuple[str | None, str], list[tuple[int, int]]]:
    found: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    for one in records:
        found.setdefault((one.writer, one.key), []).append((one.micro_batch, one.number))
    return found


def latest(meant: Sequence[Written]) -> set[tuple[str | None, str, int]]:
    """The keys of a writer's last micro-batch."""
    last = max([one.micro_batch for one in meant], default=-1)
    return {(one.writer, one.key, last) for one in meant if one.micro_batch == last}


@pytest.mark.parametrize("seed", quick_first(range(200), 40))
def test_each_change_passes_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    (meant, log), (other_meant, other_log) = writing("one", rng), writing("two", rng)
    unmarked = [Written(None, rng.choice("ab")) for _ in range(5)]
    topic = interleaved([log, other_log, unmarked], rng)
    cuts = sorted(rng.choices(range(len(topic) + 1), k=rng.randrange(6)))
    reader, got = Reader(), list[Written]()
    for start, end in pairwise([0, *cuts, len(topic)]):
        got += reader.run(topic[start:end])
    assert by_key(got) == by_key([*meant, *other_meant, *unmarked])
    assert reader.dropped[REPEATED] == len(topic) - len(got)
    assert reader.remembered("one", "two") == latest(meant) | latest(other_meant)


def test_a_query_with_a_new_checkpoint_is_another_writer() -> None:
    reader, records = Reader(), [Written("one", "a"), Written("one", "a", 1)]
    assert reader.run(records) == records
    again = [replace(one, writer="two") for one in records]
    assert reader.run(again + again) == again
    assert reader.run(records) == []


def test_what_compaction_took_away_is_not_waited_for() -> None:
    reader = Reader()
    kept = [Written("one", "a", 3, 2), Written("one", "b", 5, 1), Written("one", "a", 5, 4)]
    assert reader.run(kept) == kept
    assert reader.run([Written("one", "b", 5, 0), Written("one", "a", 5, 4)]) == []


@pytest.mark.parametrize("step", [(1, 0), (0, 1)], ids=["micro-batch", "number"])
def test_equal_hashes_are_no_equal_writers_or_keys(step: tuple[int, int]) -> None:
    """``ad`` and ``bc`` have one hash here, and so have the writers."""
    places = [("ad", "ad"), ("bc", "ad"), ("bc", "bc")]
    records = [Written(*place, (2 - n) * step[0], (2 - n) * step[1]) for n, place in enumerate(places)]
    assert Reader().run(records) == records
    reader = Reader()
    assert [one for record in records for one in reader.run([record])] == records


FAR_ON = [1, 2, 5_000, 10**17]


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("numbers", [[one] for one in FAR_ON] + [[5_000, 5_001], FAR_ON[::-1]], ids=str)
def test_forged_numbers_hide_no_micro_batch_of_the_real_writer_but_these(
    numbers: list[int], cut: bool
) -> None:
    reader, forged = Reader(), [Written("one", "x", 3 + one, 7) for one in numbers]
    before = [Written("one", "a", 3), Written("one", "b", 3)]
    after = [Written("one", key, mb, n) for mb in range(6, 9) for key in "ab" for n in range(2)]
    last = [Written("one", "a", 4_000), Written("one", "a", 9_000)]
    pieces = [before, forged, after, last] if cut else [[*before, *forged, *after, *last]]
    assert [one for piece in pieces for one in reader.run(piece)] == [*before, *forged, *after, *last]
    assert reader.run([*forged, *after, *last]) == []
    assert reader.remembered("one") == {("one", "a", 9_000)}
    assert reader.dropped[REPEATED] == len([*forged, *after, *last])


def test_a_forged_record_hides_the_rest_of_a_micro_batch_and_the_one_of_its_number() -> None:
    reader, forged = Reader(), Written("one", "x", 7)
    real = {mb: [Written("one", key, mb) for key in "ab"] for mb in (5, 6, 7, 8)}
    assert reader.run([real[5][0], forged, real[5][1], *real[6], *real[7], *real[8]]) == [
        real[5][0], forged, *real[6], *real[8]
    ]  # fmt: skip


def test_micro_batches_that_begin_below_another_are_counted() -> None:
    reader = Reader()
    reader.run(
        [Written("one", "a", 3), Written("one", "a", 9), Written("one", "a", 4), Written("one", "b", 4)]
    )
    assert reader.dropped == {RESUMED: 1}
    reader.run(
        [Written("one", "a", 5), Written("two", "a", 1), Written("one", "a", 6), Written("one", "a", 10)]
    )
    assert reader.dropped == {RESUMED: 3}


def test_a_forged_first_record_of_a_writer_hides_nothing_else() -> None:
    reader, forged, real = Reader(), Written("one", "a", 900, 2), Written("one", "a", 1)
    assert [reader.run([one]) for one in (forged, real, forged, real)] == [[forged], [real], [], []]


def test_in_the_state_of_an_older_version_all_before_the_current_micro_batch_have_begun() -> None:
    reader = Reader()
    reader.run([Written("one", "a", 2 * FAR)])
    state = ShardState(reader.store, NoCache(), numbered_traces(OPERATOR.traces), "plan")
    trace = state.trace("written")
    trace.insert(
        trace.scan().filter(pl.col(WRITER) != "one").with_columns(pl.lit(value=False).alias("_live"))
    )
    state.commit()
    passed = [bool(reader.run([Written("one", "b", 2 * FAR - back)])) for back in (1, FAR, FAR + 1)]
    assert passed == [False, False, True]


def test_gaps_between_the_micro_batches_of_a_writer_take_a_bounded_state() -> None:
    reader = Reader()
    for start in (0, MOST_SPANS):
        records = [Written("one", "a", 2 * number) for number in range(start, start + MOST_SPANS)]
        assert reader.run(records) == records
    state = ShardState(reader.store, NoCache(), numbered_traces(OPERATOR.traces), "plan")
    assert state.trace("written").scan().height == MOST_SPANS + 1
    assert reader.run(records) == []
    odd = [Written("one", "a", 2 * number + 1) for number in range(2 * MOST_SPANS)]
    assert reader.run(odd[MOST_SPANS:]) == odd[MOST_SPANS:]
    assert (
        ShardState(reader.store, NoCache(), numbered_traces(OPERATOR.traces), "plan")
        .trace("written")
        .scan()
        .height
        == 2
    )


def test_a_writer_that_was_quiet_for_long_goes_on_without_repeats() -> None:
    reader, late = Reader(), Written("one", "a", 50 * FAR)
    reader.run([Written("one", "a", 1)])
    assert reader.run([late, late]) == [late]
    assert reader.run([late]) == []
