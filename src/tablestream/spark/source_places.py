"""The places of a query in its sources, and how another generation of its checkpoint gets them.

Spark finds a source's place in ``offsets/<micro-batch>``, where each line is a source, and what else it knows of it in
``sources/<number>``. Both are copied as files. To read logs again, those of files and Delta tables are understood.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from tablestream.base.calling import user_line
from tablestream.connectors.file_log import directories_of, files_read, files_there
from tablestream.errors import StateError
from tablestream.spark.checkpoint_files import CheckpointFiles
from tablestream.spark.session import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tablestream.planner.evolution import Facts

#: What Spark writes for a source of which it has no place yet.
_NOWHERE = "-"
#: The form of ``offsets/<micro-batch>``: this line, one with settings, and one for each source.
_FORMAT, _HEAD = "v1", 2
#: What the place in a Delta table has.
_DELTA = '"reservoirVersion"'
#: How many files an error names.
_SHOWN = 3


@dataclass(frozen=True)
class Moves:
    """Which stream of the new plan is which one of the old plan.

    `one_stream_each`: whether no two tables of the new plan read the same data frame.
    """

    old: Facts
    new: Facts
    one_stream_each: bool

    def of(self, streams: int, checkpoint: str) -> list[int | None]:
        """For each stream of the new plan its number among those of the old one; None if that did not have it."""
        before, now, tables = self.old.positions, self.new.positions, self.new.sources
        # A table may read several streams, and several tables one.
        if before == now and set(now) <= tables.keys():
            return list(range(streams))
        if streams != len(before) or not self.one_stream_each:
            raise StateError(
                f"The checkpoint {checkpoint} has {streams} places in streams, and its plan reads {len(before)}:"
                f" {', '.join(before)}. So it is not clear which is whose, and the new plan reads others:"
                f" {', '.join(now)}.",
                hint="A table must read one stream, and no other table the same data frame: read it once for each.",
                where=user_line(),
            )
        numbers = {name: number for number, name in enumerate(before)}
        # The rows of a bootstrap= have entered. Spark would look for their files, which are in the old generation.
        return [numbers.get(name) if name in tables else None for name in now]


def take_places(
    spark: SparkSession, checkpoint: str, micro_batch: int, new: str, moves: Moves, *, read_again: bool
) -> None:
    """Give the checkpoint `new` the places that another one has after a micro-batch.

    `read_again`: `new` has not run, and Spark will read, as its first micro-batch, all from where the other one began.
    Otherwise `new` has run, and its places are replaced.
    """
    old_files, files = (CheckpointFiles.seen_by(spark, one) for one in (checkpoint, new))
    lines = _lines(old_files.read(f"offsets/{micro_batch}"), checkpoint)
    found = moves.of(len(lines) - _HEAD, checkpoint)
    files.remove("sources")
    for number, before in enumerate(found):
        if before is not None:
            old_files.copy(f"sources/{before}", files, f"sources/{number}")
    if not read_again:
        head = files.read("offsets/0").split("\n")[:_HEAD]
    else:
        for before in found:
            if before is not None and lines[_HEAD + before] != _NOWHERE:
                _check_files(spark, checkpoint, before, json.loads(lines[_HEAD + before]))
        settings = json.loads(lines[1])
        settings["conf"] |= {PARTITIONS: spark.conf.get(PARTITIONS)}
        head = [_FORMAT, json.dumps(settings)]
    places = (_NOWHERE if before is None else lines[_HEAD + before] for before in found)
    files.replace("offsets/0", "\n".join([*head, *places]))


def begun_elsewhere(
    spark: SparkSession, checkpoint: str, micro_batch: int, positions: Sequence[str]
) -> set[str]:
    """The sources that Spark would not read again from where the query began: Delta tables.

    Without ``startingVersion``, which nobody can see here, Spark would take a snapshot of nearly the last version for
    all that was read.
    """
    text = CheckpointFiles.seen_by(spark, checkpoint).read(f"offsets/{micro_batch}")
    are_delta = [_DELTA in one for one in _lines(text, checkpoint)[_HEAD:]]
    if len(are_delta) != len(positions):  # a table may read several streams
        return set(positions) if any(are_delta) else set()
    return set(compress(positions, are_delta))


def _check_files(spark: SparkSession, checkpoint: str, number: int, offset: Any) -> None:
    """Refuse to read a log again that has lost files, or has others: Spark would not notice. Other sources do."""
    read = files_read(spark, checkpoint, number, offset) or {}
    there = (files_there(spark, directories_of(read)) or {}) if read else {}
    other = sorted(path for path, modified in read.items() if there.get(path) != modified)
    if other:
        shown = ", ".join(other[:_SHOWN])
        raise StateError(
            f"A log cannot be read again: {len(other)} of its files that the query has read are gone or changed, such"
            f" as {shown}.",
            hint="Bring them back; or keep the sources as they are, without refill=True.",
            where=user_line(),
        )


def _lines(text: str, checkpoint: str) -> list[str]:
    """The lines of what Spark has written about a micro-batch."""
    lines = text.rstrip("\n").split("\n")
    if lines[0] != _FORMAT or len(lines) < _HEAD or not isinstance(json.loads(lines[1]), dict):
        raise StateError(
            f"Spark has written the places in the sources of {checkpoint} in a form {lines[0]!r} that is"
            " not known here.",
            hint="Use the version of Spark with which the query ran, or start the new plan with a new checkpoint.",
            where=user_line(),
        )
    return lines
