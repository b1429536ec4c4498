"""The operators' benchmark: what comes to them is what it says, and so is what they give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.operators import Shard, grouped, held, main, rate, size_of_versions
from benchmarks.subjects import Buffered, Grouped, Subject, buffers, large_group, small_groups, subjects
from tablestream.state.changes import LIVE

if TYPE_CHECKING:
    from benchmarks.subjects import Log

SUBJECTS = {subject.name: subject for subject in subjects()}


def results(log: Log, subject: Subject) -> int:
    return Shard(subject.rounds).run(log)


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_message_is_worked_off_however_they_are_cut(name: str) -> None:
    one, three = (rate(SUBJECTS[name], 2000, pieces, repeats=1) for pieces in (1, 3))
    assert one.rows_in == three.rows_in == 2000
    assert one.rows_out == three.rows_out > 0
    assert one.rows_per_s > 0


def test_a_join_answers_its_rows_and_fans_out() -> None:
    """By counting: each item change is answered once, each customer change once an item that points at it then."""
    log = SUBJECTS["foreign-key join"].log(3000)
    changes = [(time, "left", key, to) for time, key, to in log[1].select("_t", "_k0", "_f0").iter_rows()]
    changes += [(time, "right", None, to) for time, to in log[2].select("_t", "_f0").iter_rows()]
    points_at: dict[int | None, int] = {}
    wanted = 0
    for _, side, key, to in sorted(changes, key=lambda change: change[0]):
        if side == "left":
            points_at[key] = to
        wanted += 1 if side == "left" else sum(other == to for other in points_at.values())
    assert results(log, SUBJECTS["foreign-key join"]) == wanted


def test_a_group_is_told_of_a_row_that_moves_twice() -> None:
    log = SUBJECTS["groups: count, sum of integers"].log(1000)
    before: dict[int, int] = {}
    wanted = 0
    for key, group in log[1].select("_k0", "_f0").iter_rows():
        wanted += 1 + (key in before and before[key] != group)
        before[key] = group
    for name in ("groups: count, sum of integers", "groups: Python functions"):
        assert results(log, SUBJECTS[name]) == wanted


def test_the_state_of_versions_keeps_within_its_targets() -> None:
    size = size_of_versions(keys=100, inside=10, gone=60)
    assert 1 <= size.merged_rows <= 1.5
    assert size.merged_bytes <= 1.5
    assert size.merged_rows <= size.largest_rows <= 2
    assert size.largest_bytes <= 2


@pytest.mark.parametrize("buffered", buffers(500), ids=lambda buffered: buffered.name)
def test_a_buffer_lets_go_what_comes(buffered: Buffered) -> None:
    found = held(buffered, 500, 10, 4)
    assert found.rows_out == 10
    assert found.median_ms > 0


@pytest.mark.parametrize("groups", [*large_group(300), *small_groups(60, 5)], ids=lambda groups: groups.name)
def test_a_group_is_told_of_every_change(groups: Grouped) -> None:
    found = grouped(groups, 10, 4)
    assert found.rows == 300
    assert found.rows_out == (_ranks_that_change(groups) if "top" in groups.name else 10)


def _ranks_that_change(groups: Grouped) -> float:
    """By sorting: how many of each group's three largest values differ after a change, in a micro-batch."""
    members: dict[int, dict[int, int]] = {}
    places: dict[int, int] = {}
    counts = []
    for number in range(5):
        differ = 0
        for _, key, group, value, is_live in (
            groups.log(number, 10)[1].select("_t", "_k0", "_f0", "v", LIVE).sort("_t").iter_rows()
        ):
            touched = {places.get(key, group), group}
            before = {one: _largest(members.get(one, {})) for one in touched}
            members.get(places.get(key, group), {}).pop(key, None)
            places[key] = group
            if is_live:
                members.setdefault(group, {})[key] = value["c0"]
            after = {one: _largest(members.get(one, {})) for one in touched}
            differ += sum(
                was != now for one in touched for was, now in zip(before[one], after[one], strict=True)
            )
        counts.append(differ)
    return sum(counts[1:]) / 4


def _largest(rows: dict[int, int]) -> list[int | None]:
    return (sorted(rows.values(), reverse=True) + [None] * 3)[:3]


@pytest.mark.exhaustive
def test_the_command_prints_rates_ratios_and_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--rows 300 --micro-batches 2 --repeats 1 --keys 5 --inside 4 --gone 10 --waiting 50"
    main(f"{options} --changes 5 --buffered 2 --group-rows 50".split())
    printed = capsys.readouterr().out
    for name in SUBJECTS:
        assert f"│ {name} " in printed
    assert "1.00 │" in printed
    assert "at any time" in printed
    names = [one.name for one in buffers(50)]
    names += [one.name for one in (*large_group(50), *small_groups(5, 5))]
    for name in names:
        assert f"│ {name} " in printed
