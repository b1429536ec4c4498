"""The first rows of groups in an order: `GroupedTable.top`, and tables by a new key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tablestream.arguments.kinds import is_flag, listed
from tablestream.arguments.place import Place
from tablestream.connectors.spark_types import check_bytewise
from tablestream.errors import ArgumentError, UnsupportedTypeError
from tablestream.handles.grouping import Grouped, Made, has_order
from tablestream.handles.values import analysed_columns, check_names, checked_value
from tablestream.spark.analysis import Analysed
from tablestream.spark.columns import quoted
from tablestream.spark.given_columns import ColumnLike, as_column, sql_text
from tablestream.topology.nodes import Field, Fields, Named, Top


class FirstRows(Grouped[Made]):
    """Grouped rows of a table, of which the first ones can be shown."""

    def _first_rows(
        self,
        n: int,
        order: Sequence[tuple[Analysed, bool]],
        rank: Fields,
        at: Place,
    ) -> Made:
        """The first rows of each group, keyed by the group and `rank`; without `rank` by the group alone."""
        value = self._of_row(rank, at)
        inputs, ranked = list(value), []
        texts = [str(one.column) for one in value]
        for one, down in order:
            text = str(one.column)
            place = texts.index(text) if text in texts else len(inputs)
            inputs += [one] if place == len(inputs) else []
            ranked.append((place, down))
        return self._make(
            Top(
                name=at.operator,
                where=at.where,
                key=(*(one.field for one in self._key), *rank),
                value=tuple(one.field for one in value),
                parent=self._node,
                on=tuple(one.expression for one in self._key),
                inputs=tuple(Named(one.name, one.expression) for one in inputs),
                input_fields=tuple(Field(f"i{number}", one.type.json()) for number, one in enumerate(inputs)),
                order=tuple(ranked),
                n=n,
                ranked=bool(rank),
            )
        )

    def _order(
        self,
        order_by: ColumnLike | Sequence[ColumnLike],
        descending: bool | Sequence[bool],
        at: Place,
    ) -> list[tuple[Analysed, bool]]:
        """What rows are ranked by, each with whether the greatest comes first."""
        given = listed(order_by)
        down = [descending] * len(given) if is_flag(descending) else listed(descending)
        if len(down) != len(given) or not all(map(is_flag, down)):
            raise at.error(
                ArgumentError,
                f"descending={descending!r} does not fit {len(given)} columns of order_by.",
                "Give True or False, or a list of these with one for each column.",
            )
        columns = analysed_columns(self._rows, [as_column(one, self._rows.columns) for one in given], at)
        for one in columns:
            check_bytewise(one.type, one.name, at=at, role="the order of rows")
            if not has_order(one.type):
                raise at.error(
                    UnsupportedTypeError,
                    f"Rows cannot be ranked by {one.name} of type {one.type.simpleString()}.",
                    "Use anything but arrays, maps and binary.",
                )
        texts = (sql_text(said) or one.text for said, one in zip(given, columns, strict=True))
        named = (replace(one, text=text) for one, text in zip(columns, texts, strict=True))
        return list(zip(named, map(bool, down), strict=True))

    def _of_row(self, rank: Fields, at: Place) -> list[Analysed]:
        """The columns of a row in a result of first rows: its key, without columns of the group, and its value."""
        session, names = self._rows.sparkSession, [one.name for one in self._node.key]
        group = {(one.name, one.text) for one in self._key}
        keys = analysed_columns(self._rows, [quoted(one) for one in names], at)
        fields, _ = checked_value(session, self._values, {one: (quoted(one),) for one in names}, at)
        kept = {one.name for one in fields}
        row = [one for one in keys if (one.name, one.text) not in group]
        row += [one for one in self._values if one.name in kept]
        fields = (*rank, *(one.field for one in row))
        check_names(session, [one.name for one in self._key], fields, at)
        return row


class NewKeys(FirstRows[Made]):
    """The rows of a table by a new key, of which one is shown; see `Table.select_key`."""

    def first(
        self,
        order_by: ColumnLike | Sequence[ColumnLike] | None,
        descending: bool | Sequence[bool],
        at: Place,
    ) -> Made:
        """The first row of each new key, in an order; of equal rows the last."""
        order = [] if order_by is None else self._order(order_by, descending, at)
        return self._first_rows(1, order, (), at)
