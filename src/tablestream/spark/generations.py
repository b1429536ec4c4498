"""Where a query is: the generations of its checkpoint, and the micro-batches that each has planned and completed.

The generations are the checkpoint that it was started with, and those that it has evolved into.

======================================  ===========================================================================
below the checkpoint                    what it is
======================================  ===========================================================================
the directories of Spark                generation 0
``tablestream-generations/<name>``      a later generation: a whole checkpoint of Spark, with the same query id. Each
                                        attempt has a name of its own
``tablestream-generation``              which generation is the current one: each file is an entry, the last counts
======================================  ===========================================================================

An entry is one small file, which appears in one act. Spark numbers the micro-batches of each generation from 0, and
targets count on: the first micro-batch of a generation stands for the last one of the generation before, which the
targets have, with its proof. A target that was written when the query evolved has another proof of it, the attempt's
own: so a target of an attempt that failed fits no generation. If a log is told anew, that micro-batch has a number of
its own, because the log has the one before as well; other targets pass over it.

Spark writes ``offsets/<number>`` once, when it plans a micro-batch, and ``commits/<number>`` when it is complete. A
micro-batch that is repeated after a restart has the offsets that were planned.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tablestream.connectors.marks import Moment, proof_of
from tablestream.connectors.small_texts import documents, numbered_names, small_lines, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GENERATIONS = "tablestream-generations"
_ENTRIES = "tablestream-generation"
#: What generation 0 has in the checkpoint.
FIRST = ("commits", "metadata", "offsets", "sources", "state", "tablestream", "tablestream-bootstrap")


@dataclass(frozen=True)
class Generation:
    """A generation of a query."""

    number: int
    """0 for what `ts.start` began."""
    path: str
    """Its directory."""
    first: int = 0
    """The number that its first micro-batch has in the history of the query."""
    proof: str = ""
    """The proof of that micro-batch in targets that did not change; empty if it is that of its own offsets."""
    name: str = ""
    """The name of its directory, and the proof of that micro-batch in targets that were written then."""
    earlier: tuple[str, ...] = ()
    """The names of the generations before that began with the same micro-batch: nothing was read between."""


def current(spark: SparkSession, checkpoint: str) -> Generation:
    """Return the generation with which a query goes on."""
    entries = documents(spark, f"{checkpoint}/{_ENTRIES}", "part-*")
    last = max(entries, key=lambda one: int(one["number"]), default=None)
    if last is None:
        return Generation(0, checkpoint)
    earlier = tuple(last.get("earlier", ()))
    return Generation(path=_path(checkpoint, last["name"]), **last | {"earlier": earlier})


def next_generation(checkpoint: str, now: Generation, done: Moment, first: int) -> Generation:
    """Return an attempt at the generation behind another one, whose last micro-batch is `done`.

    `first`: the number of the attempt's first micro-batch: that of `done`, or one more.
    """
    name = uuid.uuid4().hex
    earlier = (*now.earlier, now.name) if now.name and now.first == done.number else ()
    return Generation(now.number + 1, _path(checkpoint, name), first, done.proof, name, earlier)


def make_current(spark: SparkSession, checkpoint: str, generation: Generation) -> None:
    """Let a query go on with a generation."""
    entry = {name: value for name, value in asdict(generation).items() if name != "path"}
    write_line(spark, f"{checkpoint}/{_ENTRIES}", json.dumps(entry), mode="append")


def _path(checkpoint: str, name: str) -> str:
    return f"{checkpoint}/{GENERATIONS}/{name}"


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
