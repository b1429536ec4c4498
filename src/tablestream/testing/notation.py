r"""Rows as a small text table, to write them in a test and to read them in its report.

::

    ticker | price | _change_type
    ACME   | 10.5  | upsert
    BOLT   | null  | delete

The first line names the columns. An empty cell and ``null`` are null. A text that would be misread is written as in
JSON: ``"null"``, ``""``, ``"a | b"``, ``" a"``. A line of ``--``, ``+`` and ``|`` is a ruling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tablestream.errors import ArgumentError

Cells = tuple[str | None, ...]
"""A row as text; None is null."""
NULL = "null"
_PLAIN_CELL, _JSON_CELL = re.compile(r"[^|]*"), re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^|])*')
_RULING = re.compile(r"[-+|: ]*--[-+|: ]*")
_SEPARATOR = " | "


def parsed(text: str) -> tuple[tuple[str, ...], list[Cells]]:
    r"""Read a text table: its columns, and its rows.

    Examples
    --------
    >>> parsed('id | name\n1 | null\n2 | "a | b"')
    (('id', 'name'), [('1', None), ('2', 'a | b')])
    """
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and not _RULING.fullmatch(line)]
    if not lines:
        raise ArgumentError(
            "The text table has no header.",
            hint="Write the columns in its first line, as in 'ticker | price'.",
        )
    if lines[0].startswith("|") and lines[0].endswith("|"):
        lines = [line.removeprefix("|").removesuffix("|") for line in lines]
    header, *rows = [_split(line) for line in lines]
    names = tuple(name or "" for name in header)
    for line, row in zip(lines[1:], rows, strict=True):
        if len(row) != len(names):
            raise ArgumentError(
                f"A row has {len(row)} cells, and the table has {len(names)} columns: {line!r}",
                hint='Separate cells by |, and write a text with | in quotes, as in "a | b".',
            )
    return names, rows


def shown(columns: Sequence[str], rows: Sequence[Cells], marks: Sequence[str] | None = None) -> str:
    """Write an aligned text table, with `marks` before the header and the rows."""
    table = [[cell(one) for one in row] for row in (tuple(columns), *rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    lines = []
    for number, row in enumerate(table):
        mark = "" if marks is None else marks[number]
        padded = _SEPARATOR.join(one.ljust(width) for one, width in zip(row, widths, strict=True))
        lines.append(f"{mark}{padded}".rstrip())
    return "\n".join(lines)


def cell(text: str | None) -> str:
    """Write a cell, in quotes if it would be misread."""
    if text is None:
        return NULL
    is_ambiguous = text in {"", NULL} or text != text.strip() or _RULING.fullmatch(text)
    if text.isprintable() and not is_ambiguous and (_is_json(text) or not ("|" in text or text[0] in '"[{')):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _is_json(text: str) -> bool:
    """Whether a text is a list or an object, as nested values are written."""
    try:
        return isinstance(json.loads(text), list | dict)
    except ValueError:
        return False


def _split(line: str) -> Cells:
    """The cells of a line. Where a cell begins as JSON does, a bar inside quotes does not end it."""
    cells, at = [], 0
    while at <= len(line):
        begins = line[at:].lstrip()[:1]
        found = (_JSON_CELL if begins and begins in '"[{' else _PLAIN_CELL).match(line, at)
        assert found is not None  # noqa: S101 - every text matches
        cells.append(_read(found.group().strip()))
        at = found.end() + 1
    return tuple(cells)


def _read(text: str) -> str | None:
    if text in {"", NULL}:
        return None
    if text.startswith('"'):
        try:
            value = json.loads(text)
        except ValueError as problem:
            raise ArgumentError(
                f"The cell {text} begins with a quote and is not a text as in JSON.",
                hint='Write quotes inside as \\", as in "say \\"yes\\"".',
            ) from problem
        return str(value)
    return text
