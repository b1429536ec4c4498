"""The columns of messages that operators declare with SQL, computed by SQLite: it has what this SQL uses."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from tablestream.operators.operator import filled_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl


def filled(
    schema: pl.Schema,
    said: Mapping[str, Any],
    there: bool,
    value_hash: int,
    hasher: Callable[[Sequence[Any]], int],
) -> dict[str, Any]:
    """Fill the declared columns of a message.

    Parameters
    ----------
    schema
        The columns of messages.
    said
        The columns of the source's frame.
    there, value_hash
        Whether there is a row, and the hash of its value.
    hasher
        What hashes several parts.
    """
    declared = filled_of(schema)
    if not declared:
        return {}

    def hashed(*parts: str | bytes) -> int:
        return hasher(tuple(part.decode() if isinstance(part, bytes) else part for part in parts))

    database = sqlite3.connect(":memory:")
    try:
        database.create_function("xxhash64", -1, hashed)
        texts = (one.sql.format(there=int(there), value_hash=value_hash) for one in declared.values())
        given = ", ".join(f"? AS {name}" for name in said) or "0"
        values = database.execute(f"SELECT {', '.join(texts)} FROM (SELECT {given})", [*said.values()])
        return dict(zip(declared, values.fetchone(), strict=True))
    finally:
        database.close()
