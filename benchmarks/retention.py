"""A year of days with a table that keeps a week: ``python -m benchmarks.retention docs/pictures`` draws its state.

Each day has new orders, and some of the day before are changed or deleted. The rounds run without Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tablestream.pictures.picture import ARROWS, EDGE, PAGE, QUIET, TEXT
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tests.plans.engine import Engine, Output
from tests.plans.tables import Record, kept, materialized, source

DAYS, WEEK = 365, 7
#: Of each day: new orders, and those of the day before that are changed, and deleted.
_NEW, _CHANGED, _DELETED = 100, 10, 5
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 280, 64, 40, 36
#: What the names of the lines need behind them.
_NAMES = 120
_FONT = "system-ui, 'DejaVu Sans', Arial, sans-serif"
_TITLE = "Rows in the state by day, of a table that gets 100 rows a day"


@dataclass(frozen=True)
class State:
    """What all runs of the state have after each day."""

    rows: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)


def year(keep_days: int | None, days: int = DAYS) -> State:
    """Run a table through a year; without `keep_days` it keeps all its rows."""
    orders, state = source("A"), State()
    table = orders if keep_days is None else kept(orders, keep_days)
    engine = Engine([Output(materialized(table))], shards=1)
    for day in range(days):
        log = [Record(orders, f"{day} {number}", f"x@{day}", day) for number in range(_NEW)]
        log += [Record(orders, f"{day - 1} {number}", f"y@{day}", day) for number in range(_CHANGED)]
        log += [Record(orders, f"{day - 1} {_NEW - 1 - number}", None, day) for number in range(_DELETED)]
        engine.steps(log)
        runs = [
            run
            for work in engine.plan.rounds
            for spec in work.traces
            for run in ShardState(engine.stores[work.number, 0], NoCache(), work.traces, work.fingerprint)
            .trace(spec.name)
            .runs
        ]
        state.rows.append(sum(one.rows for one in runs))
        state.size_bytes.append(sum(one.size_bytes for one in runs))
    return state


def svg(lines: dict[str, list[int]]) -> str:
    """Draw the rows of each day as lines."""
    return "\n".join(_elements(lines)) + "\n"


def _elements(lines: dict[str, list[int]]) -> Iterator[str]:
    most = max(max(rows) for rows in lines.values())
    across = (_WIDTH - _LEFT - _NAMES) / (max(map(len, lines.values())) - 1)
    down = (_HEIGHT - _TOP - _BOTTOM) / most
    words = " ".join(f"{name}: {rows[-1]:,} rows on day {len(rows)}." for name, rows in lines.items())
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
        f' height="{_HEIGHT}" font-family="{_FONT}" font-size="13" role="img">'
    )
    yield f"<title>{escape(_TITLE)}</title>"
    yield f"<desc>{escape(words)}</desc>"
    yield (
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8" fill="{PAGE}" stroke="{EDGE}"/>'
    )
    yield f'<text x="16" y="26" fill="{QUIET}">{escape(_TITLE)}</text>'
    floor = _HEIGHT - _BOTTOM
    for rows in range(0, most + 1, 10_000):
        y = floor - rows * down
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _NAMES}" y2="{y:.1f}" stroke="{EDGE}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" fill="{QUIET}" text-anchor="end">{rows:,}</text>'
    for week in range(0, DAYS // WEEK + 1, 13):
        x = _LEFT + week * WEEK * across
        yield f'<text x="{x:.1f}" y="{floor + 20}" fill="{QUIET}" text-anchor="middle">week {week}</text>'
    for (name, counts), ink in zip(lines.items(), ARROWS, strict=False):
        points = " ".join(
            f"{_LEFT + day * across:.1f},{floor - one * down:.1f}" for day, one in enumerate(counts)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{ink}" stroke-width="2"/>'
        y = floor - counts[-1] * down
        yield f'<text x="{_WIDTH - _NAMES + 6}" y="{y + 4:.1f}" fill="{TEXT}">{escape(name)}</text>'
    yield "</svg>"


def main(directory: Path) -> None:
    """Run both tables, draw the picture, and print what they have at the end."""
    states = {"keeps all": year(None), 'keep("7 days")': year(WEEK)}
    for name, state in states.items():
        print(
            f"{name}: {state.rows[-1]:,} rows and {state.size_bytes[-1]:,} bytes at the end,"
            f" at most {max(state.rows[:60]):,} rows in the first 60 days, {max(state.rows[60:]):,} afterwards"
        )
    (directory / "retention.svg").write_text(
        svg({name: one.rows for name, one in states.items()}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
