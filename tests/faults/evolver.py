"""A query that evolves in a process of its own, which stands still at a named point until it is killed.

``python -m tests.faults.evolver POINT [refill]`` lets the query of `tests.spark.test_evolve` in the current directory
evolve. The file ``POINT`` tells that the point is reached.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.spark import evolve as evolving
from tablestream.spark import generations
from tests.spark.deployment import configured
from tests.spark.test_evolve import Shop

if TYPE_CHECKING:
    from collections.abc import Callable

#: The targets are written, and the first micro-batch of the generation is not committed; it is committed; all is done
#: but the switch; the generation is the current one.
WRITTEN, COMMITTED, PLACED, SWITCHED = POINTS = ("written", "committed", "placed", "switched")
#: Longer than a test takes.
SECONDS = 3600


def stand_still(point: str) -> None:
    """Let the process stand still before or behind a call."""
    owner, name, is_before = {
        WRITTEN: (evolving, "write_outputs", False),
        COMMITTED: (evolving._Change, "_take_places", True),
        PLACED: (generations, "make_current", True),
        SWITCHED: (generations, "make_current", False),
    }[point]
    call: Callable[..., Any] = getattr(owner, name)

    def standing(*given: Any, **named: Any) -> None:
        if not is_before:
            call(*given, **named)
        Path(point).touch()
        time.sleep(SECONDS)

    setattr(owner, name, standing)


def main(point: str, refill: str = "") -> None:
    """Let the query evolve."""
    here = Path.cwd()
    stand_still(point)
    spark = configured(SparkSession.builder.master("local[2]"), {}, here / f"scratch-{point}")
    shop = Shop(spark, here)
    ts.evolve(*shop.new(), checkpoint=shop.checkpoint, refill=bool(refill))


if __name__ == "__main__":
    main(*sys.argv[1:])
