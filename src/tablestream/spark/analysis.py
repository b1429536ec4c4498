"""What Spark says of a user's columns before anything runs: their types, and whether they can be retracted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.errors import ArgumentError, NondeterministicError, PlanError

#: Spark's name of the error for an aggregate of what is not deterministic.
_NONDETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_CASE_SENSITIVE = "spark.sql.caseSensitive"


def analysed(
    frame: DataFrame,
    columns: Sequence[Column],
    *,
    operator: str,
    where: str,
    hint: str = "",
    deterministic: bool = True,
) -> T.StructType:
    """Let Spark look at columns over a frame.

    Parameters
    ----------
    frame
        Has the columns that the expressions may use.
    columns
        The expressions, each of one row.
    operator, where, hint
        For errors. Default hint: the frame's columns.
    deterministic
        Whether expressions that Spark knows to be non-deterministic are refused.

    Returns
    -------
    StructType
        A field per expression.

    Raises
    ------
    PlanError
        For an expression that Spark refuses, or that is not one row's: an aggregate, a window, a generator.
    NondeterministicError
        For one that may give another value for the same row.
    ArgumentError
        For ``*``.

    Notes
    -----
    Spark refuses an aggregate of what is not deterministic, wherever it is hidden (nested, in a lambda, a Python
    function that is marked so), and of aggregates, windows and generators. So a ``count`` of each expression,
    analysed and never run, tells.
    """
    try:
        with unlogged():
            schema = frame.select(*columns).schema
    except PySparkException as error:
        told = hint or f"Columns are: {', '.join(frame.columns)}."
        raise PlanError(_shown(error), hint=told, operator=operator, where=where) from error
    if len(schema) != len(columns):
        raise ArgumentError(
            "One expression stands for several columns.",
            hint="Name each column.",
            operator=operator,
            where=where,
        )
    if _refusal(frame, columns) is not None:
        for column, one in zip(columns, schema, strict=True):
            _check_counted(frame, column, one.name, operator, where, deterministic=deterministic)
    return schema


def _refusal(frame: DataFrame, columns: Sequence[Column]) -> AnalysisException | None:
    """What Spark has against counts of some expressions."""
    try:
        with unlogged():
            _ = frame.agg(F.count(F.lit(1)), *(F.count(column) for column in columns)).schema
    except AnalysisException as error:
        return error
    return None


def _check_counted(
    frame: DataFrame, column: Column, name: str, operator: str, where: str, *, deterministic: bool
) -> None:
    error = _refusal(frame, [column])
    if error is None:
        return
    if error.getCondition() != _NONDETERMINISTIC:
        raise PlanError(
            f"'{name}' is not an expression of one row: {_shown(error)}",
            hint="Aggregates, windows and generators have no place here.",
            operator=operator,
            where=where,
        ) from error
    if deterministic:
        raise NondeterministicError(
            f"'{name}' may have another value when the same row is looked at again, so a result could not be taken"
            " back.",
            hint="Compute it before the table is made, and write it down with the record.",
            operator=operator,
            where=where,
        ) from error


def _shown(error: PySparkException) -> str:
    return str(error).split("\n")[0]


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is caught, or raised again in our words."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def folding(spark: SparkSession) -> Callable[[str], str]:
    """Return a function that makes column names equal which the session takes for the same."""
    return str if spark.conf.get(_CASE_SENSITIVE, "false") == "true" else str.lower
