"""Columns as users give them: a Column, or a string with a name or SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark.analysis import columns_hint
from tablestream.spark.columns import quoted
from tablestream.spark.row import Plain, plain

ColumnLike = Column | str

#: Names with commas between them, which are no SQL expression.
_SEVERAL = re.compile(r"\s*\w+\s*(,\s*\w+\s*)+")


def as_column(given: ColumnLike, columns: Iterable[str], shown: Iterable[str] | None = None) -> Column:
    """Return a Column for a user's Column or string.

    A string is the column of that name, if there is one, and otherwise a SQL expression: everywhere in the library.

    `given`: a Column or a string. `columns`: the names of the existing columns. `shown`: those that an error names.
    Default: all.
    """
    if not isinstance(given, str):
        return checked_column(given)
    names = list(columns)
    if given.lower() in {name.lower() for name in names}:
        return quoted(given)
    if _SEVERAL.fullmatch(given):
        raise PlanError(
            f"{given!r} is several columns in one string.",
            hint=f"Give each a string of its own, as in a list: {[one.strip() for one in given.split(',')]}.",
            where=user_line(),
        )
    try:
        return F.expr(given)
    except ParseException as error:
        raise PlanError(
            f"{given!r} is neither a column nor a SQL expression.",
            hint=columns_hint(names if shown is None else shown),
            where=user_line(),
        ) from error


def as_columns(
    given: Iterable[ColumnLike | Plain], columns: Sequence[str], shown: Iterable[str] | None = None
) -> list[Column | Plain]:
    """Return what `as_column` does for each, but a column as it is where a string is exactly its name."""
    names = set(columns)

    def one_of(one: ColumnLike | Plain) -> Column | Plain:
        if isinstance(one, Plain):
            return one
        known = plain(one) if isinstance(one, str) and one in names else None
        return known or as_column(one, columns, shown)

    return list(map(one_of, given))


def sql_text(given: object) -> str | None:
    """The user's SQL on one line, or None for a Column. Spark's own text of it does not distinguish 'a' from a."""
    return " ".join(given.splitlines()) if isinstance(given, str) else None


def checked_column(given: Column) -> Column:
    """Raise unless it is a Column."""
    if not isinstance(given, Column):
        raise ArgumentError(
            f"{given!r} is not a column.",
            hint="Give a Column or a string; write a constant as F.lit(...).",
            where=user_line(),
        )
    return given
