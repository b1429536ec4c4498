"""A Delta table by Spark: reads and statements of a session that has Delta Lake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from tablestream.connectors.delta.columns import MAPPING, as_texts, needs_mapping
from tablestream.connectors.delta.marks import Commit, DeltaMark
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE, ORDER, quoted
from tablestream.connectors.small_texts import if_there
from tablestream.connectors.spark_place import full_path, no_pattern

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
NO_TABLE = (
    "PATH_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_MISSING_DELTA_TABLE",
)
#: The settings of a session that has Delta Lake.
SETTINGS = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
_RANK = "__rank"  # no column of an output begins like this
_TXN = "txn STRUCT<appId: STRING, version: BIGINT>"
#: How many tasks list a table's files, which Delta does before each commit. Its default suits tables of many files.
_LISTING_TASKS = "spark.databricks.delta.snapshotPartitions"
_MOST_LISTING_TASKS = 50
_SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
#: How settings begin that only Spark's writer follows.
_OF_WRITERS = (
    "spark.databricks.delta.properties.defaults.",
    "spark.databricks.delta.autoCompact.",
    "spark.databricks.delta.optimizeWrite.",
)


def lacking(spark: SparkSession) -> list[str]:
    """Return the settings that a session lacks for Delta Lake."""
    return [name for name, value in SETTINGS.items() if value not in (spark.conf.get(name, "") or "")]


def sets_up_writes(spark: SparkSession) -> bool:
    """Whether a session says what Spark's writer gives to new tables, or that it puts small files together."""
    return any(name.startswith(_OF_WRITERS) for name in spark.conf.getAll)


class SparkTable:
    """A table at a path, as a session sees it now."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path
        with self._quick():
            self._table = _read(spark, path)

    @property
    def columns(self) -> StructType | None:
        """The columns; None if there is no table."""
        return None if self._table is None else self._table.schema

    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return self._table is None or self._table.isEmpty()

    def commits(self, limit: int | None = None) -> list[Commit]:
        """Return the last commits, or all, the newest first."""
        place = (full_path(self.spark, self.path) or self.path).replace("`", "``")
        history = self.spark.sql(
            f"DESCRIBE HISTORY delta.`{place}`{'' if limit is None else f' LIMIT {limit}'}"
        )
        restored = F.col("operationParameters")
        rows = history.select(
            "version",
            F.unix_micros("timestamp"),
            "operation",
            "userMetadata",
            restored["version"].try_cast("bigint"),
            F.coalesce(
                # By its class: what the word "timestamp" stands for is a setting of the session.
                F.unix_micros(restored["timestamp"].try_cast(TimestampType())),
                restored["datetime"].try_cast("bigint") * 1000,  # delta-rs writes milliseconds
            ),
        ).collect()
        return [Commit(*row) for row in rows]

    def last_version(self, app_id: str) -> int | None:
        """Return the last ``txnVersion`` of a ``txnAppId``, from the log's files."""
        log, versions = f"{no_pattern(self.path)}/_delta_log", []
        for kind, pattern in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
            with if_there():
                rows = self.spark.read.schema(_TXN).format(kind).load(f"{log}/{pattern}")
                last = rows.where(F.col("txn.appId") == app_id).agg(F.max("txn.version")).first()
                versions += [] if last is None or last[0] is None else [int(last[0])]
        return max(versions, default=None)

    def append(self, rows: DataFrame, said: DeltaMark) -> None:
        """Append rows with a mark, and create the table if there is none. A mark that is whole replaces all rows."""
        marked = (
            rows.write.format("delta").option("txnAppId", said.app_id).option("txnVersion", said.micro_batch)
        )
        if self._table is None and needs_mapping(rows.schema):
            marked = marked.options(**MAPPING)
        if self._table is not None and _hops(rows.schema) - _hops(self._table.schema):
            marked = marked.option("mergeSchema", value=True)
        with self._quick():
            marked.option("userMetadata", said.text).mode("overwrite" if said.whole else "append").save(
                self.path
            )

    def mark(self, columns: StructType, said: DeltaMark) -> None:
        """Commit a mark alone; a table that is not there is created with the columns."""
        empty = self.spark.createDataFrame([], columns) if self._table is None else self._table.limit(0)
        self.append(empty, said)

    def add_columns(self, columns: StructType) -> None:
        """Add columns that can be null, as a commit of its own without a mark; none if there are none."""
        if columns.names:
            added = [F.lit(None).cast(one.dataType).alias(one.name) for one in columns]
            rows = self._there.limit(0).select("*", *added)
            with self._quick():
                rows.write.format("delta").option("mergeSchema", value=True).mode("append").save(self.path)
                self._table = _read(self.spark, self.path)

    def merge(self, changes: DataFrame, key_columns: Sequence[str], said: DeltaMark) -> None:
        """Bring the table to the state after the last changes of keys. A mark that is whole deletes all other rows."""
        table = self._there
        key = changes.select(*map(quoted, key_columns)).schema
        texts = {name: _escaped(text) for name, text in as_texts(table.schema, key).items()}
        merge = _merge_statement(changes.columns, key_columns, texts, whole=said.whole)
        # Delta marks the writes of this session, and skips them if the mark already exists.
        marking = {TXN_APP_ID: said.app_id, TXN_VERSION: str(said.micro_batch), METADATA: said.text}
        with self._quick(), _settings(self.spark, marking):
            self.spark.sql(merge, target=table, changes=last_changes(changes, key_columns))

    def has_twice(self, key_columns: Sequence[str]) -> bool:
        """Whether a key has several rows."""
        return not self._there.groupBy(*map(quoted, key_columns)).count().where("count > 1").isEmpty()

    def clean(self, query: str) -> None:
        """Do nothing: Spark leaves only what VACUUM deletes."""

    def take_back(self, number: int, said: DeltaMark) -> None:
        """Delete a log's micro-batches from a number on. This is a commit of its own, before the mark's."""
        table = self._there
        with self._quick():
            self.spark.sql(f"DELETE FROM {{target}} WHERE {ORDER}.micro_batch >= {number}", target=table)
        self.append(table.limit(0), said)

    @property
    def _there(self) -> DataFrame:
        """The table, of which the caller knows that it is there."""
        assert self._table is not None  # noqa: S101 - see above
        return self._table

    def _quick(self) -> AbstractContextManager[None]:
        return _settings(self.spark, _listing(self.spark))


@contextmanager
def _settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Set what only the writes inside need.

    None of it is set outside: to put back what was there could leave the mark of another thread, and Delta skips the
    writes of a session whose mark a table has.
    """
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def _read(spark: SparkSession, path: str) -> DataFrame | None:
    try:
        table = spark.read.format("delta").load(path)
        _ = table.schema  # Spark Connect finds out no earlier
    except AnalysisException as error:
        if error.getCondition() in NO_TABLE:
            return None
        raise
    return table


def last_changes(changes: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Keep the last change per key: MERGE refuses two rows for one."""
    by_key = Window.partitionBy(*(F.col(quoted(name)) for name in key_columns)).orderBy(F.col(ORDER).desc())
    after = changes.filter(F.col(CHANGE_TYPE) != "update_preimage")
    ranked = after.withColumn(_RANK, F.row_number().over(by_key))
    return ranked.filter(F.col(_RANK) == 1).drop(_RANK)


def _hops(columns: StructType) -> set[str]:
    """The fields of a log's order; a query that has evolved may have more of them."""
    order = columns[ORDER].dataType if ORDER in columns.names else None
    return set(order.names) if isinstance(order, StructType) else set()


def _merge_statement(
    columns: Sequence[str], key_columns: Sequence[str], texts: Mapping[str, str], *, whole: bool
) -> str:
    """Write the MERGE for ``{target}`` and ``{changes}``, which `SparkSession.sql` fills in.

    It is SQL rather than the ``delta`` package's builder, so that only Delta's jars are needed, and Spark Connect
    works, too. The target is a view of the path, because SQL accepts only absolute paths.
    """
    stored = [name for name in columns if name not in CHANGE_COLUMNS]
    names = {name: _escaped(quoted(name)) for name in stored}
    given = {name: f"c.{names[name]}" for name in stored} | dict(texts)
    on = " AND ".join(f"t.{names[name]} <=> {given[name]}" for name in key_columns)
    assign = ", ".join(f"t.{names[name]} = {given[name]}" for name in stored if name not in key_columns)
    update = f" WHEN MATCHED THEN UPDATE SET {assign}" if assign else ""
    return (
        f"MERGE INTO {{target}} AS t USING {{changes}} AS c ON {on}"
        f" WHEN MATCHED AND c.{CHANGE_TYPE} = 'delete' THEN DELETE{update}"
        f" WHEN NOT MATCHED AND c.{CHANGE_TYPE} <> 'delete' THEN"
        f" INSERT ({', '.join(names.values())}) VALUES ({', '.join(given.values())})"
        f"{' WHEN NOT MATCHED BY SOURCE THEN DELETE' if whole else ''}"
    )


def _listing(spark: SparkSession) -> dict[str, str]:
    """Let as many tasks list the table's files as the query's shuffles have, unless the user chose a number.

    Delta takes 50, and on two cores a micro-batch of a hundred rows then waits for them longer than for all else.
    """
    if spark.conf.get(_LISTING_TASKS, None) is not None:
        return {}
    tasks = spark.conf.get(_SHUFFLE_TASKS) or ""
    return {_LISTING_TASKS: str(min(int(tasks), _MOST_LISTING_TASKS))} if tasks.isdecimal() else {}


def _escaped(sql: str) -> str:
    """Write SQL for `SparkSession.sql`, which fills in what is in braces."""
    return sql.replace("{", "{{").replace("}", "}}")
