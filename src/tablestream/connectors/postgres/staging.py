"""What a Spark task does with its changes: hand a few to the driver, or copy many into a table of its own.

A task keeps the text of its rows until it is longer than a limit. Up to there, the text is the task's result. Beyond,
the task connects, creates a staging table whose name no other attempt has, and copies the rows into it; its result is
that name. Table and rows are committed together, when the task has read all its changes.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.base.data_text import data_text, leave_out_data, leaves_out_data
from tablestream.connectors.postgres.server import Server
from tablestream.connectors.postgres.sql import EXTRA, Statements, copy_into
from tablestream.connectors.postgres.text import UnstorableError, copy_text
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, NUMBER, ORDER, TIMESTAMP
from tablestream.errors import DatabaseError, RecordEncodingError

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Task:
    """What every task of a micro-batch knows."""

    server: Server
    statements: Statements
    """Where to, and the SQL."""
    prefix: str
    """How the names of staging tables begin."""
    inline_bytes: int
    """The longest text that a task hands to the driver."""
    left_out: bool = field(default_factory=leaves_out_data)
    """Whether messages leave values out."""


@dataclass(frozen=True)
class StagedPart:
    """The staged changes of one task."""

    rows: int
    deletes: int
    repeated: bool
    """How many changes, how many of them are deletes, and whether a key may have several."""
    stage: str | None
    """The table that has them."""
    text: str | None
    """The changes themselves in Base64, if there is none."""

    @property
    def lines(self) -> bytes:
        """The changes themselves."""
        return base64.b64decode(self.text or "")


@dataclass(frozen=True)
class PostgresStage:
    """What the workers do for a table of PostgreSQL, where they compute its changes: see `Task`."""

    server: Server
    statements: Statements | None
    """None where nobody has looked at the table yet, as when a plan is explained."""
    inline_bytes: int
    left_out: bool = field(default_factory=leaves_out_data)

    def line(self, columns: Mapping[str, str]) -> None:
        """See `Stage`."""

    def open(self, micro_batch_id: int, query_id: str) -> StagedChanges:  # noqa: ARG002 (the protocol's)
        assert self.statements is not None  # noqa: S101 - the query has started
        leave_out_data(self.left_out)
        prefix = self.statements.stage_prefix(query_id)
        return StagedChanges(Task(self.server, self.statements, prefix, self.inline_bytes, self.left_out))


class _TaskFailed(Exception):  # noqa: N818 - the reason of a rollback
    """Nothing of a task is wanted."""


class StagedChanges:
    """The changes of one task, which come as the columns of an output."""

    def __init__(self, task: Task) -> None:
        self._staging, self._around = _Staging(task), ExitStack()

    def add(self, rows: pa.Table) -> None:
        """See `StagedFiles`. Only changes that are the latest of their row count."""
        if LATEST in rows.column_names:
            rows = rows.filter(rows[LATEST])
        columns = [rows[one.name] for one in self._staging.task.statements.columns]
        gone = pc.equal(rows[CHANGE_TYPE], "delete")
        number = pc.struct_field(rows[ORDER], NUMBER)
        names = [f"c{number}" for number, _ in enumerate(columns)] + ["gone", "at", "n"]
        try:
            for batch in pa.table([*columns, gone, rows[TIMESTAMP], number], names=names).to_batches():
                self._staging.add(batch, self._around)
        except Exception as error:
            # The transaction makes a DatabaseError of what PostgreSQL refuses, without passwords.
            self._around.__exit__(type(error), error, error.__traceback__)
            raise

    def end_keys(self) -> None:
        """Do nothing: the database takes the last change of a key."""

    def close(self) -> str:
        """Commit what is in a table, and return what `PostgresSink.commit` needs, as JSON; ``null`` for no changes."""
        self._around.close()
        return self._staging.said()

    def abandon(self) -> None:
        """Roll back: an open COPY would keep the connection, and the process, waiting for each other."""
        with suppress(DatabaseError):
            self._around.__exit__(_TaskFailed, _TaskFailed(), None)


def parts_of(written: Iterable[str]) -> list[StagedPart]:
    """Read what tasks returned."""
    return [StagedPart(**said) for said in map(json.loads, written) if said is not None]


def staged(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """Stage the changes of one task, and yield what `parts_of` reads; nothing if there are none.

    The columns of the changes are those of the output, then whether it is a delete, its time, and the number of the
    change among its key's.
    """
    leave_out_data(task.left_out)
    staging = _Staging(task)
    with ExitStack() as around:
        for batch in batches:
            staging.add(batch, around)
    if staging.rows:
        yield pa.RecordBatch.from_pydict({"said": [staging.said()]})


@dataclass
class _Staging:
    """The changes of one task so far."""

    task: Task
    rows: int = 0
    deletes: int = 0
    repeated: bool = False
    stage: str | None = None
    waiting: bytearray = field(default_factory=bytearray)
    copy: psycopg.Copy | None = None

    def add(self, batch: pa.RecordBatch, around: ExitStack) -> None:
        """Take some changes; `around` ends the connection, if there is one."""
        if not batch.num_rows:
            return
        self.waiting += self._text(batch)
        *_, gone, _, number = batch.columns
        self.rows += batch.num_rows
        self.deletes += pc.sum(gone).as_py()
        self.repeated |= bool(pc.any(pc.greater(number, 0)).as_py())
        if len(self.waiting) > self.task.inline_bytes or self.copy is not None:
            self._flush(around)

    def said(self) -> str:
        """What the driver needs to know, as JSON; ``null`` if there are no changes."""
        text = None if self.stage else base64.b64encode(self.waiting).decode()
        part = StagedPart(self.rows, self.deletes, self.repeated, self.stage, text)
        return json.dumps(asdict(part) if self.rows else None)

    def _flush(self, around: ExitStack) -> None:
        if self.copy is None:
            self.stage = f"{self.task.prefix}{uuid.uuid4().hex[:16]}"
            connection = around.enter_context(self.task.server.transaction("stage the changes of a task"))
            connection.execute(self.task.statements.create_stage(self.stage))
            into = copy_into(self.task.statements.stage(self.stage))
            self.copy = around.enter_context(connection.cursor().copy(into))
        self.copy.write(bytes(self.waiting))
        self.waiting.clear()

    def _text(self, batch: pa.RecordBatch) -> bytes:
        """The text of some changes, each with its number among all of the task, which is their order per key."""
        columns = self.task.statements.columns
        numbers = pa.array(range(self.rows, self.rows + batch.num_rows), pa.int64())
        types = [one.type for one in columns] + [kind for _, kind in EXTRA]
        try:
            return copy_text([*batch.columns[:-1], numbers], types)
        except UnstorableError as error:
            name = columns[error.column].name if error.column < len(columns) else "_timestamp"
            raise RecordEncodingError(
                f"PostgreSQL cannot store the value of column '{name}' in the row with the key"
                f" ({self._key(batch, error.row)}): it {error.why}.",
                hint="Correct or remove such values with select(...) or filter(...).",
                operator=f"postgres {self.task.statements.target}",
            ) from None

    def _key(self, batch: pa.RecordBatch, row: int) -> str:
        keys = (
            (one.name, batch.column(number))
            for number, one in enumerate(self.task.statements.columns)
            if one.is_key
        )
        return ", ".join(f"{name}={_shown(column[row])}" for name, column in keys)


def _shown(value: pa.Scalar) -> str:
    try:
        return data_text(value.as_py())
    except (ValueError, OverflowError):  # Python has no such date, or no such text
        return "..."
