"""Says in the log which fields of a table's records are none of its columns."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

_log = logging.getLogger(__name__)
_announced: set[tuple[str, str]] = set()


def announce(added: pa.Array, table: str) -> None:
    """Name the fields without a column, each once in a process.

    Parameters
    ----------
    added
        Lists of the names, or null: ``added`` of `DebeziumDecoder.decode`.
    table
        The table's name.
    """
    if added.null_count == len(added):
        return
    for name in pc.list_flatten(added).unique().to_pylist():
        if (table, name) not in _announced:
            _announced.add((table, name))
            _log.warning(
                "%s: records have the field '%s', and the table no such column: it is ignored.", table, name
            )
