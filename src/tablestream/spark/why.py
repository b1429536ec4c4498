"""Why a table of a query has a row, or has none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_session, whole
from tablestream.base.calling import user_line
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError
from tablestream.operators.versions import TO
from tablestream.planner.catalogue import StoredTable
from tablestream.provenance.answer import Why
from tablestream.provenance.finding import Asked, Key
from tablestream.provenance.registry import FOLLOW
from tablestream.provenance.steps import Lineage, Step
from tablestream.provenance.walk import Row, Walk
from tablestream.spark.columns import opened, schema_of, spark_type
from tablestream.spark.state_reader import check_kinds, key_frame, stored_frame
from tablestream.spark.stored_key import GivenKey, KeyRows, literal, one_row
from tablestream.spark.stored_plan import stored_steps
from tablestream.spark.stored_rows import stored_columns
from tablestream.spark.stored_state import StoredState
from tablestream.state.changes import TS

#: So many keys are looked up one by one, each in its shard. For more, the table is read once.
_FEW = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def why(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    output: str,
    key: Any,
    *,
    limit: int = 20,
    batch_id: int | None = None,
) -> Why:
    """Say why an output of a query has a row, or has none: follow it back to the rows of the sources.

    The query may be running, or have ended. Only its checkpoint is read.

    Parameters
    ----------
    spark
        A session; it need not be the one of the query.
    checkpoint
        The query's checkpoint directory.
    output
        The name of an output, or of any table of the plan.
    key
        The key of a row: a mapping from its columns to values, or the value of its only column. A part may be None.
    limit
        How many rows of a group are shown.
    batch_id
        Ask about the state after this micro-batch, as for `read_state`. Default: the last one.

    Returns
    -------
    Why
        Printed, it has a line for each row, and what it was made of below it. ``there`` says whether there is a row,
        ``rows`` are the rows of the sources, ``facts`` and ``to_json()`` the whole answer.

    Raises
    ------
    ArgumentError
        There is no such output or table, or it is a stream; the key has other columns, or a value of another type;
        `limit` or `batch_id` is no such number.
    StateError
        As for `read_state`; or the checkpoint was last started by a version that did not keep what this needs.
    CheckpointMovedError
        The checkpoint was moved or copied.

    Notes
    -----
    The answer is what the state has: joins, groups and first rows are followed. Expressions are not computed again: of
    a column that the state does not keep, the answer has the expression; where a condition decides and the state
    does not have the rows behind it, it says that this is not known. Of a join as of a time it has the
    version that was found. Of a table with a history it has the latest row; a target that was told a late change
    after it shows that change. Joins of histories and streams are not followed.
    Cost: each table on the way is read once, however many rows are asked for, as by `read_state`.

    Examples
    --------
    >>> import tablestream as ts
    >>> print(ts.why(spark, "out/checkpoint", "valued", {"position": 7}))  # doctest: +SKIP
    valued (inner join) position=7: no row
      - positions 7 names tickers ZZZ, which has no row; the join is inner.
      positions (source) position=7: ticker=ZZZ, amount=3
      tickers (source) ticker=ZZZ: no row
    """
    check_session(spark)
    check_kinds(checkpoint, batch_id, output, limit)
    state = StoredState.current(spark, checkpoint, whole(batch_id))
    prepare_workers(spark)
    lineage = stored_steps(spark, state.checkpoint)
    step = step_of(lineage, output)
    walk = Walk(lineage, CheckpointRows(state), FOLLOW, limit)
    (found,) = walk.find(step.name, [Asked(_key_of(spark, step, output, key))])
    return Why(found, state.micro_batch)


def step_of(lineage: Lineage, output: str) -> Step:
    """Find an output, or another table of the plan; raise `ArgumentError` if there is none, or it is a stream."""
    name = lineage.outputs.get(output)
    step = lineage.by_title.get(output) if name is None else lineage.steps[name]
    if step is None:
        raise ArgumentError(
            f"The query has no output or table {output!r}.",
            hint=f"Outputs are: {', '.join(lineage.outputs)}. Tables are: {', '.join(lineage.by_title)}.",
            where=user_line(),
        )
    if step.is_stream:
        raise ArgumentError(
            f"'{output}' is a stream: its records are not kept.",
            hint="Ask for a table.",
            where=user_line(),
        )
    return step


def _key_of(spark: SparkSession, step: Step, output: str, given: Any) -> Key:
    """Return a key in the types of its columns; raise `ArgumentError` if it does not fit them."""
    values = GivenKey.of(output, step.key, given).literals(spark, schema_of(step.key).fields)
    (row,) = one_row(spark, {f"key{number}": value for number, value in enumerate(values)}).collect()
    kinds = [spark_type(one) for one in step.key]
    return tuple(hashable(with_zone(value, kind)) for value, kind in zip(row, kinds, strict=True))


@dataclass(frozen=True)
class CheckpointRows:
    """The rows of a state after a micro-batch."""

    state: StoredState

    def rows(
        self, table: StoredTable, keys: Sequence[Key], first: int = 0, limit: int | None = None
    ) -> list[Row]:
        """Return the rows with some keys; see `StateRows`."""
        width = len(keys[0])
        kinds = [spark_type(one) for one in table.key[first : first + width]]
        values = [parts for key in keys if (parts := self._values(key, kinds)) is not None]
        if not values:
            return []
        if first == 0 and width >= len(table.hashed_key) and len(keys) <= _FEW and not table.scattered:
            frames = [self._of_key(table, one) for one in values]
            some = (one if limit is None else one.limit(limit) for one in frames)
            return [_row(table, tuple(row)) for frame in some for row in frame.collect()]
        frame = stored_frame(self.state, table).select(*_columns(table))
        wanted = ({f"w{number}": value for number, value in enumerate(one)} for one in values)
        given = reduce(DataFrame.union, (one_row(self.state.spark, one) for one in wanted))
        equal = (F.col(f"c{first + number}").eqNullSafe(F.col(f"w{number}")) for number in range(width))
        found = frame.join(F.broadcast(given), reduce(and_, equal), "left_semi")
        rows = (found if limit is None else found.limit(limit)).collect()
        return [_row(table, tuple(one)) for one in rows]

    def _of_key(self, table: StoredTable, values: Sequence[Column]) -> DataFrame:
        """The rows in the shard of a key with its hash, some of them perhaps of another key."""
        return key_frame(KeyRows(self.state, table, values)).select(*_columns(table))

    def _values(self, key: Key, kinds: Sequence[T.DataType]) -> list[Column] | None:
        """A key in the types of the columns that it is compared with; None if these cannot have it, and no row has."""
        try:
            return [
                literal(self.state.spark, fitting(value, kind), T.StructField("key", kind))
                for value, kind in zip(key, kinds, strict=True)
            ]
        except ArgumentError:
            return None


def _columns(table: StoredTable) -> list[Column]:
    """The key and the value by number, the time, and whether the version has ended."""
    columns = (one.alias(f"c{number}") for number, one in enumerate(stored_columns(table)))
    ended = F.lit(False) if table.history is None else opened(0, TO).isNotNull()
    return [*columns, opened(0, TS).alias("at"), ended.alias("ended")]


def _row(table: StoredTable, parts: tuple[Any, ...]) -> Row:
    width = len(table.key)
    *columns, at_us, ended = parts
    fields = (*table.key, *table.value)
    values = [with_zone(value, spark_type(one)) for value, one in zip(columns, fields, strict=True)]
    names = [one.name for one in table.value]
    key = tuple(map(hashable, values[:width]))
    return Row(key, dict(zip(names, values[width:], strict=True)), _time(at_us), bool(ended))


def _time(at_us: int | None) -> datetime | None:
    """A time in UTC; None if Python cannot have it."""
    try:
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return None


def with_zone(value: Any, kind: T.DataType) -> Any:
    """A value in which times that Spark gives in the zone of this process are in UTC."""
    if isinstance(kind, T.StructType) and value is not None:
        parts = (with_zone(part, one.dataType) for part, one in zip(value, kind, strict=True))
        return T.Row(*kind.names)(*parts)
    if isinstance(kind, T.ArrayType) and value is not None:
        return [with_zone(one, kind.elementType) for one in value]
    is_time = isinstance(kind, T.TimestampType) and isinstance(value, datetime)
    return value.astimezone(UTC) if is_time else value


def hashable(value: Any) -> Any:
    """A value of a key, in which arrays are tuples."""
    if isinstance(value, T.Row):
        return T.Row(*value.__fields__)(*map(hashable, value))
    return tuple(map(hashable, value)) if type(value) is list else value


def fitting(value: Any, kind: T.DataType) -> Any:
    """What `hashable` gave, as a literal of a type: arrays are lists, and a date is its midnight."""
    if isinstance(kind, T.StructType) and isinstance(value, tuple) and len(value) == len(kind):
        return tuple(fitting(part, one.dataType) for part, one in zip(value, kind, strict=True))
    if isinstance(kind, T.ArrayType) and value is not None:
        return [fitting(one, kind.elementType) for one in value]
    if isinstance(kind, T.TimestampNTZType) and type(value) is date:
        return datetime.combine(value, time())
    if isinstance(kind, T.DateType) and isinstance(value, datetime) and value.time() == time():
        return value.date()
    return value
