"""A plot of the changes of one key: which value was said to be valid when, change after change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tablestream.base.extras import install_hint
from tablestream.base.time_zones import in_utc, rows_of
from tablestream.connectors.memory.sink import sortable
from tablestream.connectors.sink import CHANGE_COLUMNS, CHANGE_TYPE, LATEST, ORDER, TIMESTAMP, quoted
from tablestream.errors import ArgumentError
from tablestream.pictures.validity import Change, moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MICRO_BATCH, _PREIMAGE = "micro_batch", "update_preimage"


@dataclass(frozen=True)
class Timeline:
    """A plot of the changes of one key, made by `timeline`. Notebooks show it.

    Attributes
    ----------
    figure
        The plot as a figure of Matplotlib, to change it or to write it in other formats.
    """

    figure: Figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, in the format that the suffix names: ``.svg``, ``.png``, ``.pdf``."""
        self.figure.savefig(path)

    def _repr_png_(self) -> bytes:
        written = BytesIO()
        self.figure.savefig(written, format="png", dpi=110)
        return written.getvalue()


def timeline(
    changes: Any, key: Mapping[str, Any], value: str | Sequence[str] | None = None, last: int = 40
) -> Timeline:
    """Plot what the changes of one key said was valid when.

    Each change is a line, from above to below in the order in which changes were emitted. The line shows the values
    over time that were known after the change: what it wrote in full colour, and what still held in pale colour. A
    change whose time is not after the newest one that is known is marked as a correction.

    Parameters
    ----------
    changes
        The changes of one table: a batch DataFrame of Spark, read from a sink that keeps every change; or the same as
        pandas, Polars, an Arrow table or collected rows, such as those of `testing.Driver`. It needs the columns
        ``_change_type``, ``_timestamp`` and ``_order``.
    key
        The key to show: a value for each key column, such as ``{"id": 7}``. A sink does not say which columns are the
        key. If you name another column, the changes of several keys are drawn as if they were one row.
    value
        The columns to show. Default: all that are not in `key`. If a row is too long for its line, only what its change
        altered is shown.
    last
        How many changes to show: the last ones.

    Returns
    -------
    Timeline
        The plot.

    Raises
    ------
    ArgumentError
        Matplotlib is not installed, a column is missing, or the key has no changes.

    Notes
    -----
    The changes of a versioned table have ``_is_latest``. A late one of them corrects the time until the next known
    version. A change of another table is its row from then on, also if its time is before that of the row before.

    Examples
    --------
    >>> import pandas as pd
    >>> import tablestream as ts
    >>> changes = pd.DataFrame({
    ...     "id": [1, 1],
    ...     "price": [10.5, 11.0],
    ...     "_change_type": ["upsert", "upsert"],
    ...     "_timestamp": pd.to_datetime(["2024-01-02 09:00", "2024-01-02 09:05"]),
    ...     "_order": [{"micro_batch": 0}, {"micro_batch": 1}],
    ... })
    >>> ts.timeline(changes, key={"id": 1}).save("id 1.svg")
    """
    try:
        from tablestream.pictures.plot import plotted
    except ImportError as missing:
        raise ArgumentError(
            "A timeline needs Matplotlib, which is not installed.", hint=install_hint("plot")
        ) from missing
    if type(last) is not int or last < 1:
        raise ArgumentError(
            f"last={last!r} is no number of changes.", hint="Give a whole number of at least 1."
        )
    known = moments(_changes_of(changes, key, value), last)
    name = ", ".join(f"{column} = {one}" for column, one in key.items())
    return Timeline(plotted(name, known, last))


def _changes_of(changes: Any, key: Any, value: str | Sequence[str] | None) -> list[Change]:
    """The changes of a key, in the order of their emission."""
    if not isinstance(key, Mapping) or not key:
        raise ArgumentError(
            f"key={key!r} is no key.", hint='Give a value for each key column, as in key={"id": 7}.'
        )
    shown = [value] if isinstance(value, str) else value
    columns = _columns_of(changes)
    missing = [name for name in (*CHANGE_COLUMNS, *key, *(shown or ())) if name not in columns]
    if missing:
        raise ArgumentError(
            f"The changes have no column {', '.join(missing)}; they have {', '.join(columns)}.",
            hint="Give the changes as a sink keeps them, such as tablestream.to_files.",
        )
    if shown is None:
        own = {*CHANGE_COLUMNS, *key, LATEST, _MICRO_BATCH}
        shown = [name for name in columns if name not in own]
    rows = [row for row in _rows_of(changes, key) if row[CHANGE_TYPE] != _PREIMAGE]
    if not rows:
        raise ArgumentError(
            f"There is no change of the key {dict(key)}.", hint="Compare its values and their types."
        )
    if any(isinstance(row[TIMESTAMP], str) for row in rows):
        raise ArgumentError(
            f"The column {TIMESTAMP} has texts.",
            hint="Read the log with its types: spark.read.schema(...).json(...), or cast the column to timestamp.",
        )
    rows.sort(key=lambda row: sortable(row[ORDER]))
    return [_change(row, before, shown) for row, before in zip(rows, [None, *rows], strict=False)]


def _columns_of(changes: Any) -> list[str]:
    if getattr(changes, "isStreaming", False):
        raise ArgumentError(
            "A streaming DataFrame has no rows yet.",
            hint="Let a query write the changes to a sink, and read that: spark.read.parquet(...).",
        )
    if isinstance(changes, Sequence) and all(hasattr(row, "asDict") for row in changes):
        return list(changes[0].asDict()) if changes else list(CHANGE_COLUMNS)
    if isinstance(changes, pa.Table):
        return list(changes.column_names)
    if hasattr(changes, "columns"):
        return list(changes.columns)
    raise ArgumentError(
        f"A {type(changes).__name__} has no changes.",
        hint="Give a DataFrame of Spark, pandas or Polars, an Arrow table, or collected rows.",
    )


def _rows_of(changes: Any, key: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a key. Spark reads no others."""
    if hasattr(changes, "toArrow"):
        for name, one in key.items():
            changes = changes.where(changes[quoted(name)].eqNullSafe(one))
        return rows_of(in_utc(changes.toArrow(), keep_known=True))
    if isinstance(changes, Sequence):
        rows = [row.asDict(recursive=True) for row in changes]
    elif isinstance(changes, pa.Table):
        rows = rows_of(changes)
    else:
        arrow = changes.to_arrow() if hasattr(changes, "to_arrow") else pa.Table.from_pandas(changes)
        rows = rows_of(arrow)
    return [row for row in rows if all(row[name] == one for name, one in key.items())]


def _change(row: Mapping[str, Any], before: Mapping[str, Any] | None, shown: Sequence[str]) -> Change:
    """A row as a change. A deleted row may still have values: those that it had."""
    text = _text(row[shown[0]]) if len(shown) == 1 else _texts(row, shown)
    changed = "" if before is None else _texts(row, [name for name in shown if row[name] != before[name]])
    exists = row[CHANGE_TYPE] != "delete"
    order = row[ORDER]
    micro_batch = order.get(_MICRO_BATCH) if isinstance(order, Mapping) else None
    return Change(row[TIMESTAMP], text if exists else None, row.get(LATEST), micro_batch, changed)


def _texts(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={_text(row[name])}" for name in names)


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)
