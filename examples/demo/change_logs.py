"""Change logs in files: how the demo writes them, and what they come to when all is read.

A log is a directory of files, one or a few per step. A row is the new state of one key (``op`` is ``u``) or
its end (``op`` is ``d``, all value columns null), with the moment of the change in ``changed_at``. Within a
directory the later file holds the later changes: files are named and dated so that their order is plain.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

UPSERT, DELETE = "u", "d"
MOMENT = pl.Datetime("us", "UTC")

Format = Literal["parquet", "json", "csv"]

_FIRST_MODIFIED_S = 1_400_000_000
_STEP_S = 60
_ISO = "%Y-%m-%dT%H:%M:%S%.6fZ"
_SPARK_TYPES: Mapping[pl.DataType, str] = {
    pl.String(): "STRING",
    pl.Int32(): "INT",
    pl.Int64(): "BIGINT",
    pl.Float64(): "DOUBLE",
    MOMENT: "TIMESTAMP",
}


@dataclass(frozen=True)
class LogSpec:
    """What one change log looks like.

    Parameters
    ----------
    name
        The table's name, and its directory's.
    key
        The key column.
    format
        The format of the files.
    values
        The value columns and their types.
    key_type
        The key's type.
    parts
        Files per step; a key keeps its part, as a record keeps its topic partition.
    """

    name: str
    key: str
    format: Format
    values: Mapping[str, pl.DataType]
    key_type: pl.DataType = field(default_factory=pl.String)
    parts: int = 1

    @property
    def schema(self) -> pl.Schema:
        """Every column of a file, in order."""
        return pl.Schema(
            {self.key: self.key_type, **self.values, "op": pl.String(), "changed_at": MOMENT},
        )

    @property
    def ddl(self) -> str:
        """The schema as Spark reads it.

        Examples
        --------
        >>> LogSpec("airlines", "carrier", "csv", {"name": pl.String()}).ddl
        'carrier STRING, name STRING, op STRING, changed_at TIMESTAMP'
        """
        return ", ".join(f"{name} {_SPARK_TYPES[dtype]}" for name, dtype in self.schema.items())


@dataclass(frozen=True)
class ChangeLog:
    """A change log before it is written.

    Parameters
    ----------
    spec
        Its description.
    rows
        The columns of ``spec.schema``, then ``step`` and ``part``: which file a row goes to. Rows of a file
        stand in the order in which they arrived; a key never leaves its part.
    """

    spec: LogSpec
    rows: pl.DataFrame

    @property
    def deletes(self) -> int:
        """How many rows end a key."""
        return self.rows.filter(pl.col("op") == DELETE).height

    def moves(self, column: str) -> int:
        """How many rows give a key another value of `column` than its previous row did."""
        before = pl.col(column).shift(1).over(self.spec.key)
        known = pl.col("op").shift(1).over(self.spec.key) == UPSERT
        moved = known & (pl.col("op") == UPSERT) & pl.col(column).ne_missing(before)
        return self.rows.filter(moved).height


class Logs(Protocol):
    """The change logs of a scenario."""

    @property
    def all(self) -> Sequence[ChangeLog]:
        """Every log."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What there is to know about them: how often something happens, by what it is."""


def write_log(log: ChangeLog, directory: Path, steps: int) -> list[Path]:
    """Write a log as files, one per step and part, empty ones included, and return them in order.

    Every step has its files, so that a reader of ``parts`` files at a time has all logs of a step together.
    A file's modification time grows with its step and part.
    """
    directory.mkdir(parents=True)
    files = []
    for step in range(steps):
        for part in range(log.spec.parts):
            rows = log.rows.filter((pl.col("step") == step) & (pl.col("part") == part))
            path = directory / f"step-{step:03}-part-{part}.{log.spec.format}"
            _write_file(rows.select(log.spec.schema.names()), path, log.spec.format)
            modified_s = _FIRST_MODIFIED_S + step * _STEP_S + part
            os.utime(path, (modified_s, modified_s))
            files.append(path)
    return files


def final_table(spec: LogSpec, directory: Path) -> pl.DataFrame:
    """Return what the log comes to: per key its last row in order of files, unless that is a delete.

    This knows nothing of the library's engine: it is the half of the comparison that must not.
    """
    last = _rows(spec, directory).unique(subset=spec.key, keep="last", maintain_order=True)
    return last.filter(pl.col("op") == UPSERT).select(spec.key, *spec.values)


def final_versions(spec: LogSpec, directory: Path) -> pl.DataFrame:
    """Return the versions that the log comes to: per key and moment its last row, without values if a delete.

    Sorted by key and moment; of the engine it knows as little as `final_table`.
    """
    moment = "changed_at"
    last = _rows(spec, directory).unique(subset=[spec.key, moment], keep="last", maintain_order=True)
    return last.select(spec.key, moment, *spec.values).sort(spec.key, moment)


def _rows(spec: LogSpec, directory: Path) -> pl.DataFrame:
    """Read a log, in order of its files."""
    return pl.concat([pl.DataFrame(schema=spec.schema), *_read_files(spec, directory)])


def _write_file(rows: pl.DataFrame, path: Path, file_format: Format) -> None:
    moments = [name for name, dtype in rows.schema.items() if dtype == MOMENT]
    match file_format:
        case "parquet":
            rows.write_parquet(path)
        case "json":
            rows.with_columns(pl.col(moments).dt.strftime(_ISO)).write_ndjson(path)
        case "csv":
            rows.with_columns(pl.col(moments).dt.strftime(_ISO)).write_csv(path)


def _read_files(spec: LogSpec, directory: Path) -> Iterator[pl.DataFrame]:
    text_schema = pl.Schema({name: _text_type(dtype) for name, dtype in spec.schema.items()})
    for path in sorted(directory.glob(f"*.{spec.format}")):
        if path.stat().st_size == 0:
            continue
        match spec.format:
            case "parquet":
                yield pl.read_parquet(path)
            case "json":
                yield _with_moments(spec, pl.read_ndjson(path, schema=text_schema))
            case "csv":
                yield _with_moments(spec, pl.read_csv(path, schema=text_schema))


def _text_type(dtype: pl.DataType) -> pl.DataType:
    return pl.String() if dtype == MOMENT else dtype


def _with_moments(spec: LogSpec, rows: pl.DataFrame) -> pl.DataFrame:
    moments = [name for name, dtype in spec.schema.items() if dtype == MOMENT]
    return rows.with_columns(pl.col(moments).str.to_datetime(_ISO, time_unit="us", time_zone="UTC"))
