"""Where a query is: the micro-batches that its checkpoint has planned and completed, and their proofs.

Spark writes ``offsets/<number>`` once, when it plans a micro-batch, and ``commits/<number>`` when it is complete. A
micro-batch that is repeated after a restart has the offsets that were planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.connectors.marks import Moment, proof_of
from tablestream.connectors.small_texts import documents, numbered_names, small_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tablestream.spark.generations import Generation


def id_of_query(spark: SparkSession, checkpoint: str) -> str | None:
    """Read a query's id, which lives as long as its checkpoint. None if no query was started yet."""
    return next((str(one["id"]) for one in documents(spark, checkpoint, "metadata")), None)


def next_moment(spark: SparkSession, place: Generation, query_id: str | None) -> Moment:
    """Return the micro-batch with which a query goes on, or begins if there is none yet."""
    if query_id is None:
        return Moment(0, "")
    done = numbered_names(spark, f"{place.path}/commits")
    return moment_of(spark, place, query_id, done[-1] + 1 if done else 0)


def moment_of(spark: SparkSession, place: Generation, query_id: str, number: int) -> Moment:
    """Return a micro-batch, to which Spark gives a number, with its proofs."""
    proof, before = (_proof(spark, place, one) for one in (number, number - 1))
    return Moment(place.first + number, query_id, proof, before, _rebuilt(place, number))


def following(spark: SparkSession, place: Generation, known: Moment) -> Moment:
    """Return the micro-batch behind another one, without reading that one's proof again."""
    number = known.number + 1
    own = number - place.first
    return Moment(number, known.query_id, _proof(spark, place, own), known.proof, _rebuilt(place, own))


def _rebuilt(place: Generation, number: int) -> frozenset[str]:
    """The other proofs of the micro-batch before, if that is the first one of a generation."""
    return frozenset([place.name, *place.earlier]) - {""} if number == 1 else frozenset()


def _proof(spark: SparkSession, place: Generation, number: int) -> str:
    if number == 0 and place.proof:
        return place.proof
    return proof_of(small_lines(spark, f"{place.path}/offsets", str(number))) if number >= 0 else ""
