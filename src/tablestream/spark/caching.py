"""The cache of a Python worker: one per process and directory, kept as long as Spark keeps the worker."""

from __future__ import annotations

from functools import cache

from tablestream.state.cache import RunCache


@cache
def worker_cache(directory: str, max_bytes: int) -> RunCache:
    """Return this process's cache of runs."""
    return RunCache(directory, max_bytes)
