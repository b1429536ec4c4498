"""A finding as text: a line for each row, with what it was made of below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tablestream.provenance.finding import Finding

_INDENT = "  "


def text_of(finding: Finding) -> str:
    """Write a finding, and all behind it.

    Examples
    --------
    >>> row = Finding("tickers", "source", {"ticker": "A"}, there=True, row={"price": 2.5})
    >>> print(text_of(row))
    tickers (source) ticker=A: price=2.5
    """
    return "\n".join(_lines(finding, 0))


def _lines(finding: Finding, depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    key = f" {key_text(finding)}" if finding.key else ""
    yield f"{indent}{finding.table} ({finding.what}){key}: {row_text(finding)}"
    for note in finding.notes:
        yield f"{indent}{_INDENT}- {note}"
    for one in finding.made_of:
        yield from _lines(one, depth + 1)


def key_text(finding: Finding) -> str:
    """Write the key of a row."""
    return _pairs(finding.key)


def row_text(finding: Finding) -> str:
    """Write what is known of a row: its columns, and which of them are computed."""
    if finding.there is False:
        return "no row"
    known = [_pairs(finding.row)] if finding.row else []
    computed = [name if not text else f"{name} = {text}" for name, text in finding.computed.items()]
    if computed:
        known.append(f"not in the state: {', '.join(computed)}")
    time = [f"at {finding.at}"] if finding.at is not None else []
    word = [] if finding.there else ["not known whether there is a row"]
    return "; ".join((*word, *(known if finding.there else []), *time)) or "a row"


def _pairs(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in columns.items())


def _shown(value: Any) -> str:
    """A value on one line."""
    return (
        "null"
        if value is None
        else str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    )
