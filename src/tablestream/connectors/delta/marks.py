"""Marks in a Delta table: the metadata of the commits, which Delta writes in one act with the rows.

A commit also carries Delta's ``txnAppId`` and ``txnVersion``, so that of two processes only one writes a micro-batch.
Older versions of the library wrote only these. What is settled by ``on_mismatch=`` gets a ``txnAppId`` of its own:
under the former one Delta would skip the micro-batches that are done again.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tablestream.connectors.marks import Mark, Moment
from tablestream.connectors.small_texts import json_object
from tablestream.connectors.spark_place import full_path, no_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Row, SparkSession

#: The commits that are looked at first: the last one has the mark, unless the user changed the table since then.
_LAST_COMMITS = 10
_KEY = "tablestream"
_TXN = "txn STRUCT<appId: STRING, version: BIGINT>"


@dataclass(frozen=True)
class DeltaMark:
    """A mark as it stands in the metadata of a commit.

    Attributes
    ----------
    query, micro_batch, proof
        See `Mark`.
    app_id
        The ``txnAppId`` of the commit, and of those after it.
    whole
        Whether the commit replaced all rows: marks of other queries before it count no more.
    """

    query: str
    micro_batch: int
    proof: str
    app_id: str
    whole: bool = False

    @property
    def mark(self) -> Mark:
        """What the contract of marks needs."""
        return Mark(self.micro_batch, self.proof)

    @property
    def text(self) -> str:
        """The metadata of the commit."""
        return json.dumps({_KEY: asdict(self)}, separators=(",", ":"))


def usual_app_id(query_id: str) -> str:
    """The ``txnAppId`` of a query that was never settled."""
    return f"tablestream/{query_id}"


def new_app_id(query_id: str) -> str:
    """A ``txnAppId`` that no commit has yet."""
    return f"{usual_app_id(query_id)}/{uuid.uuid4().hex[:16]}"


def last_mark(spark: SparkSession, path: str, query_id: str) -> DeltaMark | None:
    """Find the last mark of a query in a table that exists."""
    for limit in (f" LIMIT {_LAST_COMMITS}", ""):
        commits = _commits(spark, path, limit)
        for mark in _marks(commits):
            if mark.query == query_id:
                return mark
            if mark.whole:
                return None
        if len(commits) < _LAST_COMMITS:
            break
    if any(commit.operation == "RESTORE" for commit in commits):
        return None  # what Delta knows of its writers, a table keeps when it is restored
    return _older(spark, path, query_id)


def has_mark(spark: SparkSession, path: str, moment: Moment) -> bool:
    """Whether a table was ever at a micro-batch, as far as its history tells."""
    wanted = (moment.query_id, moment.number, moment.proof)
    return any((one.query, one.micro_batch, one.proof) == wanted for one in _marks(_commits(spark, path)))


def _commits(spark: SparkSession, path: str, limit: str = "") -> list[Row]:
    """The commits, the newest first."""
    place = (full_path(spark, path) or path).replace("`", "``")
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`{limit}")
    restored = F.col("operationParameters")
    return history.select(
        "version",
        F.unix_micros("timestamp").alias("at"),
        "operation",
        restored["version"].try_cast("bigint").alias("to_version"),
        F.unix_micros(restored["timestamp"].try_cast("timestamp")).alias("to_time"),
        "userMetadata",
    ).collect()


def _marks(commits: Iterable[Row]) -> Iterator[DeltaMark]:
    """Yield the marks, the newest first. A table that was restored has those of the version to which it was."""
    to_version, to_time = None, None
    for commit in commits:
        is_undone = (to_version is not None and commit.version > to_version) or (
            to_time is not None and commit.at > to_time
        )
        if is_undone:
            continue
        if commit.operation == "RESTORE":
            to_version, to_time = commit.to_version, commit.to_time
        elif (mark := _read(commit.userMetadata)) is not None:
            yield mark


def _read(text: str | None) -> DeltaMark | None:
    document: Any = (json_object(text or "") or {}).get(_KEY)
    return DeltaMark(**document) if isinstance(document, dict) else None


def _older(spark: SparkSession, path: str, query_id: str) -> DeltaMark | None:
    """Find the mark of an older version, or one whose commit Delta has removed from the history."""
    log, app_id = f"{no_pattern(path)}/_delta_log", usual_app_id(query_id)
    versions = []
    for kind, pattern in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        try:
            rows = spark.read.schema(_TXN).format(kind).load(f"{log}/{pattern}")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            continue
        last = rows.where(F.col("txn.appId") == app_id).agg(F.max("txn.version")).first()
        versions += [] if last is None or last[0] is None else [int(last[0])]
    return DeltaMark(query_id, max(versions), "", app_id) if versions else None
