"""Where a query is: the micro-batches that its checkpoint has planned and completed, and their proofs.

Spark writes ``offsets/<number>`` once, when it plans a micro-batch, and ``commits/<number>`` when it is complete. A
micro-batch that is repeated after a restart has the offsets that were planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.connectors.marks import Moment, proof_of
from tablestream.connectors.small_texts import numbered_names, small_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def next_moment(spark: SparkSession, checkpoint: str, query_id: str | None) -> Moment:
    """Return the micro-batch with which a query goes on, or begins if there is none yet."""
    if query_id is None:
        return Moment(0, "")
    done = numbered_names(spark, f"{checkpoint}/commits")
    return moment_of(spark, checkpoint, query_id, done[-1] + 1 if done else 0)


def moment_of(spark: SparkSession, checkpoint: str, query_id: str, number: int) -> Moment:
    """Return a micro-batch with its proofs."""
    return Moment(number, query_id, _proof(spark, checkpoint, number), _proof(spark, checkpoint, number - 1))


def following(spark: SparkSession, checkpoint: str, known: Moment) -> Moment:
    """Return the micro-batch behind another one, without reading that one's proof again."""
    number = known.number + 1
    return Moment(number, known.query_id, _proof(spark, checkpoint, number), known.proof)


def _proof(spark: SparkSession, checkpoint: str, number: int) -> str:
    return proof_of(small_lines(spark, f"{checkpoint}/offsets", str(number))) if number >= 0 else ""
