"""The reference's grouped aggregates: what Kafka Streams did, KIP-904's examples, and what steps change."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.notation import aggregated, both_modes, check, single
from tests.conformance.vectors import Event, Sequence, added, group, replay, sequences, subtracted
from tests.reference import Aggregate, Change, GroupBy, Output, StreamAggregate, TableSource

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = [sequence for sequence in sequences("groupby_aggregate") if not sequence.versioned]
every_recorded = pytest.mark.parametrize("sequence", RECORDED, ids=str)


def history(*, keep_empty: bool = False, compat: bool) -> Aggregate:
    """Write down every addition and subtraction, as the recorded aggregate does."""
    return Aggregate(
        lambda: "0",
        lambda _, item, aggregate: added(aggregate, item),
        lambda _, item, aggregate: subtracted(aggregate, item),
        keep_empty=keep_empty,
        compat=compat,
    )


# What was recorded.

OPERATORS: dict[str, Callable[[], Aggregate]] = {
    "groupby_aggregate": lambda: history(compat=True),
    "groupby_count": lambda: Aggregate.count(compat=True),
    "groupby_reduce": lambda: Aggregate.reduce(added, subtracted, compat=True),
}


def test_nine_recorded_sequences_are_unversioned() -> None:
    assert Counter(s.op for s in RECORDED) == dict.fromkeys(OPERATORS, 3)


@every_recorded
def test_aggregates_give_the_recorded_outputs(sequence: Sequence) -> None:
    source, groups, aggregate = (
        TableSource(compat=True),
        GroupBy(group, compat=True),
        OPERATORS[sequence.op](),
    )

    def answer(event: Event) -> list[Output]:
        rows = source.change(0, event.key, event.value, event.ts)
        outputs = aggregate.step(groups.step([(0, *row) for row in rows]))
        return [out._replace(value=None if out.value is None else str(out.value)) for out in outputs]

    replay(sequence, answer)
    assert source.dropped + groups.dropped + aggregate.dropped == sequence.dropped


@pytest.mark.parametrize("size", [1, 2, 5, 40])
@every_recorded
def test_recorded_inputs_in_steps_count_the_rows_of_the_table(sequence: Sequence, size: int) -> None:
    """Default mode, however the input is cut into steps: the counts are those of a query of the table."""
    source, groups, count = TableSource(), GroupBy(group), Aggregate.count()
    kept: dict[str | None, int | None] = {}
    for start in range(0, len(sequence.events), size):
        events = sequence.events[start : start + size]
        rows = source.step([(0, event.key, event.value, event.ts) for event in events])
        outputs = count.step(groups.step([(0, *row) for row in rows]))
        assert max(Counter(out.key for out in outputs).values(), default=1) == 1
        kept |= {out.key: out.value for out in outputs}
        selected = [group(row.value) for row in source.rows().values()]
        wanted = Counter(name for name, item in selected if item is not None)
        assert {name: rows for name, rows in kept.items() if rows is not None} == wanted


@every_recorded
def test_modes_agree_on_recorded_inputs_with_empty_groups_and_without_null_ones(sequence: Sequence) -> None:
    answers = [
        aggregated(
            GroupBy(lambda value, _: None if value[0] == "_" else group(value), compat=compat),
            history(keep_empty=True, compat=compat),
        )
        for compat in (False, True)
    ]
    for event in sequence.events:
        default, compat = (answer("T", event.key, event.value, event.ts) for answer in answers)
        assert default == compat


# KIP-904.


@both_modes
def test_kip_904_count_never_shows_the_group_without_its_row(compat: bool) -> None:
    by_key_and_value = GroupBy(lambda value, key: ((key, value), value), compat=compat)
    count = Aggregate.count(compat=compat)
    assert count.step(by_key_and_value.step([(0, "1", "", 8)])) == [(("1", ""), 1, 8)]
    assert count.step(by_key_and_value.step([(0, "1", "", 9)])) == [(("1", ""), 1, 9)]


@both_modes
def test_kip_904_set_keeps_its_member(compat: bool) -> None:
    animals = Aggregate(
        frozenset,
        lambda _, animal, zoo: zoo | {animal},
        lambda _, animal, zoo: zoo - {animal},
        compat=compat,
    )
    by_zoo = GroupBy(lambda animal, zoo: (zoo, animal), compat=compat)
    assert animals.step(by_zoo.step([(0, "zoo1", "tiger", 8)])) == [("zoo1", {"tiger"}, 8)]
    assert animals.step(by_zoo.step([(0, "zoo1", "tiger", 9)])) == [("zoo1", {"tiger"}, 9)]


# KIP-914.


@both_modes
def test_kip_914_an_unversioned_aggregate_takes_a_late_row(compat: bool) -> None:
    trace = """
        T k g:v1@1  → g=0+v1@1
        T k g:v2@10 → g=0+v1-v1+v2@10
        T k g:v3@5  → g=0+v1-v1+v2-v2+v3@10
    """
    check(aggregated(GroupBy(group, compat=compat), history(compat=compat)), trace)


# Messages to groups.


@both_modes
def test_messages_of_a_row_on_its_way_through_groups(compat: bool) -> None:
    groups = GroupBy(group, compat=compat)
    assert groups.step([(0, "a", "g:", 1)]) == []
    assert groups.step([(0, "a", "g:1", 2)]) == [Change("g", "1", None, 2)]
    assert groups.step([(0, "a", "g:1", 3)]) == [Change("g", "1", "1", 3)]
    assert groups.step([(0, "a", "h:1", 1)]) == [Change("g", None, "1", 1), Change("h", "1", None, 1)]
    assert groups.step([(0, "a", None, 4)]) == [Change("h", None, "1", 4)]
    assert groups.step([(0, "a", None, 5)]) == []
    assert groups.dropped == 0


def test_null_groups_are_groups_but_not_in_compat() -> None:
    steps = [[(0, "a", "_:1", 1)], [(0, "a", "_:2", 2)], [(0, "a", "g:2", 3)]]
    default, compat = GroupBy(group), GroupBy(group, compat=True)
    assert [default.step(step) for step in steps] == [
        [Change(None, "1", None, 1)],
        [Change(None, "2", "1", 2)],
        [Change(None, None, "2", 3), Change("g", "2", None, 3)],
    ]
    assert [compat.step(step) for step in steps] == [[], [], [Change("g", "2", None, 3)]]


def test_a_group_key_is_null_where_a_part_of_it_is() -> None:
    def by_two(value: str, _key: object) -> tuple[Any, str]:
        return ((value, None), value)

    assert GroupBy(by_two).step([(0, "k", "a", 1)]) == [Change(("a", None), "a", None, 1)]
    assert GroupBy(by_two, compat=True).step([(0, "k", "a", 1)]) == []


def test_selector_may_leave_a_row_out() -> None:
    groups = GroupBy(lambda value, key: None if value == "out" else (value, key))
    assert groups.step([(0, "a", "out", 1)]) == []
    assert groups.step([(0, "a", "g", 2)]) == [Change("g", "a", None, 2)]
    assert groups.step([(0, "a", "out", 3)]) == [Change("g", None, "a", 3)]


def test_a_step_is_one_change_of_each_row() -> None:
    step = [(0, "a", "g:1", 9), (0, "b", "g:5", 1), (0, "a", "h:2", 3), (0, "c", "g:3", 2), (0, "c", None, 2)]
    assert GroupBy(group).step(step) == [Change("h", "2", None, 3), Change("g", "5", None, 1)]
    assert GroupBy(group, compat=True).step(step) == [
        Change("g", "1", None, 9),
        Change("g", "5", None, 1),
        Change("g", None, "1", 3),
        Change("h", "2", None, 3),
        Change("g", "3", None, 2),
        Change("g", None, "3", 2),
    ]


# Aggregates of tables.


def test_aggregate_trace_in_compat() -> None:
    trace = """
        T a g:1@1 → g=0+1@1
        T b g:2@2 → g=0+1+2@2
        T a g:3@3 → g=0+1+2-1+3@3
        T a h:4@4 → g=0+1+2-1+3-3@4 h=0+4@4
        T a h:4@5 → h=0+4-4+4@5
        T b ~@6   → g=0+1+2-1+3-3-2@6
        T b ~@7   → -
        T c _:1@8 → -
        T c g:@9  → -
        T a g:5@2 → h=0+4-4+4-4@5 g=0+1+2-1+3-3-2+5@6
    """
    check(aggregated(GroupBy(group, compat=True), history(compat=True)), trace)


def test_aggregate_deletes_empty_groups() -> None:
    trace = """
        T a g:1@1 → g=0+1@1
        T b g:2@2 → g=0+1+2@2
        T a g:3@3 → g=0+1+2-1+3@3
        T a h:4@4 → g=0+1+2-1+3-3@4 h=0+4@4
        T a h:4@5 → h=0+4-4+4@5
        T b ~@6   → g=~@6
        T b ~@7   → -
        T c _:1@8 → ~=0+1@8
        T c g:@9  → ~=~@9
        T a g:5@2 → h=~@5 g=0+5@2
    """
    check(aggregated(GroupBy(group), history(compat=False)), trace)


def test_times_of_an_aggregate() -> None:
    compat = """
        T a g:1@100 → g=1@100
        T b g:2@50  → g=2@100
        T a h:1@10  → g=1@100 h=1@10
        T a ~@5     → h=0@10
        T b ~@20    → g=0@100
        T b h:1@7   → h=1@10
    """
    default = """
        T a g:1@100 → g=1@100
        T b g:2@50  → g=2@100
        T a h:1@10  → g=1@100 h=1@10
        T a ~@5     → h=~@10
        T b ~@20    → g=~@100
        T b h:1@7   → h=1@7
    """
    check(aggregated(GroupBy(group, compat=True), Aggregate.count(compat=True)), compat)
    check(aggregated(GroupBy(group), Aggregate.count(keep_empty=True)), compat)
    check(aggregated(GroupBy(group), Aggregate.count()), default)


def minus(aggregate: str, item: str) -> str | None:
    return None if aggregate == item else subtracted(aggregate, item)


@both_modes
def test_a_subtractor_that_returns_nothing_deletes_the_group(compat: bool) -> None:
    """A row may still count in it, but then there is no aggregate to subtract it from."""
    subtracted_from = []
    reduction = Aggregate.reduce(added, lambda aggregate, _: subtracted_from.append(aggregate), compat=compat)
    trace = """
        T a g:1@5 → g=1@5
        T b g:2@6 → g=1+2@6
        T a ~@7   → g=~@7
        T b ~@3   → g=~@3
        T c g:4@2 → g=4@2
        T c g:5@9 → g=5@9
    """
    check(aggregated(GroupBy(group, compat=compat), reduction), trace)
    assert subtracted_from == ["1+2", "4"]


@both_modes
def test_the_initializer_runs_again_where_the_subtractor_left_nothing(compat: bool) -> None:
    aggregate = Aggregate(
        lambda: "0",
        lambda _, item, old: added(old, item),
        lambda _key, _item, _aggregate: None,
        compat=compat,
    )
    trace = """
        T a g:1@9 → g=0+1@9
        T a g:2@3 → g=0+2@9
    """
    check(aggregated(GroupBy(group, compat=compat), aggregate), trace)


def test_an_aggregator_is_told_the_group() -> None:
    aggregate = Aggregate(
        str,
        lambda key, item, text: f"{text}{key}+{item} ",
        lambda key, item, text: f"{text}{key}-{item} ",
    )
    assert aggregate.step([("g", "a", None, 1)]) == [("g", "g+a ", 1)]
    assert aggregate.step([("g", "b", "a", 1)]) == [("g", "g+a g-a g+b ", 1)]


def test_aggregator_refuses_null_groups_in_compat() -> None:
    assert Aggregate.count().step([(None, "a", None, 1)]) == [(None, 1, 1)]
    with pytest.raises(ValueError, match="None is null"):
        Aggregate.count(compat=True).step([(None, "a", None, 1)])


# Steps.


def test_a_group_emits_once_a_step() -> None:
    step = [(0, "a", "g:1", 5), (0, "b", "h:2", 7), (0, "c", "g:3", 4)]
    default, compat = history(compat=False), history(compat=True)
    assert default.step(GroupBy(group).step(step)) == [("g", "0+1+3", 5), ("h", "0+2", 7)]
    assert compat.step(GroupBy(group, compat=True).step(step)) == [
        ("g", "0+1", 5),
        ("h", "0+2", 7),
        ("g", "0+1+3", 5),
    ]


def test_rows_that_change_places_leave_no_group_empty() -> None:
    groups, aggregate = GroupBy(group), history(compat=False)
    aggregate.step(groups.step([(0, "a", "g:1", 5), (0, "b", "h:2", 5)]))
    step = [(0, "a", "h:1", 3), (0, "b", "g:2", 7)]
    assert aggregate.step(groups.step(step)) == [("g", "0+1-1+2", 7), ("h", "0+2+1-2", 7)]


def test_a_group_that_comes_back_in_one_step_keeps_its_time() -> None:
    groups, aggregate = GroupBy(group), history(compat=False)
    aggregate.step(groups.step([(0, "a", "g:1", 9)]))
    assert aggregate.step(groups.step([(0, "a", None, 1), (0, "b", "g:2", 2)])) == [("g", "0+1-1+2", 9)]
    assert aggregate.step(groups.step([(0, "b", None, 1)])) == [("g", None, 9)]
    assert aggregate.step(groups.step([(0, "b", "g:3", 1)])) == [("g", "0+3", 1)]


def test_a_row_that_comes_and_goes_in_one_step_says_nothing() -> None:
    assert history(compat=False).step(GroupBy(group).step([(0, "a", "g:1", 1), (0, "a", None, 2)])) == []


def test_a_group_after_a_step_is_the_sum_of_its_rows() -> None:
    """A moved row and an updated one, in one step, over several groups."""
    groups = GroupBy(group)
    total = Aggregate(
        lambda: 0, lambda _, item, sum_: sum_ + int(item), lambda _, item, sum_: sum_ - int(item)
    )
    kept: dict[str, int | None] = defaultdict(int)
    for step in (
        [(0, "a", "g:1", 1), (0, "b", "g:2", 1), (0, "c", "h:4", 1)],
        [(0, "a", "h:1", 2), (0, "c", "g:5", 2)],
        [(0, "b", None, 3), (0, "c", None, 3), (0, "a", "g:8", 3)],
    ):
        kept |= {out.key: out.value for out in total.step(groups.step(step))}
    assert kept == {"g": 8, "h": None}


# Aggregates of streams.


@both_modes
def test_stream_aggregate_has_the_latest_time(compat: bool) -> None:
    stream = StreamAggregate(lambda: "0", lambda _, item, aggregate: added(aggregate, item), compat=compat)
    trace = """
        S g 1@5 → g=0+1@5
        S g 2@3 → g=0+1+2@5
        S h 3@2 → h=0+3@2
        S g ~@9 → -
        S g 2@7 → g=0+1+2+2@7
    """
    check(single(stream), trace)
    assert stream.dropped == 1


def test_stream_aggregate_drops_null_keys_in_compat_and_counts_them() -> None:
    default, compat = StreamAggregate.count(), StreamAggregate.count(compat=True)
    assert default.change(0, None, "a", 1) == [(None, 1, 1)]
    assert compat.change(0, None, "a", 1) == compat.change(0, ("x", None), "a", 1) == []
    assert (default.dropped, compat.dropped) == (0, 2)


def test_stream_aggregate_emits_a_key_once_a_step() -> None:
    step = [(0, "g", "1", 5), (0, "h", "2", 1), (0, "g", "3", 4)]
    assert StreamAggregate.reduce(added).step(step) == [("g", "1+3", 5), ("h", "2", 1)]
    compat = StreamAggregate.reduce(added, compat=True)
    assert compat.step(step) == [("g", "1", 5), ("h", "2", 1), ("g", "1+3", 5)]


@both_modes
def test_stream_aggregate_may_delete_itself(compat: bool) -> None:
    pairs = StreamAggregate.reduce(lambda _aggregate, _item: None, compat=compat)
    check(single(pairs), "S g 1@5 → g=1@5 \n S g 2@3 → g=~@5 \n S g 3@1 → g=3@1")
