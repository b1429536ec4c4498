"""Expressions that fail on a row: Spark says so beforehand; the row is named, made null, or left out.

Spark has no expression that catches the errors of any other. But ``try_add`` of a date and a number of days catches
every error of its arguments as well, and returns null. So for expressions of any type,

    try_add(DATE'1970-01-01', hash(E, F, ...)) IS NOT NULL

tells whether all of them can be computed, and never fails. That it does is tried in each session (`can_watch`): Spark's
documentation does not promise it. See ``docs/decisions/042-rows-that-fail.md``.

Spark computes what several expressions have in common beforehand, outside of ``try_add``, if they are always evaluated.
Inside a branch of ``CASE WHEN`` whose condition depends on the row they are not, so this has to stand there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.base.data_text import LIMIT
from tablestream.connectors.sink import literal
from tablestream.runtime.ports import Port
from tablestream.spark.lineage import explained

if TYPE_CHECKING:
    from tablestream.topology.nodes import Node

#: The most expressions of a table that are told apart; of more, several together.
_TOLD_APART = 16
_SHOWN = 160
#: Characters that a message does not show, as a regular expression of Java.
_UNSEEN = r"[\p{Cntrl}\p{Cf}\u2028\u2029]"
#: What an error says, and what to do.
SENTENCE = "{what} cannot be computed for the row with the key {key} ({place}): the row is {row}."
HINT = (
    'Correct the expression or the row; or let the query go on without the row, with on_error="reject", or with null,'
    ' with on_error="null", which ts.start takes on the same checkpoint.'
)
_DAY = "DATE'1970-01-01'"
#: A column, or whether columns are null: nothing else is sure not to fail. Spark's texts leave out implicit casts, such
#: as that of a text to a condition.
_TERM = r"\(*(?:NOT )?\(*[\w.`]+ IS (?:NOT )?NULL\)*"
_HARMLESS = re.compile(rf"[\w.`]+|{_TERM}(?: (?:AND|OR) {_TERM})*")
#: Types that Spark does not hash.
_UNHASHED = re.compile(r'"map"|collate', re.IGNORECASE)
#: What Spark's plans call the evaluation of Python functions, outside of all other expressions.
_PYTHON = re.compile(r"\b(?:Arrow|Batch)EvalPython\b")


@dataclass(frozen=True)
class Risk:
    """An expression that may fail."""

    said: str
    """What it is, for the user."""
    column: Column
    """The expression."""
    type: str
    """Its type, as Spark's JSON."""


@dataclass(frozen=True)
class Watched:
    """A table whose expressions are watched."""

    operator: str
    where: str
    """Its name, and the user's line that built it."""
    mode: str
    """``fail``, ``null`` or ``reject``."""
    ports: tuple[Port, ...] = ()
    """The ports that receive the rows that it rejects."""


@dataclass(frozen=True)
class View:
    """The rows that expressions see."""

    owner: Node | str
    """The table whose expressions they are, or the name of the operator."""
    beside: dict[str, str]
    """The columns, as SQL by the names that expressions use."""
    key: dict[str, str]
    row: dict[str, str]
    """The key, and the whole row, by names for the user."""


@dataclass(frozen=True)
class Failed:
    """A column that says which expression of a table fails on a row.

    `tested`: the column that is null where none does: this one, or one that raises otherwise.
    """

    column: str
    owner: Watched
    view: View
    risks: tuple[Risk, ...]
    tested: str

    @cached_property
    def is_fine(self) -> Column:
        """Whether none fails."""
        return F.expr(f"{self.tested} IS NULL")

    def is_fine_where(self, there: str) -> Column:
        """The same of rows that are there, as SQL."""
        return F.expr(f"({there}) AND {self.tested} IS NULL")

    @property
    def rejects(self) -> bool:
        """Whether a row for which one fails is rejected."""
        return self.owner.mode == "reject"


def is_harmless(text: str) -> bool:
    """Whether the analysed text of an expression is sure to be one that cannot fail.

    Examples
    --------
    >>> is_harmless("(price IS NOT NULL)"), is_harmless("(price / 2)"), is_harmless("CAST(price AS INT)")
    (True, False, False)
    """
    return _HARMLESS.fullmatch(text) is not None


def works(risks: Sequence[Risk]) -> Column:
    """Whether all of some expressions can be computed for a row."""
    return F.isnotnull(_day(risks))


def _day(risks: Sequence[Risk]) -> Column:
    """Any day; null if one of some expressions cannot be computed for a row."""
    parts = [F.to_json(F.struct(one.column)) if _UNHASHED.search(one.type) else one.column for one in risks]
    return F.try_add(F.expr(_DAY), F.hash(*parts))


def failing(risks: Sequence[Risk]) -> Column:
    """What of some expressions fails for a row, as text; null if nothing does. Of many, several are asked together."""
    size = -(-len(risks) // _TOLD_APART)
    parts = [risks[at : at + size] for at in range(0, len(risks), size)]
    # Functions take a quarter of the calls of the JVM that methods of a Column take.
    said = ((F.isnull(_day(part)), " or ".join(_short(one.said) for one in part)) for part in parts)
    return F.coalesce(*(F.when(fails, what) for fails, what in said))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def place_sql(partition: str, position: str) -> str:
    """Where a record is, as SQL: see `tablestream.runtime.drops.place_text`."""
    part = f"split({partition}, '\\t')"
    return (
        f"CASE size({part}) WHEN 4 THEN concat({part}[2], ', row ', {position})"
        f" WHEN 3 THEN concat('topic ', {part}[1], ', partition ', CAST(CAST({part}[2] AS BIGINT) AS STRING),"
        f" ', offset ', {position})"
        f" ELSE concat('source partition ', {partition}, ', row ', {position}) END"
    )


def data_sql(text: str) -> str:
    """A text with values of a record in a message, as SQL: see `tablestream.base.data_text.cut_text`."""
    seen = f"regexp_replace({text}, {literal(_UNSEEN)}, '?')"
    return f"CASE WHEN length({text}) > {LIMIT} THEN concat(left({seen}, {LIMIT}), '...') ELSE {seen} END"


_can_watch: dict[str, bool] = {}


def can_watch(spark: SparkSession) -> bool:
    """Whether this Spark tells which expressions fail; nothing runs in the cluster."""
    if spark.version not in _can_watch:
        asked = f"SELECT try_add({_DAY}, hash(raise_error(x))) AS day FROM VALUES ('x') AS rows(x)"
        try:
            _can_watch[spark.version] = spark.sql(asked).collect()[0]["day"] is None
        except PySparkException:
            _can_watch[spark.version] = False
    return _can_watch[spark.version]


def calls_python(rows: DataFrame, risks: Sequence[Risk]) -> bool:
    """Whether one of some expressions over rows calls a Python function: Spark evaluates it outside, where it can fail.

    `rows`: a frame with the columns, and nothing else that is computed.
    """
    chosen = rows.select(*(one.column.alias(f"__risk_{at}") for at, one in enumerate(risks)))
    return _PYTHON.search(explained(chosen)) is not None
