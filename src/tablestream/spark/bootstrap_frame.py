"""The rows that a table starts with, as its log is read: a batch data frame.

Of the columns of `tablestream.spark.sources` it has the key, the value, ``__live``, ``__ts``, which may be null, and
``__sequence``.

`apply_as_deletes` and `timestamp` count only if the frame has the columns that they read. Without them a row exists,
and its time is 1970: it is older than every record. So is a deleted row whose time is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark.analysis import Analysed, analysed
from tablestream.spark.columns import truth

_COLUMNS_HINT = (
    "Give it the columns of the key and the value under the names that the log has, and write them by their names:"
    " df[...] belongs to the log."
)
_SEQUENCE_HINT = "Add what sequence_by= reads; with a value below all others the log always wins."
_NAMES_HINT = "Write columns by their names: df[...] belongs to the log."
_UNKNOWN_COLUMN = "UNRESOLVED_COLUMN"


@dataclass(frozen=True)
class Bootstrap:
    """The rows that a table starts with."""

    frame: DataFrame
    """See above."""
    absent: Mapping[str, T.DataType]
    """The columns that only records of the log have: null in every row of a bootstrap."""


@dataclass(frozen=True)
class Reading:
    """How the log of a table is read, as Spark analysed it."""

    at: Place
    key: Sequence[Analysed]
    value: Sequence[Analysed]
    timestamp: Analysed | None
    deletes: Analysed | None
    sequence: Analysed | None


def laid_out(batch: object, log: Reading) -> DataFrame:
    """Read a batch frame as a log is read; refuse one that lacks columns, or has other types."""
    frame, wanted = _checked(batch, log), [*log.key, *log.value]
    found = _analysed(frame, log, wanted, _COLUMNS_HINT)
    sequence = [] if log.sequence is None else [log.sequence]
    found += _analysed(frame, log, sequence, _SEQUENCE_HINT) if sequence else []
    for mine, its in zip(found, [*wanted, *sequence], strict=True):
        _check_type(mine, its, log)
    live = F.lit(True)
    if log.deletes is not None and _can_read(frame, log.deletes, log):
        live = ~truth(log.deletes.column)
    time = F.lit(0).cast("bigint")
    if log.timestamp is not None and _can_read(frame, log.timestamp, log):
        time = F.unix_micros(log.timestamp.column.cast(T.TimestampType()))
        time = F.coalesce(time, F.when(~live, 0))  # a delete needs no time
    return frame.select(
        *(one.column.alias(f"__key_{number}") for number, one in enumerate(log.key)),
        *(F.when(live, one.column).alias(f"__value_{number}") for number, one in enumerate(log.value)),
        live.alias("__live"),
        time.alias("__ts"),
        *(one.column.alias("__sequence") for one in sequence),
    )


def _checked(batch: object, log: Reading) -> DataFrame:
    """Raise unless it is a batch frame."""
    if isinstance(batch, DataFrame) and not batch.isStreaming:
        return batch
    kind = "a streaming one" if isinstance(batch, DataFrame) else f"a {type(batch).__name__}"
    raise log.at.error(
        ArgumentError,
        f"bootstrap= takes a batch DataFrame, not {kind}.",
        "Read it with spark.read; the log is the first argument.",
    )


def _can_read(batch: DataFrame, one: Analysed, log: Reading) -> bool:
    """Whether a frame has the columns that an expression reads."""
    try:
        _analysed(batch, log, [one], _NAMES_HINT)
    except PlanError as error:
        cause = error.__cause__
        if isinstance(cause, AnalysisException) and (cause.getCondition() or "").startswith(_UNKNOWN_COLUMN):
            return False
        raise
    return True


def _analysed(batch: DataFrame, log: Reading, wanted: Sequence[Analysed], hint: str) -> list[Analysed]:
    """Let Spark analyse the log's expressions over the batch frame, which is evaluated once."""
    columns: list[Column] = [one.column for one in wanted]
    advice = f"{hint} bootstrap= has the columns {', '.join(batch.columns)}."
    return analysed(batch, columns, at=log.at, hint=advice, deterministic=False)


def _check_type(mine: Analysed, its: Analysed, log: Reading) -> None:
    """Refuse a column of another type. Whether it can be null does not matter."""
    types = mine.type.simpleString(), its.type.simpleString()
    if types[0] != types[1]:
        raise log.at.error(
            ArgumentError,
            f"The column {its.name} of bootstrap= has the type {types[0]}, and in the log it is {types[1]}.",
            f'Cast it, as in F.col("{its.name}").cast("{types[1]}").',
        )
