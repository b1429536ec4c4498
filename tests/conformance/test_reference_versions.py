"""The reference of versioned tables against what Kafka Streams did, and by its own rules."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.conformance.notation import both_modes, check
from tests.conformance.vectors import (
    StoreSequence,
    added,
    foreign_key,
    group,
    joined,
    replay,
    sequences,
    store_sequences,
    subtracted,
)
from tests.reference import (
    Aggregate,
    AsOfJoin,
    ForeignKeyJoin,
    GroupBy,
    KeyJoin,
    LatestOnly,
    Output,
    Row,
    StreamGlobalTableJoin,
    TableSource,
    Version,
    VersionedRows,
    VersionedTable,
    VersionedView,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.notation import Answer
    from tests.conformance.vectors import Event, Sequence

NOT_PUT, LATEST = -(1 << 63), -1


def versioned(family: str, *ops: str) -> list[Any]:
    found = [s for s in sequences(family) if s.op in ops and s.versioned]
    return [pytest.param(sequence, id=str(sequence)) for sequence in found]


class Side:
    """A topic read as a table, with the versions of its history or, without one, as it comes."""

    def __init__(self, history: int | None, *, counts: bool = False, compat: bool = True) -> None:
        self.source = TableSource(compat=compat)
        self.table = None if history is None else VersionedTable(history, compat=compat)
        self.latest = LatestOnly(counts=counts, compat=compat)

    def versions(self, key: str | None, value: str | None, ts: int) -> list[Version]:
        """What leaves the table."""
        read = self.source.change(0, key, value, ts)
        if self.table is None:
            return [Version(*change) for change in read]
        return self.table.step([(0, *change) for change in read])

    def changes(self, key: str | None, value: str | None, ts: int) -> list[Output]:
        """What a reader that knows no versions sees of it."""
        return self.latest.step(self.versions(key, value, ts))

    @property
    def dropped(self) -> int:
        return self.source.dropped + self.latest.dropped + (0 if self.table is None else self.table.dropped)


# What was recorded.


def test_all_recorded_versions_are_there() -> None:
    counts = {
        family: len(versioned(family, *{s.op for s in sequences(family)}))
        for family in ("pk_join", "fk_join", "groupby_aggregate", "table_ops", "stream_table_join")
    }
    assert counts == {
        "pk_join": 72, "fk_join": 48, "groupby_aggregate": 18, "table_ops": 24, "stream_table_join": 48,
    }  # fmt: skip


@pytest.mark.parametrize(
    "sequence", [*store_sequences("versioned_store"), *store_sequences("versioned_store_dense")], ids=str
)
def test_a_store_answers_as_recorded(sequence: StoreSequence) -> None:
    store = VersionedRows(sequence.params["history_ms"], compat=True)
    calls: dict[str, Callable[..., Any]] = {
        "put": store.put, "get": store.get, "get_as_of": store.as_of, "delete": store.delete,
    }  # fmt: skip
    for number, call in enumerate(sequence.calls):
        found = calls[call.name](*call.arguments)
        assert (list(found) if isinstance(found, Row) else found) == call.result, (number, call)


@pytest.mark.parametrize("sequence", versioned("pk_join", "pk_join"))
def test_key_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    both_sides(sequence, KeyJoin(sequence.params["join"], joiner=joined, compat=True))


@pytest.mark.parametrize("sequence", versioned("fk_join", "fk_join"))
def test_foreign_key_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    both_sides(sequence, ForeignKeyJoin(foreign_key, sequence.params["join"], joiner=joined, compat=True))


def both_sides(sequence: Sequence, join: KeyJoin | ForeignKeyJoin) -> None:
    left, right = (Side(sequence.params[f"{side}_history_ms"], counts=True) for side in ("left", "right"))

    def answer(event: Event) -> list[Output]:
        side, port = (left, 0) if event.topic == "L" else (right, 1)
        changes = side.changes(event.key, event.value, event.ts)
        return join.step([(port, *change) for change in changes])

    replay(sequence, answer)
    assert join.dropped + left.dropped + right.dropped == sequence.dropped


@pytest.mark.parametrize(
    "sequence",
    versioned("groupby_aggregate", "groupby_aggregate", "groupby_count", "groupby_reduce"),
)
def test_groups_give_the_recorded_outputs(sequence: Sequence) -> None:
    side, groups = Side(sequence.params["history_ms"]), GroupBy(group, compat=True)
    aggregate = {
        "groupby_aggregate": Aggregate(
            lambda: "0",
            lambda _, item, aggregate: added(aggregate, item),
            lambda _, item, aggregate: subtracted(aggregate, item),
            compat=True,
        ),
        "groupby_count": Aggregate.count(compat=True),
        "groupby_reduce": Aggregate.reduce(added, subtracted, compat=True),
    }[sequence.op]

    def answer(event: Event) -> list[Output]:
        changes = side.changes(event.key, event.value, event.ts)
        told = aggregate.step(groups.step([(0, *change) for change in changes]))
        return [one._replace(value=None if one.value is None else str(one.value)) for one in told]

    replay(sequence, answer)
    assert side.dropped == sequence.dropped


VIEWS: dict[str, Callable[[str], str | None]] = {
    "table_to_stream": lambda value: value,
    "filter_y": lambda value: value if value[0] == "y" else None,
    "filter_not_y": lambda value: None if value[0] == "y" else value,
    "map_values_n2_to_null": lambda value: None if value == "n2" else value + "!",
}


@pytest.mark.parametrize("sequence", versioned("table_ops", *VIEWS))
def test_views_give_the_recorded_outputs(sequence: Sequence) -> None:
    side, view = Side(sequence.params["history_ms"]), VersionedView(VIEWS[sequence.op], compat=True)

    def answer(event: Event) -> list[Output]:
        told = view.step(side.versions(event.key, event.value, event.ts))
        return [Output(version.key, version.value, version.ts) for version in told]

    replay(sequence, answer)
    assert side.dropped == sequence.dropped


@pytest.mark.parametrize("sequence", sequences("stream_table_join"), ids=str)
def test_stream_table_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    params = sequence.params
    side, history = Side(params["table_history_ms"]), params["table_history_ms"]
    join = lookup(params["join"], history=history, grace=params["grace_ms"], compat=True)
    replay(sequence, lambda event: looked_up(side, join, event.topic, event.key, event.value, event.ts))
    assert side.dropped + join.dropped == sequence.dropped


def lookup(
    how: Literal["inner", "left"],
    *,
    history: int | None,
    grace: int | None = None,
    compat: bool,
    **options: Any,
) -> AsOfJoin | StreamGlobalTableJoin:
    """Join a stream with a table on the key."""
    if history is None:
        return StreamGlobalTableJoin(lambda _, key: key, how, joiner=joined, compat=compat)
    return AsOfJoin(
        lambda _, key: key, how, history=history, grace=grace, joiner=joined, compat=compat, **options
    )


def looked_up(
    side: Side,
    join: AsOfJoin | StreamGlobalTableJoin,
    topic: str,
    key: str | None,
    value: str | None,
    ts: int,
) -> list[Output]:
    """Answer a record of the stream, S, or of the table."""
    if topic == "S":
        return join.change(join.STREAM, key, value, ts)
    return join.step([(join.TABLE, *version[:3]) for version in side.versions(key, value, ts)])


# A store of versions.


@both_modes
def test_a_store_keeps_versions_by_their_times(compat: bool) -> None:
    rows = VersionedRows(10, compat=compat)
    assert [rows.put("k", value, ts) for value, ts in [("a", 10), ("b", 20), ("c", 15)]] == [-1, -1, 20]
    found = [rows.as_of("k", ts) for ts in (9, 10, 14, 15, 19, 20, 99)]
    assert [row and row.value for row in found] == [None, "a", "a", "c", "c", "b", "b"]
    assert rows.put("k", "z", 9) == NOT_PUT
    assert rows.put("k", "y", 10) == 15
    assert rows.delete("k", 17) == ("c", 15)
    assert [rows.as_of("k", ts) for ts in (17, 16, 20)] == [None, ("c", 15), ("b", 20)]
    assert rows.delete("k", 30) == ("b", 20)
    assert rows.get("k") is None


@both_modes
def test_the_latest_version_never_expires_and_time_is_of_all_keys(compat: bool) -> None:
    rows = VersionedRows(10, compat=compat)
    rows.put("k", "a", 1)
    rows.put("other", "x", 100)
    assert [rows.as_of("k", ts) for ts in (0, 1, 5, 100)] == [None, ("a", 1), ("a", 1), ("a", 1)]
    assert rows.put("k", "late", 89) == NOT_PUT
    assert rows.put("k", "b", 95) == LATEST
    assert [rows.as_of("k", ts) for ts in (5, 94, 95)] == [None, ("a", 1), ("b", 95)]
    assert rows.get("k") == ("b", 95)


def test_time_is_of_a_shard() -> None:
    rows = VersionedRows(10, shard=len)
    rows.put("k", "a", 100)
    assert rows.put("kk", "b", 5) == LATEST
    assert rows.put("l", "c", 5) == NOT_PUT


@pytest.mark.parametrize("history", [0, 3, 20])
def test_by_default_a_store_is_a_map_of_times(history: int) -> None:
    """No tombstone is forgotten: as of a time is what the largest time up to it says."""
    rng = random.Random(history)
    rows = VersionedRows(history)
    known: dict[str, dict[int, str | None]] = {"a": {}, "b": {}}
    now = 0
    for number in range(2_000):
        now = max(0, now + rng.choice((0, 0, 1, -1, -2)))
        key, value = rng.choice("ab"), None if rng.random() < 0.4 else f"{number}"
        observed = max((time for times in known.values() for time in times), default=now)
        if rows.put(key, value, now) == NOT_PUT:
            assert now < observed - history
        else:
            known[key][now] = value
        observed = max(observed, now)
        for key, times in known.items():
            newest = max(times, default=None)
            row = None if newest is None or times[newest] is None else (times[newest], newest)
            assert rows.get(key) == row
            at = rng.randint(max(0, observed - history), observed + 1)
            begin = max((time for time in times if time <= at), default=None)
            valid = None if begin is None or times[begin] is None else (times[begin], begin)
            assert rows.as_of(key, at) == valid


@both_modes
def test_a_tombstone_at_the_time_of_the_newest_version(compat: bool) -> None:
    rows = VersionedRows(10, compat=compat)
    assert [rows.put("k", value, ts) for value, ts in [("v", 5), (None, 5)]] == [LATEST, LATEST]
    assert rows.put("k", "w", 3) == (LATEST if compat else 5)
    assert rows.get("k") == (("w", 3) if compat else None)


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ([("u", 2), ("v", 5)], True),  # a row ends at 5
        ([(None, 5), ("v", 5)], True),  # a tombstone was at 5
        ([(None, 2), (None, 5), ("v", 5)], True),  # a tombstone ends at 5, with another one
        ([(None, 2), ("v", 5)], False),  # a row ends no tombstone
        ([(None, 2), ("v", 5), (None, 2)], True),  # but one that is written again
        ([(None, 2), ("v", 5), ("u", 4)], True),  # a late row ends at 5
    ],
)
def test_in_compat_it_leaves_a_trace_where_something_tells_of_its_time(
    before: list[tuple[str | None, int]], told: bool
) -> None:
    rows = VersionedRows(10, compat=True)
    for value, ts in [*before, (None, 5)]:
        rows.put("k", value, ts)
    assert rows.put("k", "w", 4) == (5 if told else LATEST)
    assert rows.get("k") == (None if told else ("w", 4))


# What reads versions.


def answers(side: Side, step: Callable[[list[Version]], list[Any]]) -> Answer:
    return lambda _, key, value, ts: [Output(*told[:3]) for told in step(side.versions(key, value, ts))]


@both_modes
def test_a_versioned_table_tells_every_change_that_is_not_expired(compat: bool) -> None:
    side = Side(5, compat=compat)
    trace = """
        T a 1@10 → a=1@10
        T a 2@8  → a=2@8
        T a ~@9  → a=~@9
        T a 3@5  → a=3@5
        T a 4@4  → -
        T b 1@4  → -
        T a 5@10 → a=5@10
        T a 1@20 → a=1@20
        T a 2@15 → a=2@15
        T a 2@14 → -
    """
    check(answers(side, list), trace)
    assert side.dropped == 3


@both_modes
def test_late_changes_are_left_out_of_joins_and_groups(compat: bool) -> None:
    for counts in (False, True):
        side = Side(5, counts=counts, compat=compat)
        trace = """
            T a 1@10 → a=1@10
            T a 2@8  → -
            T a ~@9  → -
            T a 5@10 → a=5@10
            T b 1@6  → b=1@6
        """
        check(answers(side, side.latest.step), trace)
        assert side.dropped == (2 if counts else 0)


@both_modes
def test_a_filter_of_versions_repeats_tombstones(compat: bool) -> None:
    view = VersionedView(VIEWS["filter_y"], compat=compat)
    trace = """
        T a n@1  → a=~@1
        T a y2@2 → a=y2@2
        T a n4@4 → a=~@4
        T a n3@3 → a=~@3
        T a y1@1 → a=y1@1
        T a ~@5  → a=~@5
    """
    check(answers(Side(10, compat=compat), view.step), trace)


def as_of_trace(join: AsOfJoin | StreamGlobalTableJoin, trace: str, history: int = 100) -> None:
    side = Side(history, compat=join.compat)
    check(lambda *record: looked_up(side, join, *record), trace)


@both_modes
def test_a_record_finds_the_version_of_its_time(compat: bool) -> None:
    join = lookup("inner", history=100, compat=compat)
    trace = """
        S k s1@5  → -
        T k t1@10 → -
        S k s2@3  → -
        T k t0@4  → -
        S k s3@20 → k=(s3,t1)@20
        S k s2@4  → k=(s2,t0)@4
        T k ~@15  → -
        S k s@12  → k=(s,t1)@12
        S k s@15  → -
        S k ~@20  → -
        S ~ s@20  → -
    """
    as_of_trace(join, trace)
    assert join.dropped == 2


@both_modes
def test_a_time_before_the_history_finds_the_newest_version_if_that_is_as_old(compat: bool) -> None:
    trace = """
        T k t1@1    → -
        T x u@100   → -
        S k s@5     → k=(s,t1)@5
        T k t2@95   → -
        S k s@5     → k=(s,null)@5
        S k s@94    → k=(s,t1)@94
    """
    as_of_trace(lookup("left", history=10, compat=compat), trace, history=10)


@both_modes
def test_with_grace_records_leave_by_time_key_and_arrival(compat: bool) -> None:
    join = lookup("left", history=100, grace=3, compat=compat)
    side = Side(100, compat=compat)
    for key, value in [("b", 1), ("a", 1), ("c", 1), ("a", 2), ("aa", 1), ("b", 2)]:
        assert looked_up(side, join, "S", key, f"{key}{value}", 5) == []
    assert looked_up(side, join, "S", "c", "c0", 4) == []
    told = looked_up(side, join, "S", "z", "end", 8)
    order = ["c0", "a1", "a2", "aa1", "b1", "b2", "c1"]
    assert [output.value for output in told] == [f"({value},null)" for value in order]


@both_modes
def test_with_grace_what_is_too_late_to_wait_is_joined_at_once(compat: bool) -> None:
    join = lookup("inner", history=100, grace=2, compat=compat)
    trace = """
        T k t1@1  → -
        S k s1@10 → -
        S k s2@7  → k=(s2,t1)@7
        S k s3@8  → k=(s3,t1)@8
        T k t2@9  → -
        S k s4@12 → k=(s1,t2)@10
        S k ~@99  → -
    """
    as_of_trace(join, trace)
    assert isinstance(join, AsOfJoin)
    assert (join.late, join.dropped) == (1, 1)


@both_modes
def test_a_grace_of_nothing_is_no_grace(compat: bool) -> None:
    trace = """
        T k t1@1  → -
        S k s1@10 → k=(s1,t1)@10
        S k s2@7  → k=(s2,t1)@7
    """
    as_of_trace(lookup("inner", history=100, grace=0, compat=compat), trace)


@both_modes
def test_a_record_that_points_at_nothing_does_not_wait(compat: bool) -> None:
    trace = """
        S ~ s1@50 → ~=(s1,null)@50
        S k s2@10 → -
        S k s3@12 → k=(s2,null)@10
    """
    as_of_trace(lookup("left", history=100, grace=2, compat=compat), trace)


@both_modes
@pytest.mark.parametrize("advances", [False, True])
def test_versions_let_records_go_where_they_are_asked_to(advances: bool, compat: bool) -> None:
    join = lookup("inner", history=100, grace=5, table_advances=advances, compat=compat)
    trace = f"""
        S k s1@8  → -
        T k t1@7  → -
        T x u@13  → {"k=(s1,t1)@8" if advances else "-"}
        S k s2@9  → -
        S k s3@7  → {"k=(s3,t1)@7" if advances else "-"}
    """
    as_of_trace(join, trace)


@pytest.mark.parametrize("copied", [False, True])
def test_records_wait_in_the_shard_of_what_they_point_at_or_of_their_own_key(copied: bool) -> None:
    join = AsOfJoin(
        foreign_key,
        "left",
        history=100,
        grace=2,
        joiner=joined,
        shard=len,
        copied=copied,
        table_advances=True,
    )
    assert join.change(0, "k", "a|xx", 5) == []
    # A record of another shard lets nothing go: it is of key kk, and points at x.
    assert join.change(0, "kk", "b|x", 9) == []
    at_length = join.change(0, "k", "c|y", 9)
    assert at_length == ([("k", "(a|xx,null)", 5)] if copied else [])
    # A version lets go what waits in its shard; a copied one comes to every shard.
    gone = join.change(1, "zz", "Z", 11)
    assert [output.value[1] for output in gone] == (["c", "b"] if copied else ["a"])


def test_a_step_s_versions_come_before_its_records() -> None:
    step = [(0, "k", "s", 5), (1, "k", "t", 5)]
    assert lookup("left", history=10, compat=False).step(step) == [("k", "(s,t)", 5)]
    assert lookup("left", history=10, compat=True).step(step) == [("k", "(s,null)", 5)]
