"""PostgreSQL as a sink: a table that follows the output, each micro-batch in one transaction with its mark.

Tasks stage their changes, and the driver merges them (`staging`, `sql`). A large micro-batch never
passes the driver: each task copies its part into a table of its own. A small one never waits for a connection of an
executor: its text comes to the driver with the tasks' results, which Spark counts once per task. Then the driver runs
one transaction: it writes the mark (query, target, micro-batch), merges every staged part, and drops the tables of
tasks. A key's changes are all in one task. Rows of different parts can have the same value in a unique index, so the
deletes of all parts come first.

===============================================  ==================================================================
what happens                                     what follows
===============================================  ==================================================================
a task fails before or in its COPY               its table is rolled back; Spark repeats the task
a task fails after its commit, or runs twice     another attempt has a table of another name; the driver merges only
                                                 those that Spark reports as results, and drops the others
the driver fails before the merge                the restarted query stages all again, and drops what is left over
the driver fails in the merge                    all is rolled back with the mark, then the same
the driver fails after the commit                the restarted query finds the mark, and only drops what it staged
the server crashes between COPY and merge        tables of tasks are unlogged and come back empty: the rows are counted,
                                                 and the micro-batch fails
two drivers at once (an old one wakes up)        the mark's row is locked: the second waits, then finds the mark. An
                                                 older micro-batch is refused (`tablestream.connectors.marks`)
a driver stands still inside the merge           the server ends its transaction after a minute
the connection is lost                           the micro-batch fails with `DatabaseError`; a restart writes it
===============================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tablestream.arguments.kinds import check_string, flag
from tablestream.connectors.marks import Found, Mark, MarkingSink, OnMismatch, Verdict, judged
from tablestream.connectors.postgres.marks import Marks, check_marks, check_plain, identity
from tablestream.connectors.postgres.server import Server
from tablestream.connectors.postgres.sql import (
    MARKS,
    STAGE,
    Statements,
    TableName,
    checked,
    checked_column,
    copy_into,
    quoted,
)
from tablestream.connectors.postgres.staging import PostgresStage, StagedPart, Task, parts_of, staged
from tablestream.connectors.postgres.table import (
    check_rights,
    described,
    fitted,
    look_at,
    missing,
    no_table,
    table_gone,
    widened,
    widening,
)
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, NUMBER, ORDER, TIMESTAMP, Stage
from tablestream.connectors.sink import quoted as spark_quoted
from tablestream.errors import ArgumentError, DatabaseError, PlanError

if TYPE_CHECKING:
    import psycopg

INLINE_BYTES = 1 << 17
#: How long the columns of a table wait for its readers.
_PATIENCE = "30s"
_CREATION_LOCK = 0x7461_626C_6573  # any number: sessions that create tables wait for each other
_SCHEMA = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
_STAGES = """
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND starts_with(c.relname::text, %s) AND c.relkind = 'r'
  AND pg_catalog.pg_get_userbyid(c.relowner) = CURRENT_USER
"""


@dataclass(frozen=True)
class PostgresSink(MarkingSink):
    """A PostgreSQL table as a sink; made by `to_postgres`."""

    table: TableName
    server: Server
    marks_schema: str
    create: bool = False
    soft_delete: str | None = None
    kinds: StructType | None = field(default=None, repr=False)
    statements: Statements | None = field(default=None, repr=False)
    inline_bytes: int = field(default=INLINE_BYTES, repr=False)
    identity: str = ""

    needs_final = True

    @property
    def target(self) -> str:
        return f"postgres {self.table} at {self.server.place}"

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (every session will do)
        """Refuse names that PostgreSQL cannot have."""
        for name in columns:
            checked_column(name)

    def shaped(self, key: StructType, value: StructType, *, records: bool) -> Self:
        """Return the same sink with the statements for its table, which has to fit.

        A table of the role that is brought over gets the columns that it lacks, with its rows.
        """
        if records or not len(key):
            raise ArgumentError(
                f"{self.target} keeps one row per key, and these records have none.",
                hint="Write them to a log, such as to_delta(path, mode='changes').",
            )
        wanted = described(self.table, self.marks_schema, key, value, self.soft_delete)
        kinds = StructType([*key.fields, *value.fields])
        with self.server.transaction("look at the table") as connection:
            for schema in {self.table.schema, self.marks_schema}:
                if connection.execute(_SCHEMA, (schema,)).fetchone() is None:
                    raise PlanError(f"There is no schema {schema!r}.", hint=f"CREATE SCHEMA {quoted(schema)}")
            table, version = look_at(connection, self.table), connection.info.server_version
            known = identity(connection, self.table)
            if table is not None and self.widens and table.is_ours:
                table = widened(wanted, table)
            found = (
                missing(wanted, version, create=self.create)
                if table is None
                else fitted(wanted, table, kinds)
            )
            check_rights(connection, found, there=table is not None, place=self.server.place)
        return replace(self, kinds=kinds, statements=found, identity=known)

    def settle(self, spark: SparkSession, columns: StructType, stored: Callable[[], DataFrame]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse a table that does not fit the checkpoint, or settle it, before the query starts."""
        moment = self.starting
        with self.server.transaction("look at the marks") as connection:
            there = look_at(connection, self.table) is not None
            mark = Marks(connection, self._statements, moment.query_id).look()
            # The mark of a table that was dropped says nothing about a new one.
            found = self._found(connection, mark if there else None, there=there)
        if judged(found, moment.number, moment, self.on_mismatch, starting=True) is not Verdict.SETTLE:
            return
        done, whole = moment.earlier, self.on_mismatch == "rebuild"
        task = self._task(moment.query_id)
        parts = _stage(stored(), task) if whole else []
        with self.server.transaction(f"bring {self.table} to micro-batch {done.number}") as connection:
            marks = Marks(connection, task.statements, done.query_id)
            self._prepare(connection, marks, settling=True)
            marks.lock()
            if whole:
                _merge(connection, task, parts, whole=True)
            marks.set(Mark(done.number, done.proof), whole=whole)

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (it may change; the target may not)
        """Write one micro-batch in one transaction, which also writes its mark."""
        task = self._task(query_id)
        self._commit(task, _stage(changes, task), micro_batch_id, query_id)

    def stage(self, spark: SparkSession, columns: StructType, schema: pa.Schema) -> PostgresStage:  # noqa: ARG002 (the protocol's)
        return PostgresStage(self.server, self.statements, self.inline_bytes)

    def commit(
        self,
        spark: SparkSession,  # noqa: ARG002 (the protocol's)
        stage: Stage,  # noqa: ARG002 (the same)
        written: Sequence[str],
        micro_batch_id: int,
        query_id: str,
    ) -> None:
        """Merge what the workers staged in one transaction, which also writes the mark."""
        self._commit(self._task(query_id), parts_of(written), micro_batch_id, query_id)

    def _commit(self, task: Task, parts: Sequence[StagedPart], micro_batch_id: int, query_id: str) -> None:
        with self.server.transaction(f"write micro-batch {micro_batch_id}") as connection:
            marks = Marks(connection, task.statements, query_id)
            self._prepare(connection, marks)
            found = self._found(connection, marks.lock(), there=True)
            verdict = judged(found, micro_batch_id, self.moment, self.on_mismatch)
            if verdict is Verdict.DONE:
                _drop(connection, task.statements, {part.stage for part in parts if part.stage})
                return
            whole = verdict is Verdict.SETTLE and self.replaces
            if self.widens:
                self._widen(connection)
            _merge(connection, task, parts, whole=whole)
            marks.set(Mark(micro_batch_id, self.proof), whole=whole)

    @property
    def _statements(self) -> Statements:
        if self.statements is None:
            raise ArgumentError(
                "A PostgreSQL sink needs the columns of its changes.", hint="Call shaped(...)."
            )
        return self.statements

    def _task(self, query_id: str) -> Task:
        statements = self._statements
        return Task(self.server, statements, statements.stage_prefix(query_id), self.inline_bytes)

    def _found(self, connection: psycopg.Connection, mark: Mark | None, *, there: bool) -> Found:
        """Look for rows if there is no mark."""
        has_rows = there and mark is None and connection.execute(self._statements.has_rows()).fetchone()
        return Found(f"The table {self.table}", mark, is_empty=has_rows != (True,), follows=True)

    def _prepare(self, connection: psycopg.Connection, marks: Marks, *, settling: bool = False) -> None:
        """Create what is missing, and refuse a table that was changed or dropped since the query wrote to it."""
        assert self.kinds is not None  # noqa: S101 - `shaped` sets it with the statements
        statements = self._statements
        table = look_at(connection, self.table)
        known = look_at(connection, replace(self.table, schema=self.marks_schema, table=MARKS))
        if table is None or known is None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
            connection.execute(statements.create_marks())
            table = look_at(connection, self.table)
        check_marks(connection, statements)
        if table is None:
            if marks.look() is not None and not settling:
                raise table_gone(statements)
            if not self.create:
                raise no_table(statements)
            connection.execute(statements.create_table())
        elif (
            fitted(statements, widened(statements, table) if self.widens else table, self.kinds) != statements
        ):
            raise PlanError(
                f"The columns of {self.table} were changed since the query started.",
                hint="Start the query again.",
            )

    def _widen(self, connection: psycopg.Connection) -> None:
        """Add the columns that the table lacks, unless a reader keeps it for long: others would wait behind this."""
        table = look_at(connection, self.table)
        statement = "" if table is None else widening(self._statements, table)
        if statement:
            connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            connection.execute(statement)


def _stage(changes: DataFrame, task: Task) -> list[StagedPart]:
    """Run the tasks, always over all changes, and return what they report."""
    if LATEST in changes.columns:
        changes = changes.filter(LATEST)
    columns = [F.col(spark_quoted(one.name)).alias(f"c{n}") for n, one in enumerate(task.statements.columns)]
    rows = changes.filter(F.col(CHANGE_TYPE) != "update_preimage").select(
        *columns,
        (F.col(CHANGE_TYPE) == "delete").alias("gone"),
        F.col(TIMESTAMP).alias("at"),
        F.col(f"{ORDER}.{NUMBER}").cast("bigint").alias("n"),
    )
    return parts_of(row[0] for row in rows.mapInArrow(partial(staged, task=task), "said string").collect())


def _merge(connection: psycopg.Connection, task: Task, parts: Sequence[StagedPart], *, whole: bool) -> None:
    """Merge the parts of a micro-batch; they are all rows if it is `whole`."""
    statements = task.statements
    staged_parts = _staged_parts(connection, statements, parts)
    for stage, of_stage in staged_parts.items():
        _delete_part(connection, statements, stage, of_stage)
    if whole:
        repeated = {stage: any(one.repeated for one in some) for stage, some in staged_parts.items()}
        connection.execute(statements.delete_others(repeated))
    for stage, of_stage in staged_parts.items():
        _upsert_part(connection, statements, stage, of_stage)
    left_over = connection.execute(_STAGES, (statements.marks_schema, task.prefix)) if parts else ()
    _drop(connection, statements, {name for (name,) in left_over})


def _staged_parts(
    connection: psycopg.Connection, statements: Statements, parts: Sequence[StagedPart]
) -> dict[str, list[StagedPart]]:
    """The parts by their staging tables; those that came by the driver are copied into one."""
    names = [part.stage for part in parts if part.stage]
    for name in names:
        check_plain(connection, statements.marks_schema, name)
    found = {statements.stage(part.stage): [part] for part in parts if part.stage}
    inline = [part for part in parts if not part.stage]
    if inline:
        connection.execute(statements.create_temporary())
        with connection.cursor().copy(copy_into(f"pg_temp.{STAGE}")) as copy:
            for part in inline:
                copy.write(part.lines)
        found[f"pg_temp.{STAGE}"] = inline
    return found


def _delete_part(
    connection: psycopg.Connection, statements: Statements, stage: str, parts: Sequence[StagedPart]
) -> None:
    """Apply the deletes of one staging table, when it has all rows."""
    found = connection.execute(f"SELECT count(*) FROM {stage}").fetchone()
    wanted = sum(part.rows for part in parts)
    if found is None or found[0] != wanted:
        raise DatabaseError(
            f"The staging table {stage} has lost rows: {found and found[0]} of {wanted} are there.",
            hint="The server was probably restarted. Start the query again: it stages them anew.",
        )
    if any(part.deletes for part in parts):
        connection.execute(statements.delete(stage, repeated=any(part.repeated for part in parts)))


def _upsert_part(
    connection: psycopg.Connection, statements: Statements, stage: str, parts: Sequence[StagedPart]
) -> None:
    connection.execute(statements.upsert(stage, repeated=any(part.repeated for part in parts)))


def _drop(connection: psycopg.Connection, statements: Statements, stages: set[str]) -> None:
    for name in sorted(stages):
        connection.execute(f"DROP TABLE IF EXISTS {statements.stage(name)}")


def to_postgres(
    table: str,
    conninfo: str,
    *,
    create: bool = False,
    soft_delete: str | None = None,
    marks_schema: str | None = None,
    on_mismatch: OnMismatch = "refuse",
) -> PostgresSink:
    """Maintain a PostgreSQL table with an output, each micro-batch exactly once.

    Parameters
    ----------
    table
        The table, as ``"schema.table"``; the schema is ``public`` if it is missing. Names are taken as they are
        stored: ``"Orders"`` is not ``orders``. A part with a dot stands in quotes: ``'"a.b".orders'``.
    conninfo
        libpq's connection string or URL, such as ``"host=db dbname=shop user=writer"``. Driver and executors connect
        with it. It may contain a password, which is never shown; ``passfile=`` and ``service=`` read it from files,
        which then have to be on every machine.
    create
        Whether the output's first micro-batch creates the table if it does not exist, with the output's key as its
        primary key; if the key can be null, as that of a group or an outer join by a foreign key, with ``UNIQUE NULLS
        NOT DISTINCT``.
    soft_delete
        A column that a delete sets, instead of removing the row: with type ``timestamptz`` to the time of the
        change, with ``boolean`` to true. A key that comes back gets null or false again.
    on_mismatch
        What to do when the query starts and the table does not fit the checkpoint: one of them was restored from a
        backup, or the table has rows of others, or none of this query. ``"refuse"``: the start is an error.
        ``"rebuild"``: bring the table over whole, from the state, or by the first micro-batch of a new checkpoint.
        ``"accept"``: go on with what is there. Remove the argument when the query has started.
    marks_schema
        The schema for the marks (``tablestream_marks``) and for staging tables; default the table's. The role needs
        the right to create tables in it, and temporary ones in the database.

    Returns
    -------
    PostgresSink
        For ``table.to(...)``.

    Raises
    ------
    ArgumentError
        A name or the connection string is invalid, or psycopg is missing (the extra ``postgres``).
    PlanError
        When the query starts: the table does not exist, or does not fit. The message has a CREATE TABLE that does.
        In a micro-batch: the table was changed; or it is gone, and the query has written to it.
    TargetError
        When the query starts, or in a micro-batch: the table does not fit the checkpoint.
    UnsupportedTypeError
        When the query starts: a column has a type that PostgreSQL does not hold, such as an interval.
    DatabaseError
        The server refuses something, or does not answer; also when the query starts. The role lacks rights: the message
        has the statements that grant them.
    RecordEncodingError
        A value cannot be stored: a text with the character U+0000 or too long for its ``varchar(n)``, a time before
        4713 BC. The message names the column and the key.

    Notes
    -----
    The table has one row per key, of key and value columns with the output's names; its other columns are left alone.
    It needs a primary key or unique index over exactly the key. Keys are compared as PostgreSQL does; a null in a key
    needs ``UNIQUE NULLS NOT DISTINCT``, of PostgreSQL 15. Structs and maps become ``jsonb``.

    A micro-batch is one transaction, which also writes the number and the proof of the micro-batch to
    ``tablestream_marks``, by query and table. A repeated micro-batch finds its mark and changes nothing. A new
    checkpoint is a new query: it needs an empty table, or `on_mismatch`. Marks of queries that are gone may be
    deleted.

    The marks and the staging tables are used only if the connection's role, or a superuser, owns them, and they have no
    triggers, rules, policies, defaults and constraints: these would run with the role's rights.

    Small micro-batches pass the driver. Of large ones, each Spark task copies its part into an unlogged table
    ``tablestream_stage_...``, which the transaction drops. Executors need psycopg and a connection for these. What a
    failed attempt leaves behind is dropped with the next micro-batch.

    Poolers that hand out a connection per transaction can be used, such as PgBouncer.

    References
    ----------
    PostgreSQL's documentation of ``INSERT ... ON CONFLICT`` and ``COPY``.

    Examples
    --------
    >>> to_postgres("shop.amounts", "host=db dbname=shop user=writer password=secret").target
    'postgres shop.amounts at db:5432/shop'
    """
    name = TableName.of(table)
    if soft_delete is not None:
        check_string(soft_delete, "soft_delete", "the name of a column")
    if marks_schema is not None:
        check_string(marks_schema, "marks_schema", "the name of a schema")
    return PostgresSink(
        name,
        Server.of(conninfo),
        name.schema if marks_schema is None else checked(marks_schema),
        flag(create, "create"),
        None if soft_delete is None else checked(soft_delete),
        on_mismatch=on_mismatch,
    )
