"""Spark's analysis of a user's columns before anything runs: their types, and whether they can be retracted."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import get_ident

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.connectors import sink
from tablestream.connectors.source import own_columns
from tablestream.errors import ArgumentError, NondeterministicError, PlanError
from tablestream.spark.columns import SparkExpression
from tablestream.spark.failing import is_harmless
from tablestream.spark.row import Plain
from tablestream.spark.volatile import volatile_parts
from tablestream.topology.nodes import Field

#: Spark's name of the error for an aggregate of what is not deterministic.
_NONDETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
#: Stands between the texts of several expressions.
_BETWEEN = "\u2063|\u2063"
#: What is in the text of every Column with a star, in small letters: in SQL, inside Python functions and under Spark
#: Connect, and of columns by a regular expression, which may be in backquotes.
_STARS = "*", "unresolvedstar", "unresolvedregex", "`"
#: A column that no expression names.
_ONE_MORE = "__one_column_more"
_ALIAS = re.compile(r" AS (`([^`]|``)+`|\w+)$")
#: The SQL state of an error, and where it is in what Spark made of the user's text.
_STATE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+;?)?")
_COMPUTE_BEFORE = (
    "Compute it before you create the table, as in df.withColumn(...): the table then keeps it"
    " with the record."
)
#: Where PySpark logs an analysis error: of a Column, and of SQL.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_CASE_SENSITIVE = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class Analysed:
    """A column as Spark analyses it."""

    given: Column | Plain
    """The Column, or a column of the frame as it is."""
    name: str
    type: T.DataType
    nullable: bool
    text: str
    """The expression as SQL, empty if it is not deterministic. The Column's own text cannot be used to compare plans:
    it numbers the lambdas of a process, and shows a function as an object's address."""
    named: bool
    """Whether it has a name: an alias, or that of a column. Other columns are called by their text."""
    used: frozenset[str] | None = None
    """The columns of the frame that it may use; None: any."""

    @property
    def column(self) -> Column:
        """The Column."""
        return self.expression.column

    @property
    def field(self) -> Field:
        """The resulting column."""
        return Field(self.name, self.type.json())

    @property
    def expression(self) -> SparkExpression:
        """The expression of the logical plan."""
        return SparkExpression(self.given, self.text, self.used, harmless=is_harmless(self.text))


def analysed(
    frame: DataFrame,
    columns: Sequence[Column | Plain],
    *,
    at: Place,
    hint: str = "",
    deterministic: bool = True,
    allowed: Collection[str] = (),
) -> list[Analysed]:
    """Let Spark analyse columns over a frame; those that are columns of the frame are known without it.

    `at`, `hint`: for errors; the default hint names the frame's columns. `deterministic`: whether to refuse expressions
    that may give another value for the same row (`NondeterministicError`), but for those in `allowed`, as
    `volatile_parts` calls them. `PlanError`: Spark refuses an expression, or it needs more than one row: an aggregate,
    a window, a generator. `ArgumentError`: it is ``*``.

    Spark refuses to aggregate anything that is not deterministic, however deep it is hidden (nested, in a lambda,
    in a Python function that is marked so), and also aggregates, windows and generators. So analysing a ``count``
    of the expressions, without running it, finds all of these.
    """
    asked = [one for one in columns if not isinstance(one, Plain)]
    seen = iter(_asked(frame, asked, at, hint, deterministic=deterministic) if asked else ())
    fields = {one.name: one for one in frame.schema} if len(asked) < len(columns) else {}
    found = [_known(one, fields[one.name]) if isinstance(one, Plain) else next(seen) for one in columns]
    if deterministic:
        for one in found:
            if not isinstance(one.given, Plain):
                _check_steady(frame, one, allowed, at)
    return found


def with_used(frame: DataFrame, found: Sequence[Analysed]) -> list[Analysed]:
    """Find the columns of a frame that expressions may use, all together: those whose names are in their texts.

    A text may leave parts out. So Spark is asked whether it finds all that the expressions name among these columns.
    """
    asked = [one for one in found if not isinstance(one.given, Plain)]
    fold = folding(frame.sparkSession)
    text = _BETWEEN.join(fold(one.text) for one in asked)
    names = [name for name in frame.columns if name and fold(name) in text]
    if not asked or len(names) == len(frame.columns) or not all(one.text for one in asked):
        return list(found)
    try:
        with unlogged():
            there = frame.selectExpr(*map(sink.quoted, names), f"1 AS {_ONE_MORE}")
            used = frozenset(names) if there.select(*(one.column for one in asked)).columns else None
    except AnalysisException:
        used = None
    return [one if isinstance(one.given, Plain) else replace(one, used=used) for one in found]


def _known(one: Plain, field: T.StructField) -> Analysed:
    """What Spark says of a column of a frame."""
    return Analysed(one, one.shown, field.dataType, field.nullable, one.name, named=True)


def _asked(
    frame: DataFrame, columns: Sequence[Column], at: Place, hint: str, *, deterministic: bool
) -> list[Analysed]:
    """Let Spark analyse expressions; raise if it refuses one."""
    try:
        with unlogged():
            schema = frame.select(*columns).schema
    except (PySparkException, Py4JJavaError) as error:
        advice = hint or columns_hint(own_columns(frame))
        raise at.error(PlanError, _shown(error), advice) from error
    if len(schema) != len(columns):
        raise at.error(
            ArgumentError,
            "One expression yields several columns.",
            "Name each column.",
        )
    found = _texts(frame, columns)
    for one, text in zip(schema, found, strict=True):
        if isinstance(text, AnalysisException):
            _refuse(text, one.name, at, deterministic=deterministic)
    texts = ["" if isinstance(text, AnalysisException) else text for text in found]
    _check_own_columns(frame, columns, schema.names, texts, at, hint or columns_hint(own_columns(frame)))
    fold = folding(frame.sparkSession)
    there = {fold(name) for name in frame.columns}

    def is_named(column: Column, name: str, text: str) -> bool:  # an alias can be the text of what it names
        return name != text or fold(name) in there or _ALIAS.search(str(column)[:-2]) is not None

    return [
        Analysed(column, one.name, one.dataType, one.nullable, text, is_named(column, one.name, text))
        for column, one, text in zip(columns, schema, texts, strict=True)
    ]


def _check_own_columns(
    frame: DataFrame,
    columns: Sequence[Column],
    names: Sequence[str],
    texts: Sequence[str],
    at: Place,
    hint: str,
) -> None:
    """Refuse ``*`` and time windows inside expressions, of which the analysed texts are known.

    Most expressions are evaluated in frames that also have the library's columns, and rows of other tables: ``*`` would
    stand for all of these columns, and Spark filters and multiplies all rows for a window.
    """
    shown = [str(column).lower() for column in columns]
    starred = [n for n, text in enumerate(shown) if _may_take_all(text)]
    wider = frame.select("*", F.expr(f"1 AS {_ONE_MORE}")) if starred else frame
    # The whole texts are compared: Spark cuts the arguments of a Python function.
    for n, text in zip(starred, _texts(wider, [columns[n] for n in starred]), strict=True):
        if isinstance(text, str) and text != texts[n]:
            raise at.error(
                PlanError,
                f"An expression contains *, and the columns that it needs have to be named: '{names[n]}'.",
                f"Name them. {hint}",
            )
    windows = [n for n, text in enumerate(shown) if "window" in text]
    several = bool(windows) and _has_time_window(frame, [columns[n] for n in windows])
    taken = [names[n] for n in windows if several and _has_time_window(frame, [columns[n]])]
    if taken:
        raise at.error(
            PlanError,
            f"'{taken[0]}' is a time window, which is not an expression of one row.",
            "Compute where it begins, as in F.date_trunc('hour', 'at'); the tutorial about windows shows others.",
        )


def _may_take_all(text: str) -> bool:
    """Whether the text of a Column, in small letters, may have a star."""
    return any(star in text for star in _STARS)


def _has_time_window(frame: DataFrame, columns: Sequence[Column]) -> bool:
    """Whether Spark refuses a further window beside expressions of one row: they have one."""
    return not is_found(F.expr("window(timestamp'1970-01-01 00:00:00', '1 second')"), frame, *columns)


def _texts(frame: DataFrame, columns: Sequence[Column]) -> Sequence[str | AnalysisException]:
    """The analysed text of each expression, or Spark's objection to it."""
    together = _counted(frame, columns) if columns else []
    if isinstance(together, list):
        return together
    alone = (_counted(frame, [column]) for column in columns)
    return [one[0] if isinstance(one, list) else one for one in alone]


def columns_hint(names: Iterable[str]) -> str:
    """Say which columns there are."""
    return f"Columns are: {', '.join(names)}."


def _counted(frame: DataFrame, columns: Sequence[Column]) -> list[str] | AnalysisException:
    """Analyse a count of all expressions; return the expressions as SQL, or Spark's objection to one of them.

    It is one count: each would take four calls of the JVM.
    """
    try:
        with unlogged():
            between = F.expr(f"'{_BETWEEN}'")
            told = [part for column in columns for part in (between, column)]
            (name,) = frame.agg(F.call_function("count", *told)).columns
    except AnalysisException as error:
        return error
    text = name.removeprefix(f"count({_BETWEEN}, ").removesuffix(")")
    texts = [text] if len(columns) == 1 else text.split(f", {_BETWEEN}, ")
    if len(texts) != len(columns):  # an expression contains what stands between them
        alone = (_counted(frame, [column]) for column in columns)
        return [one for found in alone if isinstance(found, list) for one in found]
    return [_ALIAS.sub("", one) for one in texts]


def _refuse(error: AnalysisException, name: str, at: Place, *, deterministic: bool) -> None:
    if error.getCondition() != _NONDETERMINISTIC:
        raise at.error(
            PlanError,
            f"'{name}' is not an expression of one row: {_shown(error)}",
            "Aggregates, windows and generators are not allowed here.",
        ) from error
    if deterministic:
        raise at.error(
            NondeterministicError,
            f"'{name}' may give another value when the same row is evaluated again, so a result could not be"
            " retracted.",
            _COMPUTE_BEFORE,
        ) from error


def _check_steady(frame: DataFrame, one: Analysed, allowed: Collection[str], at: Place) -> None:
    """Refuse expressions that Spark considers deterministic although they depend on more than the row."""
    with unlogged():
        parts = volatile_parts(frame, one.column, one.text).difference(allowed)
    if parts:
        raise at.error(
            NondeterministicError,
            f"'{one.name}' depends on {', '.join(sorted(parts))}: it may give another value when the same row is"
            " evaluated again, so a result could not be retracted.",
            _COMPUTE_BEFORE,
        )


def _shown(error: PySparkException | Py4JJavaError) -> str:
    """What Spark says, without where in its own text. What its parser says begins with an empty line."""
    java = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else None
    said = next((line for line in str(java or error).split("\n") if line.strip()), type(error).__name__)
    return _STATE.sub("", said)


def is_found(column: Column, frame: DataFrame, *others: Column) -> bool:
    """Whether Spark finds everything that an expression names in a frame, and takes it beside others."""
    try:
        with unlogged():
            return bool(frame.select(*others, column).columns)  # Spark Connect analyses what is asked for
    except AnalysisException:
        return False


def check_condition(one: Analysed, at: Place) -> None:
    """Raise `PlanError` unless a condition is boolean, as Spark's own `filter` does."""
    if not isinstance(one.type, T.BooleanType):
        raise at.error(
            PlanError,
            f"The condition {one.text} is of type {one.type.simpleString()}, and not boolean.",
            "Write a comparison, such as \"op = 'd'\".",
        )


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is caught or rephrased."""
    # `logging.getLogger` would make loggers of another class for the whole process, which PySpark cannot write to.
    loggers, thread = [PySparkLogger.getLogger(name) for name in _LOGGERS], get_ident()

    def is_of_another_thread(_: logging.LogRecord) -> bool:
        return get_ident() != thread

    for logger in loggers:
        logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_another_thread)


def folding(spark: SparkSession) -> Callable[[str], str]:
    """Return a function that maps column names to the same text if the session considers them equal."""
    return str if spark.conf.get(_CASE_SENSITIVE, "false") == "true" else str.lower
