"""A query that evolves in a process of its own, which stands still at a named point until it is killed.

``python -m tests.faults.evolver POINT [refill]`` lets the query of `tests.spark.test_evolve` in the current directory
evolve, and ``... POINT life CHANGE...`` that of `tests.kafka.life`. The file ``POINT`` tells that the point is reached.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import tablestream as ts
from benchmarks.ten_changes import CHANGES
from tablestream.connectors.delta.by_delta_rs import RsTable
from tablestream.connectors.kafka.sink import KafkaSink
from tablestream.connectors.postgres import sink as postgres
from tablestream.spark import evolve as evolving
from tablestream.spark import generations, runner
from tablestream.spark.checkpoint_files import CheckpointFiles
from tests.conftest import DELTA_SETTINGS
from tests.kafka.life import Life
from tests.spark.deployment import configured
from tests.spark.test_evolve import Shop

if TYPE_CHECKING:
    from collections.abc import Callable

#: The targets are written, and the first micro-batch of the generation is not committed; it is committed; all is done
#: but the switch; the generation is the current one.
WRITTEN, COMMITTED, PLACED, SWITCHED = ("written", "committed", "placed", "switched")
#: The rows of the old state are in the new generation, for Spark to read; the state is built, and nothing is written to
#: a topic; a transaction of PostgreSQL has all rows, and is not committed; a Delta table has its new columns, and not
#: the rows; all targets but a table of PostgreSQL are written.
ROWS, BUILT, OPEN, WIDENED, HALF = ("rows", "built", "open", "widened", "half")
#: The generation has copies of what Spark knows of sources, and not their places; the entry that makes it the current
#: one is written, under a hidden name; the next micro-batch is written to all targets, and not committed.
COPIED, ENTERED, LATER = ("copied", "entered", "later")
#: Longer than a test takes.
SECONDS = 3600

#: Whose call stands still, and whether before it or behind it.
PLACES: dict[str, tuple[Any, str, bool]] = {
    ROWS: (evolving._Change, "_rows", False),
    BUILT: (KafkaSink, "write", True),
    OPEN: (postgres, "_merge", False),
    WIDENED: (RsTable, "add_columns", False),
    HALF: (postgres.PostgresSink, "_commit", True),
    WRITTEN: (evolving, "write_outputs", False),
    COMMITTED: (evolving._Change, "_take_places", True),
    COPIED: (CheckpointFiles, "replace", True),
    PLACED: (generations, "make_current", True),
    ENTERED: (Path, "rename", True),
    SWITCHED: (generations, "make_current", False),
    LATER: (runner, "write_outputs", False),
}


def stand_still(point: str) -> None:
    """Let the process stand still before or behind a call."""
    owner, name, is_before = PLACES[point]
    call: Callable[..., Any] = getattr(owner, name)

    def standing(*given: Any, **named: Any) -> Any:
        is_other = point == ENTERED and given[0].parent.name != generations._ENTRIES
        if is_other or not is_before:
            done = call(*given, **named)
            if is_other:
                return done
        Path(point).touch()
        time.sleep(SECONDS)
        return None

    setattr(owner, name, standing)


def main(point: str, what: str = "", *changes: str) -> None:
    """Let the query evolve; or, for a later point, run with the plan that it has."""
    here = Path.cwd()
    stand_still(point)
    builder = SparkSession.builder.master("local[2]")
    if what == "life":
        life = Life.at(configured(builder, DELTA_SETTINGS, here / f"scratch-{point}"), here)
        if point == LATER:
            life.run(*changes)
            return
        shards = CHANGES[changes[-1]].shards
        ts.evolve(*life.requests(life.outputs(*changes)), checkpoint=life.checkpoint, shards=shards)
        return
    shop = Shop(configured(builder, {}, here / f"scratch-{point}"), here)
    ts.evolve(*shop.new(), checkpoint=shop.checkpoint, refill=bool(what))


if __name__ == "__main__":
    main(*sys.argv[1:])
