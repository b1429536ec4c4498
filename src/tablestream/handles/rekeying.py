"""Methods of tables that give rows other keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import listed
from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_name
from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError
from tablestream.handles.first_rows import NewKeys
from tablestream.handles.relation import Relation
from tablestream.handles.unions import counted_rows, records, union_of_rows
from tablestream.spark.columns import quoted
from tablestream.spark.given_columns import ColumnLike
from tablestream.topology.nodes import Field, Node, Select
from tablestream.topology.nulls import nullable_names
from tablestream.topology.streams import ToTable

if TYPE_CHECKING:
    from tablestream.streams import Stream
    from tablestream.tables import Table


class Rekeyed(Relation):
    """A table whose rows can get other keys."""

    def select_key(
        self,
        *keys: ColumnLike,
        order_by: ColumnLike | Sequence[ColumnLike] | None = None,
        descending: bool | Sequence[bool] = True,
        name: str | None = None,
    ) -> Table:
        """Key the rows by other columns, of which each value has one row, or nearly.

        Parameters
        ----------
        *keys
            The new key: Columns or strings over the row; an expression needs an alias. A null is a key of its own.
        order_by
            Which row a new key shows while several rows have it: the first in this order. Default: the row that was
            written last. So does a tie. When that row is deleted or moves away, the next one is shown.
        descending
            Whether the greatest comes first; or this of each column of `order_by`.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed by the new key. Its value is the row's own key, without columns of the new one, and its value.

        Raises
        ------
        ArgumentError
            No key is given, an expression has no name, or `descending` does not fit `order_by`.
        UnsupportedTypeError
            The type of a key has no equality, or a type in `order_by` no order.

        Notes
        -----
        All rows of the table are remembered. It takes two rounds, as groups do.

        Examples
        --------
        >>> import tablestream as ts
        >>> log = ts.testing.frame(spark, "id int, mail string, name string")
        >>> users = ts.table(log, "id", name="users")
        >>> driver = ts.testing.Driver(users.select_key("mail"))
        >>> driver.pipe("users", [{"id": 1, "mail": "a@x", "name": "Ada"}, {"id": 1, "mail": "ada@x", "name": "Ada"}])
        >>> print(driver.run())
        mail  | id   | name | _change_type | _timestamp
        a@x   | 1    | Ada  | upsert       | 1970-01-01 00:00:00
        a@x   | null | null | delete       | 1970-01-01 00:00:00
        ada@x | 1    | Ada  | upsert       | 1970-01-01 00:00:00
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_select_key"
        rows = self._grouping(keys, None, where, "select_key")
        return NewKeys(rows, self._table).first(order_by, descending, Place(shown, where))

    def flat_map(self, elements: ColumnLike, position: str = "position", name: str | None = None) -> Table:
        """Replace each row by one row per element of an array: SQL's ``LATERAL VIEW posexplode``.

        Parameters
        ----------
        elements
            A Column or a string that returns an array. If the elements are structs, their fields become the value's
            columns; otherwise there is one column, named by the expression's alias. A null element is a row of nulls; a
            null or empty array has no rows.
        position
            The name of the column with the element's position, which counts from 0 (int).
        name
            The result's name.

        Returns
        -------
        Table
            Keyed by this table's key and `position`. A change emits the positions at which another element is now.

        Raises
        ------
        ArgumentError
            The expression is no array.
        ColumnCollisionError
            Two columns have the same name.

        Notes
        -----
        It takes a round, and remembers the arrays. Not with ``compat="kafka-streams"``.

        Examples
        --------
        >>> import tablestream as ts
        >>> posts = ts.table(ts.testing.frame(spark, "id int, tags array<string>"), "id", name="posts")
        >>> driver = ts.testing.Driver(posts.flat_map("tags AS tag"))
        >>> driver.pipe("posts", [{"id": 1, "tags": ["a", "b"]}, {"id": 1, "tags": ["c"]}])
        >>> print(driver.run())
        id | position | tag  | _change_type | _timestamp
        1  | 0        | a    | upsert       | 1970-01-01 00:00:00
        1  | 1        | b    | upsert       | 1970-01-01 00:00:00
        1  | 0        | c    | upsert       | 1970-01-01 00:00:00
        1  | 1        | null | delete       | 1970-01-01 00:00:00
        """
        shown = checked_name(name) or f"{self.name}_flat_map"
        part = Field(position, T.IntegerType().json())
        return self._table(self._flat_mapped(elements, (part,), shown, user_line()))

    def union(
        self,
        *others: Table,
        branch: str = "branch",
        names: Sequence[str] | None = None,
        name: str | None = None,
        row: str | None = None,
    ) -> Table:
        """Put the rows of several tables into one, by the names of their columns: SQL's ``UNION ALL``.

        Parameters
        ----------
        *others
            Tables with the same columns, in any order: the same names, types and key.
        branch
            The column that says which table a row comes from. It is the first part of the result's key, since two
            tables may have rows of one key.
        names
            What `branch` says for this table and each of the others. Default: the tables' names.
        name
            The result's name.
        row
            For tables with other keys, such as ``row="row"``: the column that tells the rows of a branch apart, a JSON
            text of the row's key. The tables then need the same columns, and keys of any kind; columns that were parts
            of keys are columns of the value. Default: the tables have the same key.

        Returns
        -------
        Table
            Of their rows as they are now: if a table is versioned, its late versions do not show. Keyed by `branch` and
            the key, or by `branch` and `row`. Call `select_key` on it for a table without the branch.

        Raises
        ------
        ArgumentError
            There is no other table; columns or types differ; `names` are not as many as tables, or two are equal.
        ColumnCollisionError
            A column is called as `branch` or `row`.
        MixedPlanError
            The tables belong to different sessions.

        Examples
        --------
        >>> import tablestream as ts
        >>> schema = "id int, name string"
        >>> europe, asia = (ts.table(ts.testing.frame(spark, schema), "id", name=one) for one in ("europe", "asia"))
        >>> driver = ts.testing.Driver(europe.union(asia, branch="region"))
        >>> driver.pipe("europe", [{"id": 1, "name": "Ada"}])
        >>> driver.pipe("asia", [{"id": 1, "name": "Mei"}])
        >>> print(driver.run())
        region | id | name | _change_type | _timestamp
        europe | 1  | Ada  | upsert       | 1970-01-01 00:00:00
        asia   | 1  | Mei  | upsert       | 1970-01-01 00:00:00
        """
        where = user_line()
        nodes = [self._node, *(self._table_node(one, where) for one in others)]
        shown = checked_name(name) or "_".join([self.name, *(one.name for one in others), "union"])
        said = [one.name for one in (self, *others)] if names is None else listed(names)
        self._check_branches(others, said, Place(shown, where), same_key=row is None)
        if row is not None:
            return self._table(union_of_rows(nodes, said, branch, row, Place(shown, where)))
        merged, *rest = (
            self._stream(records(node, where)).select_key(
                F.lit(text).alias(branch), *(quoted(key).alias(key) for key in self.key_columns)
            )
            for node, text in zip(nodes, said, strict=True)
        )
        for number, further in enumerate(rest, 1):
            merged = merged.merge(further, name=f"{shown}/{number}")
        node = self._node_of(merged, type(merged), where)
        nulls = {name for one in nodes for name in nullable_names(one)}
        nullable = tuple(one.name in nulls for one in node.key)
        made = ToTable(
            name=shown, where=where, key=node.key, value=node.value, parent=node, nullable=nullable
        )
        return self._table(made)

    @abstractmethod
    def _table(self, node: Node) -> Table:
        """A table of the same session."""

    @abstractmethod
    def _stream(self, node: Node) -> Stream:
        """A stream of the same session."""

    @abstractmethod
    def _table_node(self, other: Relation, where: str) -> Node:
        """The node of another table; raises for what is none."""

    def distinct(self, *columns: ColumnLike, name: str | None = None) -> Table:
        """Show each combination of values that some row has: SQL's ``SELECT DISTINCT``.

        Parameters
        ----------
        *columns
            Columns or strings; an expression needs an alias. A null is a value of its own. Default: all columns.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed by the columns, with no others.

        Raises
        ------
        ArgumentError
            A column is none, or an expression has no alias.
        ColumnCollisionError
            Two columns have the same name.

        Notes
        -----
        It is a group that counts its rows, in two rounds, and emits whenever one of them changes. Not with
        ``compat="kafka-streams"``.

        Examples
        --------
        >>> import tablestream as ts
        >>> users = ts.table(ts.testing.frame(spark, "id int, city string"), "id", name="users")
        >>> driver = ts.testing.Driver(users.distinct("city"))
        >>> driver.pipe("users", [{"id": 1, "city": "Rome"}, {"id": 1, "city": "Oslo"}])
        >>> print(driver.run())
        city | _change_type | _timestamp
        Rome | upsert       | 1970-01-01 00:00:00
        Rome | delete       | 1970-01-01 00:00:00
        Oslo | upsert       | 1970-01-01 00:00:00
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_distinct"
        key = self._chosen_key(columns or [quoted(one) for one in self.columns], where, "distinct")
        fields, on = tuple(one.field for one in key), [one.expression for one in key]
        counts = counted_rows(f"{shown}/counts", where, self._node, fields, on)
        return self._table(Select(shown, where, counts.key, (), counts, ()))

    def _check_branches(
        self, others: Sequence[Relation], names: Sequence[Any], at: Place, *, same_key: bool
    ) -> None:
        """Refuse tables whose rows do not fit into one, or cannot be told apart."""

        def refuse(message: str, hint: str) -> NoReturn:
            raise at.error(ArgumentError, message, hint)

        for one in others:
            if _typed(one) != _typed(self) or (same_key and set(one.key_columns) != set(self.key_columns)):
                refuse(
                    f"The tables have different columns: {self!r} and {one!r}.",
                    "Give them the same names, types and key with select and select_key. For other keys, give row=.",
                )
        if not others:
            refuse("union() has one table.", "Give it another one.")
        texts = {one for one in names if isinstance(one, str)}
        if not len(texts) == len(names) == len(others) + 1:
            refuse(
                f"The branches {names!r} do not tell {len(others) + 1} tables apart.",
                "Give names= with a different text for each table.",
            )


def _typed(table: Relation) -> dict[str, T.DataType]:
    return {one.name: one.dataType for one in table.schema}
