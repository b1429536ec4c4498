"""A query lives through ten changes and is killed before each, with topics, files, Delta tables and a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tablestream.errors import TargetError
from tests.faults.evolver import (
    BUILT,
    COMMITTED,
    COPIED,
    ENTERED,
    HALF,
    LATER,
    OPEN,
    PLACED,
    ROWS,
    SWITCHED,
    WIDENED,
    WRITTEN,
)
from tests.faults.test_evolving_kills import SECONDS, killed_at
from tests.kafka.life import LIFE, Life, Step, Told, phases

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.topics import Topics
    from tests.postgres.database import Database

#: Of each kind of change, source, target and kill there is one in other files.
pytestmark = pytest.mark.exhaustive

#: Some are written at each point.
TARGETS = {
    "named": "delta", "large": "kafka", "placed": "kafka", "sums": "postgres",
    "by_city": "postgres", "titled": "files", "followed": "kafka",
}  # fmt: skip
#: Two changes at a time, and where the process is killed before they are made.
KILLS = (
    (("an output added", "a filter changed"), (ROWS, BUILT, OPEN)),
    (("a column added", "a group changed"), (WIDENED, HALF)),
    (("a join added", "a column removed"), (WRITTEN, COMMITTED)),
    (("a source added", "other shards"), (COPIED, PLACED)),
    (("a source removed", "an output removed"), (ENTERED, SWITCHED)),
)
SAID = phases(1, len(LIFE) + 1)


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the logs of all plans get."""
    return Told.by(spark, tmp_path_factory.mktemp("told"), SAID)


@pytest.mark.faults
@pytest.mark.timeout(6 * SECONDS)
def test_a_life_of_ten_changes_does_not_show_that_each_was_killed_on_the_way(
    spark: SparkSession,
    topics: Topics,
    database: Database,
    told: Told,
    tmp_path: Path,
) -> None:
    """From topics into topics, files, a Delta table and PostgreSQL: tables as in SQL, unchanged logs to the change."""
    assert sorted(name for names, _ in KILLS for name in names) == sorted(LIFE)
    life = Life(spark, tmp_path, topics, database, TARGETS)
    life.keep()
    life.send(SAID[0])
    life.run(evolvable=True)

    steps: list[tuple[str, ...]] = []
    attempts = 0
    for names, points in KILLS:
        old = [name for step in steps for name in step]
        step = Step(life, told, SAID, [*steps, names])
        life.send(SAID[len(steps) + 1])
        for point in points:
            killed_at(point, life.place, "life", *step.changes)
            assert step.logs() == step.before
            attempts += 1
            if point == BUILT:  # no target is written: the old plan goes on, and then the new one
                between = Step(life, told, SAID, [*steps, ()])
                life.run(*old)
                between.check_later()
                steps.append(())
                step = Step(life, told, SAID, [*steps, names])
                life.send(SAID[len(steps) + 1])
            if point in {HALF, WRITTEN}:  # a table that was brought over fits the old plan no more
                with pytest.raises(TargetError, match="another micro-batch"):
                    life.run(*old)
                assert step.logs() == step.before
        steps.append(names)
        if SWITCHED in points:  # the next start has the new plan
            assert ts.check(*life.requests(step.plan), checkpoint=life.checkpoint).is_same
        else:
            step.evolve()
            attempts += 1
        step.check_evolved()
        life.run(*step.changes)
        step.check_later()
    assert ts.drop_generations(spark, life.checkpoint) == attempts

    # A micro-batch of the last generation comes again: topics have it twice, and say so.
    steps.append(())
    last = Step(life, told, SAID, steps)
    life.send(SAID[len(steps)])
    killed_at(LATER, life.place, "life", *last.changes)
    life.run(*last.changes)
    twice = last.logs()
    life.repeats = True
    assert last.logs() != twice
    last.check_later()
    assert not database.stages()
