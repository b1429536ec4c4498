"""What the traces of an engine have to hold: every row that was inserted, in plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

import polars as pl

from tablestream.state.changes import LIVE
from tablestream.state.store import MemoryStore
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

Rows: TypeAlias = dict[tuple[Any, ...], dict[str, Any]]
"""By their identity."""


class Shadow:
    """Notes what is inserted into traces, by store and name."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], Rows] = {}
        self._bounds: dict[tuple[int, str], int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note all inserts for a while."""
        insert = Trace.insert

        def noting(trace: Trace, rows: pl.DataFrame, *, expired_before: int | None = None) -> None:
            self._note((id(trace._storage._store), trace.spec.name), trace.spec, rows, expired_before)
            insert(trace, rows, expired_before=expired_before)

        with mock.patch.object(Trace, "insert", noting):
            yield

    def _note(self, key: tuple[int, str], spec: TraceSpec, rows: pl.DataFrame, bound: int | None) -> None:
        known = self._rows.setdefault(key, {})
        for row in rows[list(spec.schema)].to_dicts():
            known[tuple(row[name] for name in spec.identity)] = row
        if bound is not None:
            self._bounds[key] = max(bound, self._bounds.get(key, bound))

    def bound(self, store: MemoryStore | None, spec: TraceSpec) -> int | None:
        """Return the time before which the rows of a trace are expired; None: no row expires."""
        return None if spec.expires is None else self._bounds.get((id(store), spec.name))

    def difference(self, store: MemoryStore, spec: TraceSpec, scanned: pl.DataFrame) -> list[str]:
        """Return the rows that are there or missing by mistake; expired rows may be either."""
        bound = self.bound(store, spec)
        inserted = self._rows.get((id(store), spec.name), {}).values()
        wanted = {repr(row) for row in inserted if row[LIVE] and not _is_expired(row, spec, bound)}
        found = {repr(row) for row in scanned.to_dicts() if not _is_expired(row, spec, bound)}
        return sorted(wanted ^ found)


def _is_expired(row: dict[str, Any], spec: TraceSpec, bound: int | None) -> bool:
    return bound is not None and row[spec.expires or ""] is not None and row[spec.expires or ""] < bound
