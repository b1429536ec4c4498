"""Delta Lake as a sink: a maintained table, or a log of every change."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructType

from tablestream.base.calling import user_line
from tablestream.connectors.delta.marks import (
    DeltaMark,
    has_mark,
    last_mark,
    new_app_id,
    usual_app_id,
)
from tablestream.connectors.delta.names import MAPPING, needs_mapping, why_refused
from tablestream.connectors.delta.types import misfits
from tablestream.connectors.marks import (
    Found,
    MarkingSink,
    Moment,
    OnMismatch,
    Verdict,
    checked_on_mismatch,
    judged,
    no_rebuild,
)
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE, ORDER, checked_path, quoted
from tablestream.connectors.spark_place import check_writable, full_path, seen_by_spark
from tablestream.errors import ArgumentError, PlanError, SessionSettingError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tablestream.base.type_lattice import Misfit

DeltaMode = Literal["table", "changes"]

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
_RANK = "__rank"  # no column of an output begins like this
#: How many tasks list a table's files, which Delta does before each commit. Its default suits tables of many files.
_LISTING_TASKS = "spark.databricks.delta.snapshotPartitions"
_MOST_LISTING_TASKS = 50
_SHUFFLE_TASKS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class DeltaSink(MarkingSink):
    """A Delta table as a sink; made by `to_delta`."""

    path: str
    mode: DeltaMode = "table"

    @property
    def target(self) -> str:
        return f"delta {self.path}"

    @property
    def harm(self) -> str:
        return "VACUUM would delete"

    @property
    def needs_final(self) -> bool:
        """A maintained table needs the last change per key, a log needs all changes."""
        return self.mode == "table"

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse a session that is not set up for Delta Lake, and a place where nothing can be created."""
        wanted = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
        lacking = [name for name, value in wanted.items() if value not in (spark.conf.get(name, "") or "")]
        if lacking:
            lines = "".join(f'\n    .config("{name}", "{value}")' for name, value in wanted.items())
            raise SessionSettingError(
                f"The session lacks Delta Lake, which the output to {self.path} needs: {' and '.join(lacking)}"
                f" {'is' if len(lacking) == 1 else 'are'} not set for it.",
                hint="Stop the session, and create it with Delta's jars and both settings:\n"
                "from delta import configure_spark_with_delta_pip\n"
                f"builder = (\n    SparkSession.builder{lines}\n)\n"
                "spark = configure_spark_with_delta_pip(builder).getOrCreate()\n"
                "The extra tablestream[delta] has the package; spark.jars takes jars that you have.",
            )
        check_writable(spark, self.path, f"The Delta table at {self.path} cannot be written")

    def check_types(self, spark: SparkSession, columns: StructType) -> None:
        """Refuse an existing table that lacks a column of the output, or does not hold all its values.

        Also refuse names that no table can have. Delta itself refuses to append what does not fit a log.
        """
        why = why_refused(columns, merged=self.mode == "table")
        if why is not None:
            raise ArgumentError(
                f"The output cannot be written to {self.target}: {why}.",
                hint="Rename the column with select(...).",
                where=user_line(),
            )
        table = self._table(spark) if self.mode == "table" else None
        if table is not None:
            self._check_columns(spark, table.schema, columns)

    def settle(self, spark: SparkSession, columns: StructType, stored: Callable[[], DataFrame]) -> None:
        """Refuse a table that does not fit the checkpoint, or settle it, before the query starts."""
        moment = self.starting
        with _settings(spark, _listing(spark)):
            table = self._table(spark)
            mark, found = self._found(spark, table, moment.query_id)
            if judged(found, moment.number, moment, self.on_mismatch, starting=True) is not Verdict.SETTLE:
                return
            done = moment.earlier
            said = DeltaMark(done.query_id, done.number, done.proof, new_app_id(done.query_id))
            if self.on_mismatch == "accept":
                empty = spark.createDataFrame([], columns) if table is None else table.limit(0)
                self._append(empty, said, creates=table is None)
            elif self.mode == "table":
                self._maintain(table, stored(), replace(said, whole=True))
            else:
                self._take_back(spark, mark, said, moment)

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (it may change; the target may not)
        """Write one micro-batch in one Delta transaction that carries its mark."""
        spark = changes.sparkSession
        with _settings(spark, _listing(spark)):
            table, known = self._table(spark), (query_id, self.path)
            if table is None and micro_batch_id > 0 and known in _WRITTEN:
                raise self._gone(spark)
            mark, found = self._found(spark, table, query_id)
            verdict = judged(found, micro_batch_id, self.moment, self.on_mismatch)
            if verdict is not Verdict.DONE:
                settles = verdict is Verdict.SETTLE
                whole = settles and self.on_mismatch == "rebuild"
                app_id = usual_app_id(query_id) if mark is None else mark.app_id
                app_id = new_app_id(query_id) if settles else app_id
                said = DeltaMark(query_id, micro_batch_id, self.proof, app_id, whole)
                if self.mode == "changes":
                    self._append(changes, said, creates=table is None)
                else:
                    self._maintain(table, changes, said)
            _WRITTEN.add(known)

    def _found(
        self, spark: SparkSession, table: DataFrame | None, query_id: str
    ) -> tuple[DeltaMark | None, Found]:
        """Look for the query's mark, and for rows if there is none."""
        mark = None if table is None else last_mark(spark, self.path, query_id)
        is_empty = table is None or (mark is None and table.isEmpty())
        place = f"The Delta table at {seen_by_spark(spark, self.path)}"
        return mark, Found(place, None if mark is None else mark.mark, is_empty, follows=self.mode == "table")

    def _append(self, rows: DataFrame, said: DeltaMark, *, creates: bool = False) -> None:
        """Append rows with a mark. One that replaces all is written over them."""
        marked = (
            rows.write.format("delta").option("txnAppId", said.app_id).option("txnVersion", said.micro_batch)
        )
        if creates and needs_mapping(rows.schema):
            marked = marked.options(**MAPPING)
        marked.option("userMetadata", said.text).mode("overwrite" if said.whole else "append").save(self.path)

    def _maintain(self, table: DataFrame | None, changes: DataFrame, said: DeltaMark) -> None:
        """Bring the table to the state after this micro-batch.

        The first micro-batch only inserts rows, so it is an append: that creates the table and costs less than a
        MERGE. One without changes only commits its mark.
        """
        if not self.key_columns:
            raise ArgumentError(
                "A maintained table needs the key of its changes.", hint="Call keyed_by(names)."
            )
        if table is None:
            rows = _last_changes(changes, self.key_columns).filter(F.col(CHANGE_TYPE) != "delete")
            self._append(rows.drop(*CHANGE_COLUMNS), said, creates=True)
            return
        self._check_columns(changes.sparkSession, table.schema, changes.schema)
        if said.whole or not changes.isEmpty():
            self._merge(table, _last_changes(changes, self.key_columns), said)
        else:
            self._append(table.limit(0), said)

    def _take_back(
        self, spark: SparkSession, mark: DeltaMark | None, said: DeltaMark, moment: Moment
    ) -> None:
        """Delete the micro-batches of a log that the checkpoint does not have."""
        if mark is None or mark.micro_batch < moment.number or not has_mark(spark, self.path, moment.earlier):
            raise no_rebuild(f"The Delta log at {seen_by_spark(spark, self.path)}")
        table = self._table(spark)
        assert table is not None  # noqa: S101 - it has a mark
        spark.sql(f"DELETE FROM {{target}} WHERE {ORDER}.micro_batch >= {moment.number}", target=table)
        self._append(table.limit(0), said)

    def _gone(self, spark: SparkSession) -> PlanError:
        """The error about a table that an earlier micro-batch of this query left there, even if it was empty."""
        return PlanError(
            f"The Delta table at {seen_by_spark(spark, self.path)}, to which this query has written, is not there any"
            " more.",
            hint="Restore it and start the query again; or start it with a new checkpoint, which writes all rows. Or"
            ' give a maintained table on_mismatch="rebuild", which writes the rows that the state has.',
        )

    def _table(self, spark: SparkSession) -> DataFrame | None:
        """Read the table, or return None if it does not exist yet."""
        try:
            table = spark.read.format("delta").load(self.path)
            _ = table.schema  # Spark Connect finds out no earlier
        except AnalysisException as error:
            if error.getCondition() in NO_TABLE:
                return None
            raise
        return table

    def _check_columns(self, spark: SparkSession, table: StructType, output: StructType) -> None:
        """Refuse a table that lacks a column of the output, or one whose column does not hold all values."""
        missing = [name for name in output.names if name not in {*table.names, *CHANGE_COLUMNS}]
        if missing:
            added = ", ".join(f"{quoted(name)} {output[name].dataType.simpleString()}" for name in missing)
            raise PlanError(
                f"The Delta table at {seen_by_spark(spark, self.path)} has no column"
                f" {', '.join(map(repr, missing))}.",
                hint="Exclude what it lacks with select(...), write to another path, or:"
                f" {_alter(spark, self.path)} ADD COLUMNS ({added})",
            )
        columns = StructType([one for one in output.fields if one.name not in CHANGE_COLUMNS])
        for wrong in misfits(columns, table):
            raise _does_not_hold(spark, self.path, wrong)

    def _merge(self, table: DataFrame, changes: DataFrame, said: DeltaMark) -> None:
        spark = changes.sparkSession
        if said.whole:
            self._check_unique(table)
        # Delta marks the writes of this session, and skips them if the mark already exists.
        with _settings(spark, _marking(said)):
            key = StructType([changes.schema[name] for name in self.key_columns])
            texts = _as_texts(table.schema, key)
            merge = _merge_statement(changes.columns, self.key_columns, texts, whole=said.whole)
            spark.sql(merge, target=table, changes=changes)

    def _check_unique(self, table: DataFrame) -> None:
        """Refuse to bring over a table in which a key has several rows: MERGE would keep all of them."""
        keys = [quoted(name) for name in self.key_columns]
        if not table.groupBy(*keys).count().where("count > 1").isEmpty():
            raise TargetError(
                f"The Delta table at {seen_by_spark(table.sparkSession, self.path)} has several rows with one key.",
                hint="Delete its rows, or write to another path.",
            )


def to_delta(
    path: str | os.PathLike[str], *, mode: DeltaMode = "table", on_mismatch: OnMismatch = "refuse"
) -> DeltaSink:
    """Write an output to a Delta table, each micro-batch exactly once.

    Parameters
    ----------
    path
        The path of the table. The output's first micro-batch creates it if it does not exist; create it yourself to
        give it partitions, clustering or properties. Columns of the table that the output lacks are left alone (null
        in new rows).
    mode
        ``"table"``: a maintained table of key and value columns, with one row per key. The last change per key and
        micro-batch, by ``_order``, counts; a delete deletes. Keys are compared as in ``<=>``: null equals null.
        ``"changes"``: every change, appended with ``_change_type``, ``_timestamp`` and ``_order``.
    on_mismatch
        What to do when the query starts and the table does not fit the checkpoint: one of them was restored from a
        backup, or the table has rows of others, or none of this query. ``"refuse"``: the start is an error.
        ``"rebuild"``: bring a maintained table over whole, from the state, or by the first micro-batch of a new
        checkpoint; delete from a log what the checkpoint lacks. ``"accept"``: go on with what is there. Remove the
        argument when the query has started.

    Returns
    -------
    DeltaSink
        For ``table.to(...)``.

    Raises
    ------
    ArgumentError
        The mode is unknown, or the path is empty or contains a password. When the query starts: on a local master,
        nothing can be created at a local path; Delta cannot have the names of the columns.
    SessionSettingError
        When the query starts: the session lacks Delta Lake.
    PlanError
        When the query starts, or in a micro-batch: a maintained table lacks a column of the output, or has one of a
        type that does not hold all its values.
        In a micro-batch: the table is gone, and this process has written to it.
    TargetError
        When the query starts, or in a micro-batch: the table does not fit the checkpoint.

    Notes
    -----
    Every commit carries a mark in its ``userMetadata``: the query, the micro-batch, and a proof of it, which the
    checkpoint has as well. The last one is looked up in Delta's history, so a table that ``RESTORE`` has brought back
    has the mark of that version. A micro-batch whose mark is there is passed over. So that of two processes only one
    writes it, a commit also carries Delta's ``txnAppId`` and ``txnVersion``. For MERGE, Delta takes these from the
    session's settings only, so they are set while it runs, in the session that Spark keeps for the query.

    If a name has a blank or one of the characters ``,;{}()=``, the table is created with Delta's column mapping, which
    its readers must know (Delta's reader version 2). Names that differ only in upper and lower case are refused.

    A micro-batch without changes commits only its mark.

    Before each commit Delta lists the table's files, in 50 tasks by default. Here it takes as many as the query's
    shuffles have, and never more than 50. ``spark.databricks.delta.snapshotPartitions`` in the session overrides this.

    Examples
    --------
    >>> to_delta("out/mailing").needs_final
    True
    >>> to_delta("out/mailing_changes", mode="changes").needs_final
    False
    """
    if mode not in get_args(DeltaMode):
        raise ArgumentError(f"A Delta sink has no mode {mode!r}.", hint="Choose 'table' or 'changes'.")
    return DeltaSink(checked_path(path, "a Delta sink"), mode, on_mismatch=checked_on_mismatch(on_mismatch))


_WRITTEN: set[tuple[str, str]] = set()
"""Queries and paths that this process has written: a table that is gone then had rows that nothing writes again."""


def _alter(spark: SparkSession, path: str) -> str:
    """How a statement begins that changes a table."""
    return f"ALTER TABLE delta.{quoted(full_path(spark, path) or path)}"


def _does_not_hold(spark: SparkSession, path: str, wrong: Misfit) -> PlanError:
    """The error about a column of a table that does not hold all values of the output."""
    table = f"The Delta table at {seen_by_spark(spark, path)}"
    if wrong.stored is None:
        field = ".".join(map(quoted, wrong.name.split(".")))
        return PlanError(
            f"{table} has no field {wrong.name!r}, which the output has as {wrong.given}.",
            hint="Build the struct without it in select(...), write to another path, or:"
            f" {_alter(spark, path)} ADD COLUMNS ({field} {wrong.given})",
        )
    return PlanError(
        f"{table} has the column {wrong.name!r} of type {wrong.stored}, which does not hold all values of the output's"
        f" {wrong.given}.",
        hint="Cast the column in select(...), give the table a column that holds them, or write to another path.",
    )


def _last_changes(changes: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Keep the last change per key: MERGE refuses two rows for one."""
    by_key = Window.partitionBy(*(F.col(quoted(name)) for name in key_columns)).orderBy(F.col(ORDER).desc())
    after = changes.filter(F.col(CHANGE_TYPE) != "update_preimage")
    ranked = after.withColumn(_RANK, F.row_number().over(by_key))
    return ranked.filter(F.col(_RANK) == 1).drop(_RANK)


def _as_texts(table: StructType, key: StructType) -> dict[str, str]:
    """Write the parts of a key that only the table has as text as texts, in SQL, to store and to compare them.

    Spark would compare a decimal with a text as doubles. Its cast writes some decimals with an exponent or without, as
    the session says.
    """
    texts = {one.name for one in table if isinstance(one.dataType, StringType)}
    return {
        one.name: _as_text(f"c.{_name(one.name)}", one.dataType)
        for one in key
        if one.name in texts and not isinstance(one.dataType, StringType)
    }


def _as_text(value: str, kind: DataType) -> str:
    if not isinstance(kind, DecimalType):
        return f"CAST({value} AS STRING)"
    digits = f"0.{'0' * kind.scale}" if kind.scale else "0"
    return f"format_number({value}, '{digits}')"


def _name(column: str) -> str:
    """Quote a column for `SparkSession.sql`, which fills in what is in braces."""
    return quoted(column).replace("{", "{{").replace("}", "}}")


def _merge_statement(
    columns: Sequence[str], key_columns: Sequence[str], texts: Mapping[str, str], *, whole: bool
) -> str:
    """Write the MERGE for ``{target}`` and ``{changes}``, which `SparkSession.sql` fills in.

    It is SQL rather than the ``delta`` package's builder, so that only Delta's jars are needed, and Spark Connect
    works, too. The target is a view of the path, because SQL accepts only absolute paths.
    """
    stored = [name for name in columns if name not in CHANGE_COLUMNS]
    names = {name: _name(name) for name in stored}
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


def _marking(said: DeltaMark) -> dict[str, str]:
    """The settings by which Delta marks a statement."""
    return {TXN_APP_ID: said.app_id, TXN_VERSION: str(said.micro_batch), METADATA: said.text}


def _listing(spark: SparkSession) -> dict[str, str]:
    """Let as many tasks list the table's files as the query's shuffles have, unless the user chose a number.

    Delta takes 50, and on two cores a micro-batch of a hundred rows then waits for them longer than for all else.
    """
    if spark.conf.get(_LISTING_TASKS, None) is not None:
        return {}
    tasks = spark.conf.get(_SHUFFLE_TASKS) or ""
    return {_LISTING_TASKS: str(min(int(tasks), _MOST_LISTING_TASKS))} if tasks.isdecimal() else {}


@contextmanager
def _settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Set what only the writes inside need; none of it is set outside."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
