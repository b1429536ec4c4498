"""Grouped rows: the results of `Table.group_by` and `Stream.group_by`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Never

from pyspark.sql import types as T

from tablestream.arguments.kinds import whole
from tablestream.arguments.place import Place
from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.functions import AggregateFunction, WindowFunction
from tablestream.functions import count as count_rows
from tablestream.handles.first_rows import Windowed
from tablestream.handles.grouping import Grouped, Swapped, check_functions, described
from tablestream.spark.given_columns import ColumnLike
from tablestream.topology.nodes import Field

if TYPE_CHECKING:
    from tablestream.tables import Table


class GroupedTable(Windowed["Table"]):
    """The grouped rows of a table; made by `Table.group_by`.

    A row that changes inside its group is one change of the group. A row that moves to another group leaves one and
    enters the other in one step: no reader ever sees it in both, or in neither (KIP-904, and beyond).
    """

    def count(self, *, keep_empty: bool = False, name: str | None = None) -> Table:
        """Count the rows of each group, in a column ``count``.

        Parameters
        ----------
        keep_empty, name
            As in `agg`.
        """
        return self._agg({"count": count_rows()}, keep_empty, name, user_line())

    def agg(
        self, *unnamed: Never, keep_empty: bool = False, name: str | None = None, **columns: AggregateFunction
    ) -> Table:
        """Compute aggregates of each group.

        Parameters
        ----------
        keep_empty
            Whether a group stays when its last row leaves, with a count of 0 and null sums. By default it is
            deleted; with ``compat="kafka-streams"`` it always stays.
        name
            The result's name; default ``<table>_agg``.
        **columns
            The aggregates by the names of their columns: ``n=ts.functions.count(),
            total=ts.functions.sum("amount")``.

        Returns
        -------
        Table
            Keyed by the group. Its timestamp is the largest of the group's changes since the group was created.

        Raises
        ------
        ArgumentError
            No column is given, one has no name, or one is not an aggregate.
        UnsupportedTypeError
            ``min`` or ``max`` of a type without an order; or values that are compared are strings with a collation.

        References
        ----------
        KIP-904; ``KGroupedTable.aggregate``.
        """
        return self._agg(columns, keep_empty, name, user_line(), unnamed)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        schema: T.StructType | str,
        *,
        keep_empty: bool = False,
        version: str = "",
        name: str | None = None,
    ) -> Table:
        """Aggregate each group with Python functions, called as Kafka Streams calls them.

        Parameters
        ----------
        initializer
            () -> the aggregate of a group without rows.
        adder, subtractor
            (group key, row, aggregate) -> aggregate; None deletes the group. The row is a named tuple of the
            table's value columns, or of those given to ``group_by(value=)``. A key or an aggregate of one column is
            its value, of several a named tuple. For a row that changes in its group, the old row is subtracted
            first, then the new one is added. The subtractor is not called if there is no aggregate.
        schema
            The columns of the aggregate, as a DDL string or a struct: ``"total double, n int"``. The functions'
            results must fit these types; otherwise the query ends with a `FunctionValueError`.
        version
            Change it when you change what a function does: plans are compared by the functions' names and this.
        keep_empty, name
            As in `agg`.
        """
        where = user_line()
        check_functions(
            {"initializer": (initializer, 0), "adder": (adder, 3), "subtractor": (subtractor, 3)}, where
        )
        fields = self._fields(schema, where)
        text = described((initializer, adder, subtractor), version)
        user = self._user(initializer, adder, subtractor, fields, text)
        return self._folded(fields, user, keep_empty, Place(self._shown(name, "aggregate"), where))

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        keep_empty: bool = False,
        version: str = "",
        name: str | None = None,
    ) -> Table:
        """Combine the rows of each group with Python functions.

        Parameters
        ----------
        adder, subtractor
            (aggregate, row) -> aggregate; both are named tuples of the table's value columns, or of those given to
            ``group_by(value=)``. None deletes the group. The first row of a group becomes the aggregate as it is.
        keep_empty, version, name
            As in `aggregate`.
        """
        where = user_line()
        check_functions({"adder": (adder, 2), "subtractor": (subtractor, 2)}, where)
        fields = tuple(one.field for one in self._values)
        text = described((adder, subtractor), version)
        user = self._user(None, Swapped(adder), Swapped(subtractor), fields, text)
        return self._folded(fields, user, keep_empty, Place(self._shown(name, "reduce"), where))

    def top(
        self,
        n: int,
        order_by: ColumnLike | Sequence[ColumnLike],
        *,
        descending: bool | Sequence[bool] = True,
        rank: str = "rank",
        name: str | None = None,
    ) -> Table:
        """Keep the first `n` rows of each group, by rank: the winning bid of an auction, the ten best of a team.

        Parameters
        ----------
        n
            How many rows a group shows.
        order_by
            What rows are ranked by: a Column or a string, or several. Of rows with equal values the one that came
            first is before the others; a row that is written again comes anew. Nulls are last, NaN is the greatest.
        descending
            Whether the greatest comes first; or this of each column of `order_by`.
        rank
            The name of the column with the rank.
        name
            The result's name; default ``<table>_top``.

        Returns
        -------
        Table
            Keyed by the group and the rank, which counts from 1. Its value is the key of the row, without columns
            of the group, and the row's value columns, or those given to ``group_by(value=)``. A change emits the ranks
            that show another row after it, or none any more.

        Raises
        ------
        ArgumentError
            `n` is not a whole number of at least one, `order_by` is empty, or `descending` does not fit it.
        ColumnCollisionError
            A column of the result has the name of another one.
        UnsupportedTypeError
            A type in `order_by` has no order, or is a string with a collation.

        Notes
        -----
        A row that becomes the first moves all others: a change can emit up to `n` rows.

        Examples
        --------
        >>> winning = bids.group_by("auction").top(1, "price", name="winning")  # doctest: +SKIP
        >>> best = bids.group_by("auction").top(10, ["price", "at"], descending=[True, False])  # doctest: +SKIP
        """
        at = Place(self._shown(name, "top"), user_line())
        n = _checked_top(n, rank, at)
        order = self._order(order_by, descending, at)
        if not order:
            raise at.error(ArgumentError, "top() has no order.", "Name at least one column.")
        return self._first_rows(n, order, (Field(rank, T.LongType().json()),), at)

    def over(
        self,
        order_by: ColumnLike | Sequence[ColumnLike] | None = None,
        *unnamed: Never,
        descending: bool | Sequence[bool] = False,
        frame: Literal["range", "rows"] = "range",
        between: tuple[float | timedelta | None, float | timedelta | None] = (None, 0),
        name: str | None = None,
        **columns: WindowFunction | AggregateFunction,
    ) -> Table:
        """Tell each row of the others of its group: SQL's ``OVER (PARTITION BY ... ORDER BY ...)``.

        Parameters
        ----------
        order_by
            What the rows of a group are ordered by: a Column or a string, or several. Of rows with equal values, the
            peers, the one with the smaller key is first. As in Spark, null is the least value, and NaN the greatest.
            None: all rows are peers.
        descending
            Whether the greatest comes first; or this of each column of `order_by`.
        frame, between
            What aggregates, ``first_value``, ``last_value`` and ``nth_value`` see: the rows from a begin to an end. By
            ``rows`` these are numbers of rows, negative before the row: ``(-2, 0)`` are two rows and the row itself. By
            ``range`` they are differences of the last column of `order_by`, a ``timedelta`` of a date or a timestamp; 0
            are the row's peers. None: the first, and the last, row of the group.
        name
            The result's name; default ``<table>_over``.
        **columns
            The functions by the names of their columns: ``row_number``, ``rank``, ``dense_rank``, ``percent_rank``,
            ``cume_dist``, ``ntile``, ``lag``, ``lead``, ``first_value``, ``last_value``, ``nth_value``, and aggregates,
            all of `tablestream.functions`.

        Returns
        -------
        Table
            With the table's key, all its columns, and these. A change emits the rows of its group with another value.

        Raises
        ------
        ArgumentError
            No column is given, or one is no window function; or `descending`, `between` or a default does not fit.
        ColumnCollisionError
            A column has the name of another one.
        UnsupportedTypeError
            A type has no order, or cannot be added up.

        Notes
        -----
        A change computes its whole group anew. It takes two rounds, and remembers the rows by group. Not with
        ``compat="kafka-streams"``.

        Examples
        --------
        >>> import tablestream as ts
        >>> log = ts.testing.frame(spark, "id int, client string, amount int")
        >>> orders = ts.table(log, "id", name="orders")
        >>> of_client = orders.group_by("client")
        >>> driver = ts.testing.Driver(of_client.over("id", total=ts.functions.sum("amount")))
        >>> driver.pipe("orders", [{"id": 2, "client": "a", "amount": 7}, {"id": 1, "client": "a", "amount": 5}])
        >>> print(driver.run())
        id | client | amount | total | _change_type | _timestamp
        2  | a      | 7      | 7     | upsert       | 1970-01-01 00:00:00
        1  | a      | 5      | 5     | upsert       | 1970-01-01 00:00:00
        2  | a      | 7      | 12    | upsert       | 1970-01-01 00:00:00
        """
        at = Place(self._shown(name, "over"), user_line())
        if unnamed:
            raise at.error(
                ArgumentError, "over() needs the name of each function.", "Write over('at', n=row_number())."
            )
        return self._over(columns, order_by, descending, frame, between, at)


class GroupedStream(Grouped["Table"]):
    """The grouped records of a stream; made by `Stream.group_by` and `Stream.group_by_key`.

    Each record is added to its group and never removed. The result is a table.
    """

    def count(self, *, name: str | None = None) -> Table:
        """Count the records of each group, in a column ``count``.

        Parameters
        ----------
        name
            As in `agg`.
        """
        return self._agg({"count": count_rows()}, False, name, user_line())

    def agg(self, *unnamed: Never, name: str | None = None, **columns: AggregateFunction) -> Table:
        """Compute aggregates of each group, including approximate ones.

        Parameters
        ----------
        name
            The result's name; default ``<stream>_agg``.
        **columns
            The aggregates by the names of their columns: ``n=ts.functions.count(),
            total=ts.functions.sum("amount")``.

        Returns
        -------
        Table
            Keyed by the group. Its timestamp is the largest of the group's records.

        Notes
        -----
        Records without a value are dropped and counted. A null is a group of its own; with
        ``compat="kafka-streams"``, records with a null in their group are dropped and counted.

        References
        ----------
        ``KGroupedStream.aggregate``.
        """
        return self._agg(columns, False, name, user_line(), unnamed)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        schema: T.StructType | str,
        *,
        version: str = "",
        name: str | None = None,
    ) -> Table:
        """Aggregate each group with Python functions, as in `GroupedTable.aggregate` without a subtractor.

        Parameters
        ----------
        initializer, adder, schema, version, name
            As in `GroupedTable.aggregate`.
        """
        where = user_line()
        check_functions({"initializer": (initializer, 0), "adder": (adder, 3)}, where)
        fields = self._fields(schema, where)
        user = self._user(initializer, adder, adder, fields, described((initializer, adder), version))
        return self._folded(fields, user, False, Place(self._shown(name, "aggregate"), where))

    def reduce(
        self, adder: Callable[[Any, Any], Any], *, version: str = "", name: str | None = None
    ) -> Table:
        """Combine the records of each group with a Python function, as in `GroupedTable.reduce`.

        Parameters
        ----------
        adder, version, name
            As in `GroupedTable.reduce`.
        """
        where = user_line()
        check_functions({"adder": (adder, 2)}, where)
        fields = tuple(one.field for one in self._values)
        swapped = Swapped(adder)
        user = self._user(None, swapped, swapped, fields, described((adder,), version))
        return self._folded(fields, user, False, Place(self._shown(name, "reduce"), where))


def _checked_top(n: Any, rank: Any, at: Place) -> int:
    """Return the number of rows; refuse what is none, and what is no name."""
    number = whole(n)
    if number is None or number < 1:
        raise at.error(
            ArgumentError,
            f"n={n!r} is not a number of rows.",
            "Give a whole number of at least one.",
        )
    if not isinstance(rank, str) or not rank.strip():
        raise at.error(
            ArgumentError,
            f"rank={rank!r} is not a name.",
            "Omit rank=, or give a string.",
        )
    return number
