"""Why a table of a query has a row, or has none."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

from tablestream.arguments.kinds import check_session, whole
from tablestream.base.calling import user_line
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError
from tablestream.provenance.answer import Why
from tablestream.provenance.finding import Asked, Key
from tablestream.provenance.registry import FOLLOW
from tablestream.provenance.steps import Lineage, Step
from tablestream.provenance.walk import Walk
from tablestream.spark.columns import schema_of, spark_type
from tablestream.spark.state_reader import check_kinds
from tablestream.spark.state_rows import CheckpointRows, hashable, with_zone
from tablestream.spark.stored_key import GivenKey
from tablestream.spark.stored_provenance import stored_steps
from tablestream.spark.stored_state import StoredState


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
    """Find an output, or another table of the plan.

    Raises
    ------
    ArgumentError
        There is none of this name, or it is a stream.
    """
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
    """Return a key in the types of its columns.

    Raises
    ------
    ArgumentError
        It has other columns, or a value of another type.
    """
    values = GivenKey.of(output, step.key, given).literals(spark, schema_of(step.key).fields)
    names = [f"key{number}" for number in range(len(values))]
    columns = (value.alias(name) for value, name in zip(values, names, strict=True))
    (row,) = spark.sql("VALUES (1)").select(*columns).collect()
    kinds = [spark_type(one) for one in step.key]
    return tuple(hashable(with_zone(value, kind)) for value, kind in zip(row, kinds, strict=True))
