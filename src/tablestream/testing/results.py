"""What an output of a driver has had so far."""

from __future__ import annotations

from pyspark.sql import Row
from pyspark.sql import types as T

from tablestream.connectors.memory.sink import sortable
from tablestream.connectors.sink import ORDER
from tablestream.errors import StateError
from tablestream.planner.physical_plan import Ending
from tablestream.testing.rows import Rows

_GONE = ("delete", "update_preimage")
_LATEST, _KIND = "_is_latest", "_change_type"


class Results:
    """The rows of one output: all, those of the last micro-batch, and those that were not read yet."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self._all: Rows | None = None
        self._last_from = self._read = 0
        self._follows = False

    @property
    def schema(self) -> T.StructType | None:
        """The columns; None before the first micro-batch of this driver."""
        return None if self._all is None or self._follows else self._all.schema

    def add(self, rows: Rows | None) -> None:
        """Add the rows of a micro-batch; the first one has them even if there are none, for their columns.

        Rows from before a restart with other columns are left out: `Rows` has one schema.
        """
        self._follows = False
        if rows is not None and self._all is not None and not _same_columns(rows, self._all):
            self._all, self._read = None, 0
        self._last_from = 0 if self._all is None else len(self._all)
        if rows is not None:
            self._all = rows if self._all is None else self._all + rows

    def follow(self, earlier: Results) -> None:
        """Go on where those of another driver stopped."""
        self._all, self._last_from, self._read = earlier._all, earlier._last_from, earlier._read
        self._follows = True

    @property
    def last(self) -> Rows:
        """Those of the last micro-batch."""
        return self._some[self._last_from :]

    def unread(self) -> Rows:
        """Those since the last call."""
        begin, self._read = self._read, len(self._some)
        return self._some[begin:]

    def table(self) -> Rows:
        """The last row of every key that has one, by key."""
        keys = len(self.ending.node.key)
        latest: dict[tuple[str | None, ...], int] = {}
        for at, (row, cells) in enumerate(zip(self._some, self._some.cells, strict=True)):
            if _LATEST in row and not row[_LATEST]:
                continue
            latest.pop(cells[:keys], None)
            if row[_KIND] not in _GONE:
                latest[cells[:keys]] = at

        def key(row: Row) -> object:
            return sortable(tuple(row[:keys]))

        rows = self._some.taken(list(latest.values())).ordered(key)
        return rows.without(ORDER, _KIND, _LATEST)

    @property
    def _some(self) -> Rows:
        if self._all is None:
            raise StateError("No micro-batch has run yet.", hint="Call run() first.")
        return self._all


def _same_columns(rows: Rows, others: Rows) -> bool:
    mine, theirs = (
        T.StructType([one for one in every.schema if one.name != ORDER]) for every in (rows, others)
    )
    return mine.simpleString() == theirs.simpleString()
