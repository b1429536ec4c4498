"""What an output of a driver has had so far."""

from __future__ import annotations

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from tablestream.connectors.memory import sortable
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
        self.schema: T.StructType | None = None
        self._all: Rows | None = None
        self._last_from = self._read = 0

    def add(self, spark: SparkSession, rows: Rows | None, schema: T.StructType | None) -> None:
        """Add the rows of a micro-batch; `schema` is given with the first one."""
        self.schema = self.schema or schema
        assert self.schema is not None  # noqa: S101 - the driver gives it
        before = Rows.none(spark, self.schema) if self._all is None else self._all
        self._last_from = len(before)
        self._all = before if rows is None else before + rows

    def follow(self, earlier: Results) -> None:
        """Go on where those of another driver stopped."""
        self.schema, self._all = earlier.schema, earlier._all
        self._last_from, self._read = earlier._last_from, earlier._read

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
        keys = len(self.ending.output.node.key)
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
