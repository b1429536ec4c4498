"""What the benchmark of a hot foreign key runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hot_key import main, measure
from benchmarks.subjects import two_logs

if TYPE_CHECKING:
    import pytest


def test_a_spread_join_gives_as_many_answers() -> None:
    joins = [measure(4000, 0.5, spread, 4) for spread in (None, 2, 4)]
    assert len({join.answers for join in joins}) == 1
    assert joins[0].answers > 2000
    assert all(len(join.seconds[2]) == 4 for join in joins)


def test_a_share_of_the_left_rows_points_at_one() -> None:
    foreign = two_logs(11_000, 0.5)[1]["_f0"]
    assert 0.45 < (foreign == 0).mean() < 0.55  # type: ignore[operator]


def test_the_program_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rows", "2000", "--shards", "4", "--spreads", "2"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert len(lines) == 3
