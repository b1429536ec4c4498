"""How far behind its sources a query is, by its checkpoint: `lag`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tablestream.arguments.kinds import check_mapping, check_session, listed
from tablestream.base.calling import user_line
from tablestream.connectors.delta.lag import versions_behind
from tablestream.connectors.file_log import files_behind
from tablestream.connectors.kafka.lag import records_behind
from tablestream.connectors.kafka.options import checked_servers
from tablestream.connectors.lag import Behind
from tablestream.connectors.sink import checked_path
from tablestream.connectors.small_texts import numbered_names, whole_text
from tablestream.connectors.source import Option
from tablestream.connectors.spark_place import seen_by_spark
from tablestream.errors import StateError
from tablestream.spark.generations import current
from tablestream.spark.stored_plan import stored_text
from tablestream.spark.stored_state import query_of

#: A fact of each round in the text of a plan.
_SOURCES = re.compile(r"^sources: (.*)$", re.MULTILINE)
#: The facts of a plan without rounds.
_WITHOUT_STATE = re.compile(r"^(?:source|stream) (.+?): key ", re.MULTILINE)
#: What Spark writes for a source that has no offset yet.
_NONE = "-"


@dataclass(frozen=True)
class SourceLag(Behind):
    """How far a query is behind the end of one of its sources.

    Attributes
    ----------
    number
        The place of the source among those that Spark counts, from 0.
    sources
        The names of the tables and streams that may read it: one, if each has a source of its own.
    """

    number: int = 0
    sources: tuple[str, ...] = ()


def shown(one: SourceLag) -> tuple[str, str, str, str]:
    """Name, system, how much is not read yet, and the time, such as ``orders, files, 2 files, 1.5 s``."""
    name = one.sources[0] if len(one.sources) == 1 else f"source {one.number}"
    behind = "unknown" if one.count is None else _counted(one.count, one.unit)
    if one.records is not None and one.unit not in ("records", "") and one.count:
        behind += f", {_counted(one.records, 'records')}"
    return name, one.system, behind, "unknown" if one.time_s is None else f"{one.time_s:,.1f} s"


def _counted(count: int, units: str) -> str:
    return f"{count:,} {units.removesuffix('s') if count == 1 else units}"


@dataclass(frozen=True)
class Lag:
    """How far a query is behind its sources.

    Attributes
    ----------
    checkpoint, micro_batch
        The directory, and the last committed micro-batch.
    sources
        One for each source.
    """

    checkpoint: str
    micro_batch: int
    sources: tuple[SourceLag, ...]

    def __str__(self) -> str:
        """A line for each source."""
        lines = []
        for one in self.sources:
            name, system, behind, time = shown(one)
            lines.append(f"{name} ({system}): {behind}, {time}" + (f": {one.why}" if one.why else ""))
        return "\n".join([f"Behind after micro-batch {self.micro_batch}:", *lines])


def lag(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    *,
    bootstrap_servers: str | None = None,
    options: Mapping[str, Option] | None = None,
    delta: str | Sequence[str] = (),
) -> Lag:
    """Say how far behind its sources a query is: what they have beyond its last committed micro-batch.

    The query may be running, or have ended. Nothing is changed.

    Parameters
    ----------
    spark
        A session that can read the sources.
    checkpoint
        The query's checkpoint directory.
    bootstrap_servers, options
        Kafka's servers, and further options as for `from_kafka`: the checkpoint has offsets, and not where the topics
        are.
    delta
        The path of a Delta table, or of several: the checkpoint has their ids alone.

    Returns
    -------
    Lag
        For each source what is not read yet, in records, files or versions, and in time. What is not known is None,
        and `why` says the reason.

    Raises
    ------
    ArgumentError
        An argument is no path, no address or no mapping.
    SessionSettingError
        The session has no Kafka connector, and the servers are given.
    StateError
        The directory is not the checkpoint of a query, or the query has not completed a micro-batch.

    Notes
    -----
    =======================  ==============================================================================
    source                   what is compared
    =======================  ==============================================================================
    Kafka                    the offsets with the topics' ends: offsets of compacted records and of
                             transactions count, too
    files                    the source's log with the directories of the files in it; files called ``.parquet``
                             or ``.orc`` also say how many records they have, if they are not too many
    Delta                    the version with the table's history: versions that add no row count, too
    any other                nothing: its lag is unknown
    =======================  ==============================================================================

    Examples
    --------
    >>> import tablestream as ts
    >>> found = ts.lag(spark, "out/checkpoint", bootstrap_servers="localhost:9092")  # doctest: +SKIP
    >>> [(one.sources, one.records, one.time_s) for one in found.sources]  # doctest: +SKIP
    [(('trades',), 1200, 3.5)]
    """
    check_session(spark)
    given = checked_path(checkpoint, "the checkpoint")
    path = current(spark, given).path
    tables = [checked_path(one, "a Delta table") for one in listed(delta)]
    if bootstrap_servers is not None:
        checked_servers(bootstrap_servers)
    if options is not None:
        check_mapping(options, "options")
    query_of(spark, path)
    done = numbered_names(spark, f"{path}/commits")
    text = whole_text(spark, f"{path}/offsets", str(done[-1])) if done else None
    if text is None:
        raise StateError(
            f"The query of {seen_by_spark(spark, path)} has not completed a micro-batch.",
            hint="Wait until it has.",
            where=user_line(),
        )
    offsets = text.rstrip("\n").split("\n")[2:]  # behind the version and the settings
    found = []
    for number, (offset, names) in enumerate(zip(offsets, _named(spark, path, len(offsets)), strict=True)):
        one = _behind(spark, path, number, offset, (bootstrap_servers, options), tables)
        found.append(SourceLag(**vars(one), number=number, sources=names))
    return Lag(given, done[-1], tuple(found))


def _behind(
    spark: SparkSession,
    checkpoint: str,
    number: int,
    text: str,
    kafka: tuple[str | None, Mapping[str, Option] | None],
    delta: Sequence[str],
) -> Behind:
    """Ask each system whether an offset is its own."""
    if text == _NONE:
        return Behind("unknown", why="it has no offset yet")
    try:
        offset: Any = json.loads(text)
    except ValueError:
        offset = None
    return (
        files_behind(spark, checkpoint, number, offset)
        or versions_behind(spark, delta, offset)
        or records_behind(spark, *kafka, offset)
        or Behind("unknown", why="Spark's source is none of Kafka, files and Delta Lake")
    )


def _named(spark: SparkSession, checkpoint: str, count: int) -> list[tuple[str, ...]]:
    """The names of what reads each source; all of them for each if that is not known.

    A plan of one source without an operator has no facts, and so no name.
    """
    text = stored_text(spark, checkpoint) or ""
    found = _SOURCES.search(text)
    names = tuple(found[1].split(", ") if found else _WITHOUT_STATE.findall(text))
    return [(name,) for name in names] if len(names) == count else [names] * count
