"""The directories of a log of files: one a micro-batch, which appears in one act, with the mark that proves what it is.

=======================  ============================================================================================
below the log
=======================  ============================================================================================
``micro_batch=<n>``      the files of a micro-batch, which readers see, and ``_tablestream_mark`` with its proof
``_tablestream_tries``   what attempts write, each into a directory of its own; readers pass over it
``_tablestream_owner``   the id of the query whose log it is
=======================  ============================================================================================

On this machine an attempt's directory is complete, with its mark, before it gets its name by one rename: of two
processes one renames, the other finds the micro-batch and drops its own. Elsewhere only Spark has the file system, and
has no rename: the files are written in their place and then looked at; if two jobs wrote them, the micro-batch fails
and is written again. The mark comes last.

A log that is told anew, because its output has another meaning, gets all rows, and deletes of keys that are gone. Which
keys its readers know is in the log itself: those whose last change is no delete.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameWriter

from tablestream.connectors.marks import Mark, Moment
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, ORDER, TIMESTAMP, quoted
from tablestream.connectors.small_texts import lines_here, numbered_names, small_lines, write_here, write_line
from tablestream.connectors.spark_place import on_this_machine
from tablestream.errors import TargetError

#: The name of a log's directories, and of the column that readers make of it.
MICRO_BATCH = "micro_batch"
MARK = "_tablestream_mark"
TRIES = "_tablestream_tries"
#: Of a micro-batch without a place in a history.
_NO_PROOF = "-"
#: The part of a file's name that is the same for all files of one of Spark's jobs.
_JOB = re.compile(r"part-\d+-([0-9a-f-]{36})")


@dataclass(frozen=True)
class FileBatches:
    """The micro-batches of a log."""

    spark: SparkSession
    path: str

    @cached_property
    def here(self) -> Path | None:
        """Where the log is on this machine."""
        return on_this_machine(self.spark, self.path)

    def numbers(self) -> list[int]:
        """The micro-batches that have a directory."""
        return numbered_names(self.spark, self.path, f"{MICRO_BATCH}=")

    def mark(self, number: int) -> Mark | None:
        """The mark of a micro-batch; None if it is not there, is not complete, or is an older version's."""
        place, pattern = f"{MICRO_BATCH}={number}/{MARK}", "part-*"
        if self.here is None:
            lines = small_lines(self.spark, f"{self.path}/{place}", pattern)
        else:
            lines = lines_here(self.here / place, pattern)
        return Mark(number, lines[0].removeprefix(_NO_PROOF)) if lines else None

    def last_mark(self, moment: Moment, *, starting: bool) -> Mark | None:
        """The last mark. A start looks at all directories; later, those of a micro-batch and of the one before tell.

        Directories of older versions have no mark, and their last one is not known to be complete.
        """
        numbers = self.numbers() if starting else []
        if not numbers or numbers[-1] <= moment.number:
            found = self.mark(moment.number) or self.mark(moment.number - 1)
            if found is not None:
                return found
        numbers = numbers or self.numbers()
        if not numbers:
            return None
        last = numbers[-1]
        is_repeated = last == moment.number and moment.proof
        return Mark(last - 1) if is_repeated else self.mark(last) or Mark(last)

    def write(self, writer: DataFrameWriter, mark: Mark) -> None:
        """Write a micro-batch, or keep the one that another process has written meanwhile."""
        if self.here is None:
            self._write_in_place(writer, mark)
            return
        attempt = attempt_in(self.here, mark.micro_batch, uuid.uuid4().hex)
        self._clean(mark.micro_batch)
        writer.save(f"{self.path}/{TRIES}/{attempt.name}")
        self._finish(attempt, mark)

    def finish(self, attempt: Path, files: Collection[str], mark: Mark) -> None:
        """Show what the workers wrote into the directory of an attempt, without files of tasks that failed.

        Such a task may still write.
        """
        self._clean(mark.micro_batch)
        complete = attempt.with_name(f"{attempt.name}-complete")
        complete.mkdir(exist_ok=True)
        for name in files:
            (attempt / name).rename(complete / name)
        self._finish(complete, mark)
        shutil.rmtree(attempt, ignore_errors=True)

    def _clean(self, number: int) -> None:
        """Remove what attempts at other micro-batches left."""
        assert self.here is not None  # noqa: S101 - who calls has looked
        for left in (self.here / TRIES).glob("*-*"):
            if left.name.partition("-")[0] != str(number):
                shutil.rmtree(left, ignore_errors=True)

    def _finish(self, attempt: Path, mark: Mark) -> None:
        """Mark a complete attempt, and give it its name."""
        assert self.here is not None  # noqa: S101 - who calls has looked
        write_here(attempt / MARK, mark.proof or _NO_PROOF)
        self._show(attempt, self.here / f"{MICRO_BATCH}={mark.micro_batch}", mark)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove micro-batches, the last one first; `TargetError` where only Spark has the file system, and cannot."""
        if self.here is None and numbers:
            raise TargetError(
                f"The log {self.path} has the micro-batches {numbers[0]} to {numbers[-1]}, which the checkpoint does"
                " not have.",
                hint=f"Delete their directories {MICRO_BATCH}=..., and start the query again.",
            )
        for number in sorted(numbers, reverse=True):
            assert self.here is not None  # noqa: S101 - see above
            _remove(self.here / f"{MICRO_BATCH}={number}", self.here / TRIES)

    def set_mark(self, mark: Mark) -> None:
        """Mark a micro-batch, whose files may be missing."""
        place = f"{self.path}/{MICRO_BATCH}={mark.micro_batch}/{MARK}"
        write_line(self.spark, place, mark.proof or _NO_PROOF, mode="overwrite")

    def _show(self, attempt: Path, place: Path, mark: Mark) -> None:
        """Give an attempt its name, unless another process did so with its own."""
        try:
            attempt.rename(place)
        except OSError:
            if not place.exists():
                raise
            if not mark.proof or self.mark(mark.micro_batch) != mark:
                _remove(place, attempt.parent)
                attempt.rename(place)
            else:
                shutil.rmtree(attempt, ignore_errors=True)

    def _write_in_place(self, writer: DataFrameWriter, mark: Mark) -> None:
        place = f"{self.path}/{MICRO_BATCH}={mark.micro_batch}"
        writer.mode("overwrite").save(place)
        files = self.spark.read.text(place).inputFiles()
        if len({found.group(1) for name in files if (found := _JOB.search(name))}) > 1:
            raise TargetError(
                f"Two processes wrote micro-batch {mark.micro_batch} to {self.path} at the same time.",
                hint="Let one process use the checkpoint, and start the query again: it writes the micro-batch anew.",
            )
        self.set_mark(mark)


def attempt_in(log: Path, number: int, token: str) -> Path:
    """Return the directory of an attempt at a micro-batch."""
    return log / TRIES / f"{number}-{token}"


def _remove(place: Path, tries: Path) -> None:
    """Remove a directory from the sight of readers in one act, and then from the disk."""
    tries.mkdir(exist_ok=True)
    hidden = tries / f"gone-{uuid.uuid4().hex}"
    with suppress(FileNotFoundError):
        place.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def live_keys(log: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return the keys whose last change in a log is no delete, and the time of that change."""
    changes = log.where(LATEST) if LATEST in log.columns else log
    last = F.max_by(F.struct(CHANGE_TYPE, TIMESTAMP), F.struct("micro_batch", ORDER)).alias("__last")
    kept = changes.where(F.col(CHANGE_TYPE) != "update_preimage").groupBy(*map(quoted, key_columns)).agg(last)
    is_live = F.col(f"__last.{CHANGE_TYPE}") != "delete"
    return kept.where(is_live).select(*map(quoted, key_columns), F.col(f"__last.{TIMESTAMP}"))


def with_deletes(rows: DataFrame, live: DataFrame, key_columns: Sequence[str], micro_batch: int) -> DataFrame:
    """Add a delete for each live key that has no row, with the time of its last change."""
    same = (live[quoted(one)].eqNullSafe(rows[quoted(one)]) for one in key_columns)
    gone = live.join(rows, reduce(and_, same, F.lit(True)), "left_anti")
    order = F.struct(
        *(
            F.lit(micro_batch if one.name == "micro_batch" else None).cast(one.dataType).alias(one.name)
            for one in rows.select(f"{ORDER}.*").schema
        )
    )
    there = [*key_columns, TIMESTAMP]
    absent = [
        F.lit(None).cast(one.dataType).alias(one.name) for one in rows.drop(*there, CHANGE_TYPE, ORDER).schema
    ]
    kind = F.lit("delete").alias(CHANGE_TYPE)
    return rows.unionByName(gone.select(*map(quoted, there), *absent, kind, order.alias(ORDER)))
