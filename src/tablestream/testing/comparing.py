"""Compare rows with what a test expects, and show the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tablestream.connectors.sink import LATEST, TIMESTAMP
from tablestream.errors import ArgumentError
from tablestream.spark.row_frames import frame_of_table
from tablestream.testing.notation import Cells, cell, shown
from tablestream.testing.plain import in_utc, plain_text
from tablestream.testing.rows import Rows
from tablestream.testing.values import GivenRows, named, typed

_WIDTH = 80
_SAME, _EXPECTED, _ACTUAL = "  ", "- ", "+ "
_MARK, _CUT = "^", "…"
#: Columns that a tuple may leave out.
_OPTIONAL = (TIMESTAMP, LATEST)
_LEAST = 6


def assert_changes_equal(
    actual: Rows | DataFrame, expected: GivenRows | Rows, *, in_any_order: bool = False
) -> None:
    """Assert that rows are those that a test expects, and show the difference if they are not.

    Parameters
    ----------
    actual
        What a `Driver` returned, or a batch DataFrame, which is sorted by ``_order`` if it has this column.
    expected
        A text table, or mappings, tuples or Spark's rows. Only the columns that it names are compared. Tuples have all
        columns of `actual` but ``_order``; they may leave out ``_timestamp`` and ``_is_latest``.
    in_any_order
        Whether the order of the rows does not matter.

    Raises
    ------
    AssertionError
        The rows differ. The message is a table: lines with ``-`` were expected and are missing, lines with ``+``
        were not expected, and ``^`` is below the cells in which two such lines differ. It says so if only their order
        differs.
    ArgumentError
        What is expected cannot be read, or names a column that `actual` does not have.

    Examples
    --------
    >>> import tablestream as ts
    >>> changes = spark.sql("SELECT 1 AS id, 10.5D AS price, 'upsert' AS _change_type")
    >>> ts.testing.assert_changes_equal(changes, '''
    ...     id | price | _change_type
    ...     1  | 10.50 | upsert
    ... ''')
    >>> ts.testing.assert_changes_equal(changes, [{"id": 1, "price": 11.0}])
    Traceback (most recent call last):
    AssertionError: The rows differ: 1 of 1 expected is missing, 1 was not expected.
      id | price
    - 1  | 11.0
    + 1  | 10.5
           ^^^^
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    found = actual if isinstance(actual, Rows) else Rows.of(_checked(actual))
    names, wanted = _wanted(found, expected)
    places = [found.columns.index(name) for name in names]
    got = [tuple(row[at] for at in places) for row in found.cells]
    if in_any_order:
        got, wanted = (sorted(rows, key=_sortable) for rows in (got, wanted))
    if got != wanted:
        raise AssertionError(difference(names, wanted, got))


def _checked(actual: object) -> DataFrame:
    if isinstance(actual, DataFrame) and not actual.isStreaming:
        return actual
    raise ArgumentError(
        f"A {type(actual).__name__} cannot be compared.",
        hint="Give what a Driver returned, or a batch DataFrame.",
    )


def _wanted(found: Rows, expected: GivenRows | Rows) -> tuple[list[str], list[Cells]]:
    """The expected rows as text, in the types of those that were found, and the names of their columns."""
    if isinstance(expected, Rows):
        return _of_rows(found, expected)
    given: GivenRows = expected if isinstance(expected, str) else list(expected)
    columns = found.columns
    if not isinstance(given, str) and any(
        isinstance(one, tuple) and len(one) < len(columns) and not hasattr(one, "__fields__") for one in given
    ):
        columns = [name for name in columns if name not in _OPTIONAL]
    names, rows = named(given, columns)
    fields = {one.name.lower(): one for one in found.schema}
    there = [fields[name.lower()] for name in names if name.lower() in fields]
    schema = T.StructType(there if len(there) == len(names) else [fields[name.lower()] for name in columns])
    shown_names = [one.name for one in schema if one.name in found.columns]
    table = typed(found.spark, schema, names, rows)
    cells = _plain_cells(found, table.select(shown_names), schema)
    if cells is None:
        cells = list(Rows.of(frame_of_table(found.spark, table, schema)).cells)
    return shown_names, cells


def _of_rows(found: Rows, expected: Rows) -> tuple[list[str], list[Cells]]:
    """The same for rows that a driver returned: they have texts already."""
    others = [name for name in expected.columns if name not in found.columns]
    if others:
        raise ArgumentError(
            f"The rows that were found have no column {', '.join(others)}.",
            hint=f"They have {', '.join(found.columns)}.",
        )
    return expected.columns, list(expected.cells)


def _plain_cells(found: Rows, table: pa.Table, schema: T.StructType) -> list[Cells] | None:
    """The texts of expected rows without Spark: of plain values, and of numbers that were found; else None."""
    is_utc, columns = in_utc(found.spark), []
    for name in table.column_names:
        place = found.columns.index(name)
        known = {repr(row[name]): cells[place] for row, cells in zip(found.rows, found.cells, strict=True)}
        try:
            texts = [
                plain_text(one, schema[name].dataType, known, is_utc=is_utc)
                for one in table[name].to_pylist()
            ]
        except (LookupError, ValueError, OverflowError):  # not plain, or of a year that Python lacks
            return None
        columns.append(texts)
    return list(zip(*columns, strict=True))


def difference(names: Sequence[str], expected: Sequence[Cells], actual: Sequence[Cells]) -> str:
    """Show two lists of rows as one table with markers."""
    lines = list(_lines(expected, actual))
    missing, extra = (sum(mark == one for mark, _ in lines) for one in (_EXPECTED, _ACTUAL))
    head = (
        f"The rows differ: {missing} of {len(expected)} expected {'is' if missing == 1 else 'are'} missing,"
        f" {extra} {'was' if extra == 1 else 'were'} not expected."
    )
    if Counter(expected) == Counter(actual):
        head = "The rows differ only in their order. Pass in_any_order=True if it does not matter."
    table = [_SAME, *(mark for mark, _ in lines)]
    rows = [tuple(names), *(row for _, row in lines)]
    narrow = _narrowed(rows)
    text = shown([one or "" for one in narrow[0]], narrow[1:], table).split("\n")
    return "\n".join([head, *_pointed(text, table, rows, narrow)])


def _lines(expected: Sequence[Cells], actual: Sequence[Cells]) -> Iterator[tuple[str, Cells]]:
    """The rows of both, with their marks; rows that replace each other stand together."""
    for what, a, b, c, d in SequenceMatcher(None, expected, actual, autojunk=False).get_opcodes():
        if what == "equal":
            yield from ((_SAME, row) for row in expected[a:b])
            continue
        for at in range(max(b - a, d - c)):
            yield from ((_EXPECTED, row) for row in expected[a + at : min(a + at + 1, b)])
            yield from ((_ACTUAL, row) for row in actual[c + at : min(c + at + 1, d)])


def _narrowed(table: Sequence[Cells]) -> list[Cells]:
    """The header and the rows, with the widest columns cut until a line has 80 characters."""
    widths = _widths(table)
    limits = list(widths)
    room = _WIDTH - len(_SAME) - 3 * (len(widths) - 1)
    while sum(limits) > room and max(limits) > _LEAST:
        limits[limits.index(max(limits))] -= 1
    return [
        tuple(
            one if one is None or width <= limit or len(one) <= limit else one[: limit - 1] + _CUT
            for one, width, limit in zip(row, widths, limits, strict=True)
        )
        for row in table
    ]


def _pointed(
    text: Sequence[str], marks: Sequence[str], rows: Sequence[Cells], narrow: Sequence[Cells]
) -> Iterator[str]:
    """The lines, with a line below each pair that shows the cells in which it differs."""
    widths = _widths(narrow)
    for at, line in enumerate(text):
        yield line
        if marks[at] == _ACTUAL and marks[at - 1] == _EXPECTED:
            pairs = zip(rows[at - 1], rows[at], narrow[at], widths, strict=True)
            below = [
                ("" if one == other else _MARK * len(cell(seen))).ljust(width)
                for one, other, seen, width in pairs
            ]
            yield f"{_SAME}{'   '.join(below)}".rstrip()


def _widths(table: Sequence[Cells]) -> list[int]:
    return [max(len(cell(row[at])) for row in table) for at in range(len(table[0]))]


def _sortable(row: Cells) -> list[tuple[bool, str]]:
    return [(one is not None, one or "") for one in row]
