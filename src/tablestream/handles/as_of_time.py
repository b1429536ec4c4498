"""The time as of which rows of a table are joined with a versioned table, as a user describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import flag
from tablestream.arguments.words import check_known
from tablestream.errors import ArgumentError, NotVersionedError
from tablestream.handles.joining import Joining
from tablestream.operators.calendar import FIRST_US, LAST_US
from tablestream.spark.given_columns import ColumnLike, as_column, sql_text
from tablestream.topology.graph import history_of, shown_name
from tablestream.topology.nodes import AsOf

Direction = Literal["backward", "forward"]


@dataclass(frozen=True)
class AsOfTime:
    """A time of a row, and which version it means; made by `as_of`."""

    time: ColumnLike
    direction: Direction = "backward"
    strict: bool = False


def as_of(time: ColumnLike, direction: Direction = "backward", *, strict: bool = False) -> AsOfTime:
    """Describe which version of the other table a row is joined with, for `Table.join`.

    Parameters
    ----------
    time
        A column of the left table, or an expression over its row; a timestamp. A null means no version.
    direction
        ``backward``: the version that is valid at that time, the last one up to it. ``forward``: the first row that
        begins at that time or later.
    strict
        Whether a version that begins at exactly that time does not count.

    Returns
    -------
    AsOfTime

    Raises
    ------
    ArgumentError
        `direction` is not known, or `strict` is neither true nor false.

    Examples
    --------
    ``orders.join(prices, on="product", as_of=ts.as_of("ordered_at", strict=True))`` is the join with the price just
    before each order. ``as_of="ordered_at"`` stands for ``as_of=ts.as_of("ordered_at")``.
    """
    check_known("direction", direction, ("backward", "forward"))
    return AsOfTime(time, direction, flag(strict, "strict"))


def checked_as_of(
    joining: Joining, given: ColumnLike | AsOfTime, *, complete_history: bool, spread: object, copied: bool
) -> AsOf:
    """Refuse a time that does not go with something else of the join, or is no timestamp."""
    others = {
        "with complete_history=, which joins all times": complete_history,
        "with spread=": spread is not None,
        "with a global table": copied,
    }
    joining.check_alone("as_of=", others, "Join a tablestream.table, with as_of= alone.")
    if history_of(joining.right) is None:
        raise joining.at.error(
            NotVersionedError,
            f"as_of= needs a versioned table, and '{shown_name(joining.right)}' has no history.",
            'Give the table one, as in history="7 days".',
        )
    wanted = given if isinstance(given, AsOfTime) else AsOfTime(given)
    rows = joining.left_rows()
    (time,) = joining.analysed(rows, [as_column(wanted.time, rows.columns)])
    if not isinstance(time.type, T.TimestampType | T.TimestampNTZType):
        raise joining.at.error(
            ArgumentError,
            f"as_of= is of type {time.type.simpleString()}, and not a timestamp.",
            'Cast it, as in as_of="CAST(ordered_at AS timestamp)"; a date is then its first moment.',
        )
    micros, forward = F.unix_micros(time.column.cast(T.TimestampType())), wanted.direction == "forward"
    shift = (1 if forward else -1) if wanted.strict else 0  # times are whole microseconds
    (known,) = joining.analysed(rows, [F.when(micros.between(FIRST_US, LAST_US), micros + shift)])
    text = f"{sql_text(wanted.time) or time.text} ({wanted.direction}{', strict' if wanted.strict else ''})"
    return AsOf(known.expression, forward, text)
