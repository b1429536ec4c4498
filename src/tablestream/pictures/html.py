"""What notebooks show of tables and of changes: HTML tables, and the picture of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    """Return rows of texts as an HTML table.

    Examples
    --------
    >>> html_table(["id", "name"], [["1", None]])
    '<table><tr><th>id</th><th>name</th></tr><tr><td>1</td><td><i>NULL</i></td></tr></table>'
    """
    lines = ["".join(f"<th>{escape(one)}</th>" for one in columns)]
    lines += ["".join(f"<td>{_cell(one)}</td>" for one in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def relation_html(title: str, columns: Iterable[tuple[str, str, bool]], plan: str) -> str:
    """Return a table or a stream as HTML: its title, name and type of each column and whether it is of the key.

    The plan, as SVG, may be wider than the page.
    """
    rows = [(name, kind, "key" if is_key else "") for name, kind, is_key in columns]
    shown = html_table(("column", "type", ""), rows)
    return f'<div><b>{escape(title)}</b>{shown}<div style="overflow-x:auto">{plan}</div></div>'


def _cell(text: str | None) -> str:
    return "<i>NULL</i>" if text is None else escape(text)
