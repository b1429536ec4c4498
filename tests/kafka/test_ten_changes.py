"""A query lives through ten changes, one after the other, between topics, Delta tables and a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.life import LIFE, Life, Step, Told, phases

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.topics import Topics
    from tests.postgres.database import Database

TARGETS = {
    "named": "kafka", "large": "files", "placed": "delta", "sums": "postgres",
    "by_city": "postgres", "titled": "kafka", "followed": "delta log",
}  # fmt: skip


def test_a_query_lives_through_ten_changes(
    spark: SparkSession, topics: Topics, database: Database, tmp_path: Path
) -> None:
    """Its tables are what SQL says; its unchanged logs have each change once."""
    said = phases(1, len(LIFE) + 1)
    told = Told.by(spark, tmp_path / "told", said)
    life = Life(spark, tmp_path / "life", topics, database, TARGETS)
    life.keep()
    life.send(said[0])
    life.run(evolvable=True)
    for number in range(1, len(said)):
        step = Step(life, told, said, number)
        life.send(said[number])
        step.evolve()
        step.check_evolved()
        life.run(*step.changes)
        step.check_later()
