"""What to write in the place of a method that DataFrames, or the tables of Kafka Streams, have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

_NO_ROWS = "It has no rows to look at: see ts.read_state, or ts.testing.Driver in a test."
_COLUMNS = "Use select(...) with the columns that stay, F.col('old').alias('new') to rename one."
_JOIN = "Use join(..., how='left')."
_DISTINCT = "A table has one row of each key. Use distinct(...) of a table for the values of other columns."
_INSTEAD = {
    **dict.fromkeys(("show", "collect", "toPandas", "toArrow", "take", "first", "head"), _NO_ROWS),
    **dict.fromkeys(("drop", "withColumnRenamed", "withColumnsRenamed"), _COLUMNS),
    **dict.fromkeys(("withColumn", "withColumns"), "Use with_columns(name=...)."),
    **dict.fromkeys(("leftJoin", "leftOuterJoin"), _JOIN),
    "where": "Use filter.",
    "groupByKey": "Use group_by with the key's columns.",
    "agg": "Use group_by(...).agg(n=ts.functions.count()).",
    **dict.fromkeys(("limit", "orderBy", "sort"), "Use group_by(...).top(n, order_by)."),
    **dict.fromkeys(("distinct", "dropDuplicates", "drop_duplicates"), _DISTINCT),
    **dict.fromkeys(("unionByName", "unionAll"), "Use union."),
    "crossJoin": "A join needs an equality: join(other, on=...).",
    "writeStream": "Use ts.start(table.to(sink), checkpoint=...).",
}


class OtherNames:
    """Says what to write in the place of an attribute that there is not. Subclasses say what columns they have."""

    def _column_names(self) -> Iterable[str]:
        raise NotImplementedError

    if not TYPE_CHECKING:  # for a type checker, every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # those of Python, of notebooks, and of an object that is being made
                raise AttributeError(name, name=name, obj=self)
            ours = re.sub("([A-Z])", r"_\1", name).lower()
            if ours != name and hasattr(type(self), ours):
                hint = f"Use {ours}."
            elif "_node" in self.__dict__ and name in self._column_names():
                hint = f"Columns are named in strings: F.col({name!r})."
            else:
                hint = _INSTEAD.get(name, "")
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{said}. {hint}" if hint else said, name=name, obj=self)
