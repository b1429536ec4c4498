"""Change logs as files, and plans run over them: what the tests of this folder share."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tablestream as ts
from tablestream.metrics.query_metrics import fields_of
from tablestream.operators.reasons import LATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tablestream.spark.requests import OutputRequest

#: Modification times count from here, a second a file.
START = 1_700_000_000
ALL = {"availableNow": True}


@dataclass
class ChangeLog:
    """A directory of JSON files: one micro-batch each, with a modification time of its own."""

    path: Path
    schema: str
    files: int = 0

    def __post_init__(self) -> None:
        """Make the directory."""
        self.path.mkdir(parents=True, exist_ok=True)

    def add(self, *pieces: Sequence[Mapping[str, Any] | str]) -> None:
        """Write files; a record is a mapping, or the text of its line."""
        for piece in pieces:
            lines = [one if isinstance(one, str) else json.dumps(one) for one in piece]
            hidden = self.path / f".{self.files}"
            hidden.write_text("".join(f"{line}\n" for line in lines))
            os.utime(hidden, (START + self.files, START + self.files))
            hidden.rename(self.path / f"{self.files:04d}.json")
            self.files += 1

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        """Read it as a stream, a file a micro-batch."""
        return ts.from_files(spark, self.path, "json", self.schema, **{"max_files_per_trigger": 1} | options)


def run(*outputs: OutputRequest, checkpoint: Path, **options: Any) -> Counter[str]:
    """Work off all that is there, and return what was counted on the way."""
    query = ts.start(*outputs, checkpoint=str(checkpoint), trigger=ALL, **options)
    query.awaitTermination()
    return counted(query)


def counted(query: StreamingQuery) -> Counter[str]:
    """Add up the counts that a query's progress shows."""
    counts: Counter[str] = Counter()
    for progress in query.recentProgress:
        if "tablestream" in progress.observedMetrics:
            counts.update(fields_of(progress.observedMetrics["tablestream"]))
    return counts


def dropped(counts: Mapping[str, int], *operators: str) -> int:
    """Add up what some operators and tables dropped, whatever the reason; what is only late goes on."""
    places = {one: count for one, count in counts.items() if ": " in one and not one.endswith(f": {LATE}")}
    return sum(count for place, count in places.items() if place.split(": ")[0].split("/")[0] in operators)
