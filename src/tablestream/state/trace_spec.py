"""The shape of a trace: its columns, and what its rows are found by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from tablestream.state.changes import LIVE


@dataclass(frozen=True)
class TraceSpec:
    """The shape of a trace, which the plan fixes."""

    name: str
    """Used in the manifest and in messages."""
    schema: pl.Schema
    """All the columns in order, with `hash`, the key columns and ``_live`` among them."""
    key: tuple[str, ...]
    """The columns that rows are looked up by."""
    unique: tuple[str, ...] = ()
    """The further columns that, with the key, make a row unique; empty if each key has only one row."""
    hash: str = "_kh"
    """The Int64 hash of the key columns, never null."""
    unique_hash: str | None = None
    """An optional Int64 hash of the unique columns: it makes finding versions of a row twice as fast."""
    expires: str | None = None
    """An optional Int64 column that says when a row expires; null: never. Merges remove expired rows."""
    number: int = 0
    """Used for the chunks in the store; unique in the shard. `numbered_traces` gives it."""

    def __post_init__(self) -> None:
        """Check that the columns exist."""
        types = {self.hash: pl.Int64, LIVE: pl.Boolean}
        if self.expires is not None:
            types[self.expires] = pl.Int64
        if self.unique_hash is not None:
            types[self.unique_hash] = pl.Int64
        wrong = [name for name, dtype in types.items() if self.schema.get(name) != dtype]
        wrong += [name for name in self.identity if name not in self.schema]
        if wrong or not self.key:
            raise ValueError(f"Trace '{self.name}' needs a key and columns of the right type: {wrong}")

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that make a row unique."""
        return (*self.key, *self.unique)

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """No rows. Polars makes a frame of a wide schema in milliseconds, and shards have the same one."""
        return pl.DataFrame(schema=self.schema)


def numbered_traces(specs: Iterable[TraceSpec]) -> tuple[TraceSpec, ...]:
    """Number the traces of a shard."""
    return tuple(replace(spec, number=number) for number, spec in enumerate(specs))
