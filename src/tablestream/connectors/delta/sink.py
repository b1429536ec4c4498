"""Delta Lake as a sink: a maintained table, or a log of every change."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tablestream.arguments.kinds import check_installed, check_mapping
from tablestream.arguments.words import check_known
from tablestream.base.extras import install_hint
from tablestream.base.type_lattice import Misfit
from tablestream.connectors.delta.by_delta_rs import FEW_ROWS, RsTable
from tablestream.connectors.delta.by_spark import SETTINGS, SparkTable, lacking, last_changes, sets_up_writes
from tablestream.connectors.delta.columns import can_be_added, lacked, misfits, why_refused
from tablestream.connectors.delta.marks import DeltaMark, has_mark, last_mark, new_app_id, usual_app_id
from tablestream.connectors.delta.staged import LogStage, TableStage
from tablestream.connectors.marks import Found, MarkingSink, OnMismatch, Verdict, judged, no_rebuild
from tablestream.connectors.place import Place
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE, ORDER, Stage, checked_path, quoted
from tablestream.connectors.spark_place import check_writable, full_path, seen_by_spark
from tablestream.errors import ArgumentError, PlanError, SessionSettingError, TargetError

DeltaMode = Literal["table", "changes"]
DeltaWriter = Literal["delta-rs", "spark"]
Table = RsTable | SparkTable
"""A table as it is now. Every method that writes makes one commit, which has the mark."""

#: Up to so many bytes a table is merged on the driver, unless the user says who writes.
MOST_BYTES = 2**30
#: Signs in a local path that delta-rs does not take.
_PATTERNS = frozenset("[]|^\\*")
#: How delta-rs calls the stores that Hadoop has a file system for.
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "az"}
_SESSION = (
    "from delta import configure_spark_with_delta_pip\nbuilder = (\n    SparkSession.builder"
    + "".join(f'\n    .config("{name}", "{value}")' for name, value in SETTINGS.items())
    + "\n)\nspark = configure_spark_with_delta_pip(builder).getOrCreate()\n"
)


@dataclass(frozen=True, slots=True)
class DeltaSink(MarkingSink):
    """A Delta table as a sink; made by `to_delta`."""

    path: str
    mode: DeltaMode = "table"
    writer: DeltaWriter | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    few_rows: int = FEW_ROWS
    most_bytes: int = MOST_BYTES

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
        """Refuse a session that can write to no Delta table here, and a place where nothing can be created."""
        lacks = lacking(spark)
        if lacks and self._uri(spark) is None:
            raise SessionSettingError(
                f"The session lacks Delta Lake, which the output to {self.path} needs: {' and '.join(lacks)}"
                f" {'is' if len(lacks) == 1 else 'are'} not set for it.",
                hint=f"{self._without_jars} Or stop the session, and create it with Delta's jars and both settings:\n"
                f"{_SESSION}The extra tablestream[delta-spark] has the package; spark.jars takes jars that you have.",
            )
        if self.writer == "delta-rs" and self._uri(spark) is None:
            raise ArgumentError(
                f"delta-rs does not write to {self.path}.",
                hint=f"{self._without_jars} Without writer=, Spark writes to {self.path}.",
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
            )
        if self.mode == "changes" and self._uri(spark) is None:
            return
        table = self._open(spark, columns)
        if table.columns is not None and self.mode == "table":
            self._check_columns(spark, table.columns, columns)

    def settle(self, spark: SparkSession, columns: StructType, stored: Callable[[], DataFrame]) -> None:
        """Refuse a table that does not fit the checkpoint, or settle it, before the query starts."""
        moment = self.starting
        table = self._open(spark, columns)
        mark, found = self._found(spark, table, moment.query_id)
        if judged(found, moment.number, moment, self.on_mismatch, starting=True) is not Verdict.SETTLE:
            return
        done = moment.earlier
        said = DeltaMark(done.query_id, done.number, done.proof, new_app_id(done.query_id))
        if self.on_mismatch == "accept":
            table.mark(columns, said)
        elif self.mode == "table":
            self._maintain(table, stored(), replace(said, whole=True))
        elif mark is None or mark.micro_batch < moment.number or not has_mark(table, moment.earlier):
            raise no_rebuild(f"The Delta log at {seen_by_spark(spark, self.path)}")
        else:
            table.take_back(moment.number, said)

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (it may change; the target may not)
        """Write one micro-batch in one Delta transaction that carries its mark."""
        spark = changes.sparkSession
        table = self._open(spark, changes.schema, changes)
        said = self._next(spark, table, micro_batch_id, query_id)
        if said is None:
            table.clean(query_id)
        elif self.mode == "changes":
            if table.columns is not None and isinstance(table, RsTable):  # Spark checks the columns itself
                self._check_columns(spark, table.columns, changes.schema, of_log=True)
            table.append(changes, said)
        else:
            self._maintain(table, changes, said)
        _WRITTEN.add((query_id, self.path))

    def stage(self, spark: SparkSession, columns: StructType, schema: pa.Schema) -> Stage | str:
        """Return what the workers do, or why Spark writes the table."""
        table = None if self._uri(spark) is None else self._open(spark, columns)
        if not isinstance(table, RsTable):
            return "delta-rs does not write it"
        why = table.why_not_files(self._kept(columns))
        if why is not None:
            return f"its table {why}"
        place = (table.uri, self.storage_options or {}, columns, schema)
        return LogStage(*place) if self.mode == "changes" else TableStage(*place, key=self.key_columns)

    def commit(
        self, spark: SparkSession, stage: Stage, written: Sequence[str], micro_batch_id: int, query_id: str
    ) -> None:
        """Commit what the workers wrote for one micro-batch, with its mark."""
        assert isinstance(stage, LogStage | TableStage)  # noqa: S101 - it made it
        # A table that has become large since the start goes on as it began.
        table = RsTable(stage.uri, stage.storage_options)
        said = self._next(spark, table, micro_batch_id, query_id)
        why = table.why_not(stage.columns) or table.why_not_files(self._kept(stage.columns))
        if said is not None and why is not None:
            raise PlanError(
                f"The Delta table at {seen_by_spark(spark, self.path)} was changed while the query ran: it {why}.",
                hint="Start the query again. It looks at the table then, and writes it in another way if need be.",
            )
        if said is not None:
            if self.mode == "table":
                self._check_keys(spark, table, said)
            stage.commit(table, written, said)
        stage.clean(micro_batch_id, query_id, written if said is None else None)
        _WRITTEN.add((query_id, self.path))

    def _kept(self, columns: StructType) -> StructType:
        """The columns of changes that the table has."""
        whole = self.mode == "changes"
        return StructType([one for one in columns.fields if whole or one.name not in CHANGE_COLUMNS])

    def _next(
        self, spark: SparkSession, table: Table, micro_batch_id: int, query_id: str
    ) -> DeltaMark | None:
        """The mark with which a micro-batch is committed; None if the table has it."""
        if table.columns is None and micro_batch_id > 0 and (query_id, self.path) in _WRITTEN:
            raise PlanError(
                f"The Delta table at {seen_by_spark(spark, self.path)}, to which this query has written, is not there"
                " any more.",
                hint="Restore it and start the query again; or start it with a new checkpoint, which writes all rows."
                ' Or give a maintained table on_mismatch="rebuild", which writes the rows that the state has.',
            )
        mark, found = self._found(spark, table, query_id)
        verdict = judged(found, micro_batch_id, self.moment, self.on_mismatch)
        if verdict is Verdict.DONE:
            return None
        settles = verdict is Verdict.SETTLE
        whole = settles and self.replaces
        app_id = usual_app_id(query_id) if mark is None else mark.app_id
        app_id = new_app_id(query_id) if settles else app_id
        return DeltaMark(query_id, micro_batch_id, self.proof, app_id, whole)

    def _open(self, spark: SparkSession, output: StructType, rows: DataFrame | None = None) -> Table:
        """Look at the table by delta-rs if it can write to it, and otherwise by Spark.

        `output` are the columns that will be written, and `rows` the rows, if they are known and persisted.
        """
        uri = self._uri(spark)
        if uri is None:
            return SparkTable(spark, self.path)
        table = RsTable(uri, self.storage_options or {})
        why = table.why_not(output)
        if why is None and not (self._is_free(spark) and self._suits_spark(spark, table)):
            table.has_few = rows is not None and rows.count() <= self.few_rows
            return table
        if why is not None and not self._is_free(spark):
            raise PlanError(
                f"The Delta table at {seen_by_spark(spark, self.path)} {why}: delta-rs does not write it.",
                hint=f"Give the session Delta Lake, with which Spark writes it:\n{_SESSION}",
            )
        return SparkTable(spark, self.path)

    @property
    def _without_jars(self) -> str:
        """What makes a table writable without Spark."""
        if find_spec("deltalake") is None:
            return f"{install_hint('delta')} It writes Delta tables without jars."
        return "delta-rs writes only to local paths without signs of patterns, and to the stores s3, gs and abfss."

    def _suits_spark(self, spark: SparkSession, table: RsTable) -> bool:
        """Whether only Spark does what a session or a table is set up for, or the table is large for one machine."""
        is_large = self.mode == "table" and table.size_bytes > self.most_bytes
        return is_large or sets_up_writes(spark) or table.is_kept_by_spark

    def _is_free(self, spark: SparkSession) -> bool:
        """Whether either can write: the user did not choose, and the session has Delta Lake."""
        return self.writer is None and not lacking(spark)

    def _uri(self, spark: SparkSession) -> str | None:
        """The table's place for delta-rs; None if Spark writes to it."""
        if self.writer == "spark" or find_spec("deltalake") is None:
            return None
        place = Place.of(self.path)
        if place.scheme not in _STORES:  # Spark need not know these
            place = Place.of(full_path(spark, self.path) or "")
        if place.scheme == "file":
            # delta-rs takes some signs for patterns. Under Connect, Spark may run on another machine.
            return place.path if has_context(spark) and not _PATTERNS & {*place.path} else None
        if self._is_free(spark) and self.storage_options is None:
            return None  # the session may know how the store is opened, and delta-rs does not
        scheme = _STORES.get(place.scheme)
        return f"{scheme}://{place.host}{place.path}" if scheme else None

    def _found(self, spark: SparkSession, table: Table, query_id: str) -> tuple[DeltaMark | None, Found]:
        """Look for the query's mark, and for rows if there is none."""
        mark = None if table.columns is None else last_mark(table, query_id)
        is_empty = mark is None and table.is_empty()
        place = f"The Delta table at {seen_by_spark(spark, self.path)}"
        return mark, Found(place, None if mark is None else mark.mark, is_empty, follows=self.mode == "table")

    def _maintain(self, table: Table, changes: DataFrame, said: DeltaMark) -> None:
        """Bring the table to the state after this micro-batch.

        The first micro-batch only inserts rows, so it is an append: that creates the table and costs less than a
        MERGE. One without changes only commits its mark.
        """
        spark = changes.sparkSession
        if not self.key_columns:
            raise ArgumentError(
                "A maintained table needs the key of its changes.", hint="Call keyed_by(names)."
            )
        if table.columns is None:
            rows = last_changes(changes, self.key_columns).filter(F.col(CHANGE_TYPE) != "delete")
            table.append(rows.drop(*CHANGE_COLUMNS), said)
            return
        self._check_columns(spark, table.columns, changes.schema)
        self._check_keys(spark, table, said)
        if self.widens:
            table.add_columns(lacked(self._kept(changes.schema), table.columns))
        if not said.whole and changes.isEmpty():
            table.mark(changes.schema, said)
            return
        table.merge(changes, self.key_columns, said)

    def _check_keys(self, spark: SparkSession, table: Table, said: DeltaMark) -> None:
        """Refuse to bring over a table in which a key has several rows."""
        if said.whole and table.columns is not None and table.has_twice(self.key_columns):
            raise TargetError(
                f"The Delta table at {seen_by_spark(spark, self.path)} has several rows with one key.",
                hint="Delete its rows, or write to another path.",
            )

    def _check_columns(
        self, spark: SparkSession, table: StructType, output: StructType, *, of_log: bool = False
    ) -> None:
        """Refuse a table that lacks a column of the output, or one whose column does not hold all values.

        A table that is brought over gets the columns that it lacks, if every writer can add them. A query that has
        evolved may have more hops in ``_order``: its log gets these fields.
        """
        columns = StructType([one for one in output.fields if of_log or one.name not in CHANGE_COLUMNS])
        others = lacked(columns, table)
        missing = others.names
        if missing and not (self.widens and can_be_added(others, (*table.names, *self.key_columns))):
            added = ", ".join(f"{quoted(name)} {output[name].dataType.simpleString()}" for name in missing)
            raise PlanError(
                f"The Delta table at {seen_by_spark(spark, self.path)} has no column"
                f" {', '.join(map(repr, missing))}.",
                hint="Exclude what it lacks with select(...), write to another path, or:"
                f" {_alter(spark, self.path)} ADD COLUMNS ({added})",
            )
        for wrong in misfits(columns, table):
            if wrong.stored is not None or not wrong.name.startswith(f"{ORDER}."):
                raise _does_not_hold(spark, self.path, wrong)


def to_delta(
    path: str | os.PathLike[str],
    *,
    mode: DeltaMode = "table",
    writer: DeltaWriter | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_mismatch: OnMismatch = "refuse",
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
    writer
        ``"delta-rs"`` (the package ``deltalake``) needs no jars and no settings, and merges a small micro-batch without
        Spark's MERGE; ``"spark"`` needs a session with Delta Lake. Default: delta-rs where it can write, otherwise
        Spark: without the package, at a place that only the session knows how to open, and for a table that asks for
        what delta-rs does not do, or is maintained and larger than 1 GiB. Both write the same table, in turn if need
        be.
    storage_options
        For delta-rs, how an object store is opened, such as ``{"AWS_REGION": "eu-west-1"}``; also from the environment.
        The workers get them, and need the package ``deltalake`` for large micro-batches.
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
        nothing can be created at a local path; Delta cannot have the names of the columns; delta-rs was chosen, and
        does not know the place.
    SessionSettingError
        When the query starts: the session lacks Delta Lake.
    PlanError
        When the query starts, or in a micro-batch: a maintained table lacks a column of the output (`evolve` adds it),
        or has one of a type that does not hold all its values.
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

    Before each commit Spark's writer lists the table's files, in 50 tasks by default. Here it takes as many as the
    query's shuffles have, and never more than 50. ``spark.databricks.delta.snapshotPartitions`` in the session
    overrides this.

    Examples
    --------
    >>> to_delta("out/mailing").needs_final
    True
    >>> to_delta("out/mailing_changes", mode="changes").needs_final
    False
    """
    check_mapping(storage_options, "storage_options")
    check_known("mode", mode, get_args(DeltaMode))
    if writer is not None:
        check_known("writer", writer, get_args(DeltaWriter))
    if writer == "delta-rs":
        check_installed("deltalake", "delta", "writer='delta-rs'")
    return DeltaSink(
        checked_path(path, "a Delta sink"),
        mode,
        writer,
        None if storage_options is None else dict(storage_options),
        on_mismatch=on_mismatch,
    )


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
