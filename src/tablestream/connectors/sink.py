"""The contract of all sinks, on which the runner relies.

A sink is a description, a frozen value. It touches nothing until ``write`` is called with the changes of one
micro-batch. Then it must leave its target as if each micro-batch had been written exactly once, however often, and
after whatever crash, it is called again with the same one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tablestream.arguments.kinds import check_text
from tablestream.base.redaction import holds_secret
from tablestream.connectors.place import Place
from tablestream.errors import ArgumentError

CHANGE_TYPE = "_change_type"
TIMESTAMP = "_timestamp"
ORDER = "_order"
LATEST = "_is_latest"
NUMBER = "number"
"""The field of `ORDER` with the number of a change among its key's of the micro-batch, for a `RecordSink`."""
CHANGE_COLUMNS = (CHANGE_TYPE, TIMESTAMP, ORDER)
"""The columns of a frame of changes that belong neither to the key nor to the value."""

_DIRECTORY = "Give a directory."


@runtime_checkable
class Sink(Protocol):
    """Where the changes of one output are written."""

    @property
    def target(self) -> str:
        """Kind and place, such as ``delta out/mailing``: to explain, and to find two outputs with the same target."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key of the changes. Empty when the user creates the sink; the runner sets it with `keyed_by`."""

    @property
    def needs_final(self) -> bool:
        """Whether only the last change per key and micro-batch matters, so that a plan may omit the others.

        The sink must also handle all of them.
        """

    def keyed_by(self, names: Sequence[str]) -> Self:
        """Return the same sink with the key columns."""

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:
        """Refuse a session that cannot write to this target, or columns that do not fit, before the query starts.

        Parameters
        ----------
        spark
            The session.
        columns
            The names of the key and value columns.
        """

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:
        """Write one micro-batch, so that writing it again changes nothing.

        Parameters
        ----------
        changes
            Rows in the shape of ``Table.changes()``, in order per key within a partition, persisted and already
            computed: reading them twice is cheap and runs no operator again. For a `RecordSink` see there.
        micro_batch_id
            Counts up from 0 within a checkpoint.
        query_id
            Lives as long as the checkpoint. A new checkpoint counts its micro-batches from 0 again, so the number
            alone never identifies a micro-batch.
        output_name
            The output's name in the query, for messages. It may differ when a micro-batch is written again: the query
            writes each target once, so the query and the target identify the output.
        """


@runtime_checkable
class RecordSink(Sink, Protocol):
    """A sink that turns changes into its own records, which have to fit, and whose duplicates must be recognisable.

    The ``_order`` of its changes ends with a field ``number``: 0, 1, ... for the changes of each key in the
    micro-batch. A micro-batch that is written again has the same numbers.

    `write` always runs one Spark job over all changes and deletes nothing beforehand. So if it is the only output of a
    query, it gets the changes while they are computed, and nothing is persisted.
    """

    def shaped(self, key: StructType, value: StructType, *, records: bool) -> Self:
        """Before the query starts, return the same sink with its columns, and refuse columns that do not fit.

        Parameters
        ----------
        key, value
            The columns; no key for rejected records, and for streams without one.
        records
            Whether the changes are a stream's records, whose keys may be null.
        """


class StagedFiles(Protocol):
    """What a worker writes in one task, where no reader looks."""

    def add(self, rows: pa.Table) -> None:
        """Write changes; those of a key come in their order."""

    def end_keys(self) -> None:
        """Hear that all changes have come of the keys that were added; it may not be called."""

    def close(self) -> str:
        """End what was written, and return what `StagedSink.commit` needs to know of it."""

    def abandon(self) -> None:
        """Let go of what was written, also by a failed `close`: the task has failed. Raises nothing."""


class Stage(Protocol):
    """What the workers do for an output; Spark sends it to them."""

    def line(self, columns: Mapping[str, str]) -> str | None:
        """Return the text that is written of a row, as SQL over the columns, which are SQL themselves.

        None: the columns are written as they are.
        """

    def open(self, micro_batch_id: int, query_id: str) -> StagedFiles:
        """Begin to write, in a task that has rows. Tasks may be run twice, and may fail."""


@runtime_checkable
class StagedSink(Sink, Protocol):
    """A sink in two halves: the workers write rows where no reader looks, and the driver shows them in one act.

    No row passes through Spark then, and one job writes all outputs of this kind. `Sink.write` remains for outputs
    whose columns Spark has to compute, and for places that workers do not reach.
    """

    def stage(self, spark: SparkSession, columns: StructType, schema: pa.Schema) -> Stage | str:
        """Return what the workers do while the query runs, or why they cannot write to this target.

        Parameters
        ----------
        spark
            The session.
        columns, schema
            The columns of the changes, as Spark and as Arrow have them.
        """

    def commit(
        self, spark: SparkSession, stage: Stage, written: Sequence[str], micro_batch_id: int, query_id: str
    ) -> None:
        """Show what the workers wrote for one micro-batch, so that doing it again changes nothing.

        Parameters
        ----------
        spark, stage
            The session, and what `stage` returned.
        written
            What the tasks returned, each once. Anything else that is staged belongs to attempts that failed.
        micro_batch_id, query_id
            As for `Sink.write`.
        """


@runtime_checkable
class TypedSink(Sink, Protocol):
    """A sink whose target can exist before the query, with types of its own."""

    def check_types(self, spark: SparkSession, columns: StructType) -> None:
        """Refuse a target that does not hold all values of the key and value columns, before the query starts."""


@runtime_checkable
class DirectorySink(Sink, Protocol):
    """A sink that writes into a directory, in which nothing else may be."""

    @property
    def path(self) -> str:
        """The directory."""

    @property
    def harm(self) -> str:
        """What would happen to other files there, such as ``its readers would find``."""


@runtime_checkable
class NamedSink(Sink, Protocol):
    """A sink whose target can have several names."""

    @property
    def identity(self) -> str:
        """What the target is, whichever name the user gave, once the query starts."""


@runtime_checkable
class SharedSink(Sink, Protocol):
    """A sink to which several outputs of a query may write, because it keeps nothing."""

    @property
    def is_shared(self) -> bool:
        """True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedSink:
    """What the library's own sinks share: the key columns, which the runner sets; most of them take every change."""

    key_columns: tuple[str, ...] = ()

    @property
    def needs_final(self) -> bool:
        """Whether the sink keeps one row per key."""
        return False

    def keyed_by(self, names: Sequence[str]) -> Self:
        """Return the same sink with the key columns."""
        return replace(self, key_columns=tuple(names))


def quoted(name: str) -> str:
    """Quote a column name for Spark, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def aliased(columns: Mapping[str, str]) -> list[str]:
    """Return columns, as SQL, under their names."""
    return [f"{column} AS {quoted(name)}" for name, column in columns.items()]


def struct_of(columns: Sequence[str]) -> str:
    """Return a struct, as SQL; there is none without columns."""
    return f"struct({', '.join(columns) or 'NULL AS __nothing'})"


def literal(text: str) -> str:
    """Return a text as SQL. How a quote is written inside quotes depends on the session's settings."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def checked_path(path: str | os.PathLike[str], what: str) -> str:
    """Return a path as text, as short as it can be said: ``out/x`` for ``./out//x/``.

    A URL that contains a password is refused by a message that does not show it.
    """
    given: object = path
    if not isinstance(given, str | os.PathLike):
        raise ArgumentError(f"The path of {what} is no path: {given!r}.", hint=_DIRECTORY)
    text = os.fsdecode(path)
    if not text:
        raise ArgumentError(f"The path of {what} is empty.", hint=_DIRECTORY)
    check_text(text, f"The path of {what}")
    if holds_secret(text):
        raise ArgumentError(
            f"The path of {what} is a URL that contains a secret, which plans, logs and checkpoints would show.",
            hint="Put the secret into Hadoop's settings, such as spark.hadoop.fs.s3a.secret.key.",
        )
    return str(Place.of(text))
