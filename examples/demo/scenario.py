"""What a demo shows: change logs, the tables maintained from them, and the batch computation to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import polars as pl
    from pyspark.sql import SparkSession

    import tablestream as ts
    from examples.demo.change_logs import Logs


@dataclass(frozen=True)
class Scenario:
    """One demo.

    Parameters
    ----------
    name
        Its name, and its query's.
    rows
        What the rows of the result are, in words.
    key
        The key columns of the result.
    shown
        The columns of the result that say most, for a sample.
    logs
        (steps, scale) -> the change logs.
    outputs
        (session, directory of the logs) -> the outputs by name. They are all the same result, by different plans.
    batch
        (directory of the logs) -> the result, computed from the final tables.
    held
        (directory of the logs) -> the keys of which rows may still wait in the query's state when the logs end.
    counted
        What the query counts, by the name under which its progress has it, in words.
    """

    name: str
    rows: str
    key: tuple[str, ...]
    shown: tuple[str, ...]
    logs: Callable[[int, float], Logs]
    outputs: Callable[[SparkSession, Path], Mapping[str, ts.Table | ts.Stream]]
    batch: Callable[[Path], pl.DataFrame]
    held: Callable[[Path], pl.DataFrame] | None = None
    counted: Mapping[str, str] = field(default_factory=dict)
