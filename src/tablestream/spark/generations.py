"""The generations of a query: the checkpoint that it was started with, and those that it has evolved into.

======================================  ===========================================================================
below the checkpoint                    what it is
======================================  ===========================================================================
the directories of Spark                generation 0
``tablestream-generations/<number>``    a later generation: a whole checkpoint of Spark, with the same query id
``tablestream-generation``              which generation is the current one: each file is an entry, the last counts
======================================  ===========================================================================

An entry is one small file, which appears in one act. Spark numbers the micro-batches of each generation from 0, and
targets count on: the first micro-batch of a generation stands for the last one of the generation before, which the
targets have, with its proof. So a target whose output is the same passes it over.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tablestream.connectors.small_texts import documents, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GENERATIONS = "tablestream-generations"
_ENTRIES = "tablestream-generation"
#: What generation 0 has in the checkpoint.
FIRST = ("commits", "metadata", "offsets", "sources", "state", "tablestream", "tablestream-bootstrap")


@dataclass(frozen=True)
class Generation:
    """A generation of a query.

    Attributes
    ----------
    number
        0 for what `ts.start` began.
    path
        Its directory.
    first
        The number that its first micro-batch has in the history of the query.
    proof
        The proof of that micro-batch; empty if it is that of its own offsets.
    entry
        How many entries there were before.
    """

    number: int
    path: str
    first: int = 0
    proof: str = ""
    entry: int = 0


def current(spark: SparkSession, checkpoint: str) -> Generation:
    """Return the generation with which a query goes on."""
    entries = documents(spark, f"{checkpoint}/{_ENTRIES}", "part-*")
    last = max(entries, key=lambda one: int(one["entry"]), default=None)
    return Generation(0, checkpoint) if last is None else _generation(checkpoint, last)


def following(checkpoint: str, now: Generation, done: int, proof: str) -> Generation:
    """Return the generation behind another one, whose last complete micro-batch has a number and a proof."""
    number, entry = now.number + 1, now.entry + 1
    return Generation(number, _path(checkpoint, number), done, proof, entry)


def make_current(spark: SparkSession, checkpoint: str, generation: Generation) -> None:
    """Let a query go on with a generation."""
    entry = {name: value for name, value in asdict(generation).items() if name != "path"}
    write_line(spark, f"{checkpoint}/{_ENTRIES}", json.dumps(entry), mode="append")


def _generation(checkpoint: str, entry: dict[str, Any]) -> Generation:
    return Generation(path=_path(checkpoint, entry["number"]), **entry)


def _path(checkpoint: str, number: int) -> str:
    return f"{checkpoint}/{GENERATIONS}/{number}" if number else checkpoint
