"""Users' arguments: checks, and conversion to one form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.errors import ArgumentError, PlanError
from tablestream.kinds import listed
from tablestream.row import Plain, plain
from tablestream.spark.analysis import columns_hint
from tablestream.spark.columns import quoted

ColumnLike = Column | str

_MICROSECOND_NS = 1000
#: Names with commas between them, which are no SQL expression.
_SEVERAL = re.compile(r"\s*\w+\s*(,\s*\w+\s*)+")


def as_column(given: ColumnLike, columns: Iterable[str], shown: Iterable[str] | None = None) -> Column:
    """Return a Column for a user's Column or string.

    A string is the column of that name, if there is one, and otherwise a SQL expression: everywhere in the library.

    Parameters
    ----------
    given
        A Column or a string.
    columns
        The names of the existing columns.
    shown
        Those that an error names. Default: all.

    Raises
    ------
    PlanError
        The string is neither, or has several names.
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


def names(given: str | Sequence[str], operator: str, where: str) -> tuple[str, ...]:
    """One name or several."""
    given_names = listed(given)
    for one in given_names:
        if not isinstance(one, str):
            raise ArgumentError(
                f"except_columns takes column names, and {one!r} is not a name.",
                hint="Give the names as strings.",
                operator=operator,
                where=where,
            )
    return tuple(given_names)


def checked_sink(sink: Sink) -> Sink:
    """Raise unless it is a sink."""
    if not isinstance(sink, Sink):
        raise ArgumentError(
            f"{sink!r} is not a sink.",
            hint="Use tablestream.to_delta(path), to_postgres(table, ...), to_files(path), to_kafka(topic, ...),"
            " to_console() or to_memory(name).",
            where=user_line(),
        )
    return sink


def checked_log(sink: Sink, lack: str, operator: str, further: str = "") -> Sink:
    """Raise unless it is a sink that keeps every change; `lack` says why no other will do."""
    if checked_sink(sink).needs_final:
        raise ArgumentError(
            f"{lack}, and {sink.target} keeps one row per key.",
            hint=f'Append them to a log, such as tablestream.to_delta(path, mode="changes"){further}.',
            operator=operator,
            where=user_line(),
        )
    return sink


def checked_name(name: Any) -> str | None:
    """Raise if a name is empty or not a string."""
    if name is not None and not isinstance(name, str):
        raise ArgumentError(
            f"name={name!r} is not a name.", hint="Omit name=, or give a string.", where=user_line()
        )
    if name is not None and not name.strip():
        raise ArgumentError(
            "A name cannot be empty.", hint="Omit name=, or give a string.", where=user_line()
        )
    if name is not None and "${" in name:
        raise ArgumentError(
            f"name={name!r} has ${{, which Spark replaces in SQL.", hint="Leave it out.", where=user_line()
        )
    return name


def microseconds(given: object) -> int | None:
    """A duration in microseconds. None if it is not a duration, has no unit, or is shorter than one microsecond."""
    import pandas as pd  # takes a fifth of a second

    if not isinstance(given, str | timedelta) or (
        isinstance(given, str) and not re.search("[a-zA-Z:]", given)
    ):
        return None
    try:
        length = pd.Timedelta(given)
        length_ns = int(length.value)
    except (ValueError, OverflowError):  # the second: it is longer than pandas counts in nanoseconds
        return None
    if not isinstance(length, pd.Timedelta) or 0 < length_ns < _MICROSECOND_NS:
        return None
    return length_ns // _MICROSECOND_NS


def checked_length(given: object, argument: str, operator: str, where: str) -> int | None:
    """A duration in microseconds. None if omitted; raises if it is invalid or negative."""
    if given is None:
        return None
    length = microseconds(given)
    if length is None or length < 0:
        raise ArgumentError(
            f"{argument}={given!r} is not a duration.",
            hint="Write it as '5 minutes', or give a timedelta; from 0 to 292 years.",
            operator=operator,
            where=where,
        )
    return length


def check_known(argument: str, given: object, words: Sequence[object], operator: str = "") -> None:
    """Raise if an argument is none of some values. A float is none of them: 4.0 is 4 in comparisons only."""
    if isinstance(given, float) or given not in words:
        raise ArgumentError(
            f"{argument}={given!r} is not known.",
            hint=f"One of {', '.join(map(repr, words))}.",
            operator=operator,
            where=user_line(),
        )


_How = TypeVar("_How", bound=str)
#: Spark's other words for the kinds of a join.
_OTHER_WORDS = {"full": "outer", "fullouter": "outer", "leftouter": "left", "rightouter": "right"}


def checked_how(how: _How, known: Sequence[_How], operator: str, where: str) -> _How:
    """Return the kind of a join, for any of Spark's words for it. Raises if it is unknown."""
    word = str(how).lower().replace("_", "")
    chosen = _OTHER_WORDS.get(word, word)
    check_how(chosen if chosen in known else how, known, operator, where)
    return cast("_How", chosen)


def check_how(how: str, known: Sequence[str], operator: str, where: str, argument: str = "how") -> None:
    """Raise if a word is unknown."""
    if how not in known:
        raise ArgumentError(
            f"{argument}='{how}' is not known.",
            hint=f"One of {', '.join(known)}.",
            operator=operator,
            where=where,
        )
