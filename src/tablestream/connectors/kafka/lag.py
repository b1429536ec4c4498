"""How many records of its topics a query has not read.

Kafka's end comes from a query of Spark's that begins there and ends at once: it reads no record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tablestream.connectors.kafka.source import checked_settings, raw_records
from tablestream.connectors.lag import Behind
from tablestream.connectors.source import Option

Offsets = dict[str, dict[str, int]]


def records_behind(
    spark: SparkSession, servers: str | None, options: Mapping[str, Option] | None, offset: Any
) -> Behind | None:
    """Compare the offsets in topics with their ends; None for another system's offset.

    A partition that the query has not seen counts from its first offset, 0.
    """
    if not _is_kafka(offset):
        return None
    if servers is None:
        return Behind("kafka", why="give the servers, bootstrap_servers= or --bootstrap-servers")
    try:
        ends = _ends(spark, sorted(offset), servers, options)
    except StreamingQueryException as error:
        _, _, said = str(error).partition("\n")[0].rpartition("terminated with exception: ")
        return Behind("kafka", why=f"Kafka does not say where the topics end: {said}")
    gone = sorted(
        f"{topic}-{partition}"
        for topic, partitions in offset.items()
        for partition, begin in partitions.items()
        if ends.get(topic, {}).get(partition, -1) < begin
    )
    if gone:
        return Behind("kafka", why=f"{', '.join(gone)} ends before what was read: the topic was made anew")
    late = {
        (topic, partition): (offset.get(topic, {}).get(partition, 0), end)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if end > offset.get(topic, {}).get(partition, 0)
    }
    count = sum(end - begin for begin, end in late.values())
    return Behind("kafka", count, "records", count, _time_s(spark, servers, options, late))


def _is_kafka(offset: Any) -> bool:
    return (
        isinstance(offset, dict)
        and bool(offset)
        and all(
            isinstance(one, dict) and one and all(isinstance(end, int) for end in one.values())
            for one in offset.values()
        )
    )


def _ends(
    spark: SparkSession, topics: list[str], servers: str, options: Mapping[str, Option] | None
) -> Offsets:
    """Return the offset behind the last record of each partition."""
    frame = raw_records(spark, topics, servers, "latest", options, "lag")
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    told = None if progress is None else progress.sources[0].endOffset
    found: Offsets = json.loads(told) if told else {}
    return found


def _time_s(
    spark: SparkSession,
    servers: str,
    options: Mapping[str, Option] | None,
    late: Mapping[tuple[str, str], tuple[int, int]],
) -> float | None:
    """The longest time between the last record that was read and the newest one, over partitions.

    None if a partition does not tell: nothing of it was read, or its last record is gone.
    """
    if not late:
        return 0.0
    read = {place: begin - 1 for place, (begin, _) in late.items() if begin > 0}
    newest = {place: end - 1 for place, (_, end) in late.items()}
    before, last = _times(spark, servers, options, read), _times(spark, servers, options, newest)
    if not late.keys() <= before.keys() & last.keys():
        return None
    return max(0.0, *(last[place] - before[place] for place in late))


def _times(
    spark: SparkSession,
    servers: str,
    options: Mapping[str, Option] | None,
    places: Mapping[tuple[str, str], int],
) -> dict[tuple[str, str], float]:
    """Return the times of single records, in seconds since 1970, of those that are still there."""
    if not places:
        return {}
    settings = checked_settings(spark, servers, options, "lag")
    begin: Offsets = {}
    for (topic, partition), at in places.items():
        begin.setdefault(topic, {})[partition] = at
    end = {topic: {one: at + 1 for one, at in partitions.items()} for topic, partitions in begin.items()}
    assigned = {topic: [int(one) for one in partitions] for topic, partitions in begin.items()}
    settings |= {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(begin),
        "endingOffsets": json.dumps(end),
        "failOnDataLoss": "false",
    }
    frame = spark.read.format("kafka").options(**settings).load()
    rows = frame.select("topic", "partition", "offset", F.unix_millis("timestamp").alias("ms")).collect()
    return {
        (row.topic, str(row.partition)): row.ms / 1000
        for row in rows
        if places.get((row.topic, str(row.partition))) == row.offset
    }
