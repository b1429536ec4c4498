"""Rows for which an expression fails: what a packer makes of them, by the mode of the table whose expression it is.

======  ================================================================================
fail    the query ends with an error that names the row
null    counted
reject  counted, and told to the outputs of rejected records
======  ================================================================================

A record batch says which rows these are in one text column, null for most. It has a line per table, a JSON object with
the number of the table, what fails, and the key and the row as JSON. Records for which an expression of their source
fails have further columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from tablestream.base.data_text import cut_text
from tablestream.errors import ExpressionError
from tablestream.operators.reasons import FAILED
from tablestream.runtime.drops import Drops, example_text, place_text
from tablestream.runtime.ports import Port
from tablestream.runtime.rejections import rejections
from tablestream.spark.failing import HINT, SENTENCE, Watched
from tablestream.state.changes import PARTITION, POSITION, TS

#: What says which expression of a source fails on a record: of a key, a time or an order; of the condition for deletes;
#: of a value.
UNPLACED, UNDECIDED, UNCOMPUTED = "__unplaced", "__undecided", "__uncomputed"
SAYING = (UNPLACED, UNDECIDED, UNCOMPUTED)
#: The key and the row of such a record, as JSON; null for others.
FAILED_KEY, FAILED_RECORD = "__failed_key", "__failed_record"
_SAID = "_said"


@dataclass(frozen=True)
class FailedRows:
    """Handles the rows of record batches for which expressions of tables fail."""

    column: str
    """The column that says which rows these are."""
    owners: tuple[Watched, ...]
    """The tables whose expressions they are, by number."""

    def of(self, frame: pl.DataFrame, *place: pl.Expr | str) -> pl.DataFrame:
        """Take these rows from a frame, with columns for their place and time. Most often there is none."""
        said = pl.col(self.column)
        rows = (
            frame.filter(said.is_not_null())
            if frame[self.column].null_count() < frame.height
            else frame.clear()
        )
        return rows.select(said.alias(_SAID), *place)

    def handled(self, rows: pl.DataFrame, drops: Drops) -> Iterator[tuple[Port, pl.DataFrame]]:
        """Count what `of` returned, and yield the messages about rejected rows, by port; raise in mode ``fail``."""
        found: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for at, text in enumerate(rows[_SAID]):
            for one in map(json.loads, text.split("\n")):
                owner = self.owners[one["owner"]]
                if owner.mode == "fail":
                    raise _error(owner, one["what"], one["key"], one["row"], rows[at])
                found.setdefault(one["owner"], []).append((at, one))
        for number, mine in found.items():
            owner, said = self.owners[number], [one for _, one in mine]
            example = partial(_example, rows[mine[0][0]], said[0]["key"])
            drops.add(owner.operator, FAILED, len(mine), example, owner.where)
            told = _told(rows[[at for at, _ in mine]], owner, said) if owner.ports else rows.clear()
            yield from ((port, told) for port in owner.ports)


@dataclass(frozen=True)
class FailedRecords:
    """Handles the records for which an expression of their source fails."""

    owner: Watched
    """The source."""
    records: bool
    """Whether it is a stream."""

    def left_out(self, columns: Sequence[str]) -> pl.Expr:
        """Whether a record is dropped because an expression fails."""
        names = SAYING if self.records else (UNPLACED,)
        failed = [pl.col(name).is_not_null() for name in names if name in columns]
        return pl.any_horizontal(pl.lit(value=False), *(failed if self.owner.mode == "reject" else []))

    def handled(self, frame: pl.DataFrame, drops: Drops, *, dropped: pl.Expr) -> pl.DataFrame:
        """Count these records, and return those that are rejected and not `dropped`; raise in mode ``fail``."""
        what = pl.coalesce(name for name in SAYING if name in frame.columns)
        failing = frame.filter(what.is_not_null())
        owner = self.owner
        if failing.height and owner.mode == "fail":
            said = failing.select(what, FAILED_KEY, FAILED_RECORD).row(0)
            raise _error(owner, said[0], said[1], said[2], failing)
        counted = failing if owner.mode == "null" else failing.filter(~dropped)
        if counted.height:
            example = partial(_example, counted, counted[FAILED_KEY][0])
            drops.add(owner.operator, FAILED, counted.height, example, owner.where)
        return counted if owner.mode == "reject" else counted.clear()


def _error(owner: Watched, what: str, key: str, row: str, at: pl.DataFrame) -> ExpressionError:
    """The error for the first row of a frame."""
    return ExpressionError(
        SENTENCE.format(
            what=what,
            key=cut_text(key),
            place=place_text(at[PARTITION][0], at[POSITION][0]),
            row=cut_text(row),
        ),
        hint=HINT,
        operator=owner.operator,
        where=owner.where,
    )


def _example(at: pl.DataFrame, key: str) -> str:
    return example_text(at[PARTITION][0], at[POSITION][0], key)


def _told(place: pl.DataFrame, owner: Watched, said: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The messages about rejected rows."""
    texts = (pl.Series([one[name] for one in said], dtype=pl.String) for name in ("key", "row"))
    return rejections(place, [pl.exclude(_SAID, TS)], owner.operator, pl.lit(FAILED), *texts)
