"""The settings that a query needs in its Spark session.

A query keeps the configuration that its session has when it starts. So `tablestream.start` sets what its query
needs, starts it, and restores the session. A user who starts a frame of changes needs the same settings for longer:
`configure` sets them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tablestream.arguments.kinds import check_session
from tablestream.base.calling import user_line, warn
from tablestream.connectors.settings import changed, set_all
from tablestream.connectors.shipping import has_context, is_local
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import SessionSettingError
from tablestream.spark.options import DEFAULT_SHARDS
from tablestream.spark.unpacking import CELLS

STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
RETAINED = "spark.sql.streaming.minBatchesToRetain"

#: How many micro-batches a checkpoint keeps; see docs/decisions/019-retained-micro-batches.md.
RETAINED_MICRO_BATCHES = 10

_STORES = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{_STORES}.RocksDBStateStoreProvider"
#: Spark's default, and its only state store that cannot keep the state of stateful Python.
_HDFS = f"{_STORES}.HDFSBackedStateStoreProvider"
#: How many rows Spark passes to the workers at a time.
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: More rows than a machine has cores.
_MANY = 4096

_changing = Lock()
#: What lets Spark write dates and times into Parquet as they are not, and what to set instead.
_INEXACT_PARQUET = {
    ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"): "TIMESTAMP_MICROS",
    ("spark.sql.parquet.datetimeRebaseModeInWrite", "EXCEPTION"): "CORRECTED",
    ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"): "CORRECTED",
    ("spark.sql.parquet.int96RebaseModeInWrite", "EXCEPTION"): "CORRECTED",
    ("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY"): "CORRECTED",
}


def configure(spark: SparkSession) -> SparkSession:
    """Set what queries need in a session, for every query that it starts from now on.

    `start` does this for its own query alone. Call `configure` once before you write `Table.changes` or
    `Stream.changes` yourself, with ``writeStream``. Calling it again changes nothing.

    Parameters
    ----------
    spark
        The session.

    Returns
    -------
    SparkSession
        The same session.

    Notes
    -----
    It sets:

    - ``spark.sql.streaming.stateStore.providerClass`` to RocksDB. Spark's HDFS-backed store is replaced even if
      you chose it, because it cannot hold this state.
    - ``spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled`` to ``true``: a commit uploads what
      changed instead of a whole snapshot. A value that you set is kept.
    - ``spark.sql.streaming.minBatchesToRetain`` to 10: the checkpoint keeps the state and the offsets of that many
      micro-batches, and not of Spark's 100. `read_state` reaches back as far. A value that you set is kept.
    - ``spark.sql.shuffle.partitions`` to the number of shards (16); on a local master to the number of cores, if that
      is less. A smaller number that you set is kept, a larger one is lowered. Other queries of the session get it
      as well.

    A query keeps the settings that it was started with, and its checkpoint keeps the number of partitions.

    Examples
    --------
    >>> import tablestream as ts
    >>> spark = ts.configure(SparkSession.builder.master("local[2]").getOrCreate())  # doctest: +SKIP
    """
    check_session(spark)
    use_driver_python(spark)
    with _changing:
        set_all(spark, missing_settings(spark, DEFAULT_SHARDS))
    return spark


@contextmanager
def configured(
    spark: SparkSession, shards: int, columns: int = 0, partitions: int | None = None
) -> Iterator[None]:
    """Give a session what a query needs while the query starts, and restore it.

    `columns`: how many columns rows have that Spark passes to the workers at the end. `partitions`: how many a new
    checkpoint gets.
    """
    # The lock comes first: what another start has set for itself is not there to stay.
    with _changing:
        wanted = missing_settings(spark, shards)
        rows = int(spark.conf.get(_ARROW_ROWS, None) or 0)
        if rows * columns > CELLS:  # most of them are null in a row, and take room in a batch all the same
            wanted[_ARROW_ROWS] = str(max(1, CELLS // columns))
        if partitions is not None:
            wanted[PARTITIONS] = str(partitions)
        with changed(spark, wanted):
            yield


@contextmanager
def exact_parquet(spark: SparkSession) -> Iterator[None]:
    """Let a session write every date and time into Parquet as it is, whatever it says for the user's files.

    Most sessions do so anyway. In others no query starts meanwhile.
    """
    with _changing:
        inexact = _INEXACT_PARQUET.items()
        wanted = {name: exact for (name, value), exact in inexact if spark.conf.get(name, None) == value}
        if wanted:
            with changed(spark, wanted):
                yield
            return
    yield


def missing_settings(spark: SparkSession, shards: int) -> dict[str, str]:
    """The settings that a query with this many shards needs and its session lacks."""
    wanted = {}
    if _lacks_store(spark):
        wanted[STORE] = ROCKSDB
    if spark.conf.get(CHANGELOG, None) is None:
        wanted[CHANGELOG] = "true"
    if spark.conf.get(RETAINED, None) is None:
        wanted[RETAINED] = str(RETAINED_MICRO_BATCHES)
    chosen = spark.conf.get(PARTITIONS, None)
    if chosen is None or int(chosen) > shards:
        # More partitions than shards would be empty, and each commits a state store in every micro-batch. A cluster
        # may grow, and a checkpoint keeps its number: there, every shard gets a partition.
        fewer = chosen is None and is_local(spark)
        wanted[PARTITIONS] = str(min(shards, _cores(spark)) if fewer else shards)
    return wanted


def check_configured(spark: SparkSession, shards: int, rounds: int) -> None:
    """Refuse the session of a query that the user starts if its state store cannot keep the state."""
    if _lacks_store(spark):
        raise SessionSettingError(
            f"The session keeps streaming state in {spark.conf.get(STORE, None) or 'its default store'};"
            " stateful Python needs RocksDB.",
            hint=f"Call tablestream.configure(spark) first, which sets {STORE} and everything else that queries need."
            " tablestream.start does not need this call.",
            where=user_line(),
        )
    partitions = int(spark.conf.get(PARTITIONS) or 0)
    if partitions > shards:
        warn(
            f"{PARTITIONS} is {partitions}, and the plan has {shards} shards: each of its {rounds} rounds commits"
            f" {partitions} state stores in every micro-batch, most of them empty. Set it to {shards} or fewer."
        )


def _lacks_store(spark: SparkSession) -> bool:
    return spark.conf.get(STORE, None) in {None, "", _HDFS}


def _cores(spark: SparkSession) -> int:
    """How many tasks run at a time. Under Spark Connect, which has no context, a small job counts them."""
    if has_context(spark):
        return spark.sparkContext.defaultParallelism
    tasks = spark.range(_MANY).select(F.spark_partition_id().alias("task"))
    (last,) = tasks.agg(F.max("task")).collect()
    return int(last[0]) + 1


def let_ctrl_c_interrupt() -> None:
    """Let SIGINT interrupt the calls of the operating system that wait.

    When Polars is imported it installs a handler of SIGINT, after which such calls go on (SA_RESTART). Then Python does
    not get to raise `KeyboardInterrupt` while ``awaitTermination`` waits for Java: a notebook's stop button, or a
    signal that Java does not get as well, does nothing. The handler itself stays.
    """
    if hasattr(signal, "siginterrupt"):  # not on Windows
        signal.siginterrupt(signal.SIGINT, True)
