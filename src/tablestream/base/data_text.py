"""Values of users' records in messages: cut short, with control characters in shown form, or left out.

Every message that prints a value uses `data_text`, or `cut_text` for what is a text already. So a row of 30 MB does not
stand whole in an error, an escape sequence in a record does not reach a terminal, and a query whose messages must not
have data (`leave_out_data`) has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: The most characters of a value in a message.
LIMIT = 200
#: The most characters of a message that others wrote.
SENTENCE = 2000
LEFT_OUT = "(left out)"

#: Control characters, those that change the direction of text, and halves of characters that cannot be written.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSEEN = re.compile(f"[{_CONTROLS}\t\n]")
_UNSEEN_IN_LINES = re.compile(f"[{_CONTROLS}]")

_left_out: ContextVar[bool] = ContextVar("left_out", default=False)


def leave_out_data(left_out: bool) -> None:
    """Say whether messages of this thread leave values out, from now on; a task of a worker begins with it."""
    _left_out.set(left_out)


def leaves_out_data() -> bool:
    """Return whether messages of this thread leave values out."""
    return _left_out.get()


@contextmanager
def data_left_out(left_out: bool) -> Iterator[None]:
    """Say for a while whether messages of this thread leave values out."""
    token = _left_out.set(left_out)
    try:
        yield
    finally:
        _left_out.reset(token)


def data_text(value: object) -> str:
    r"""Show a value of a record in a message, as Python writes it.

    Examples
    --------
    >>> print(data_text("a\x1b[2Jb"), data_text({"id": 7}))
    'a\x1b[2Jb' {'id': 7}
    >>> len(data_text("x" * 30_000_000))
    205
    """
    if _left_out.get():
        return LEFT_OUT
    if isinstance(value, str | bytes) and len(value) > LIMIT:
        return f"{visible(repr(value[:LIMIT]))}..."
    return cut_text(repr(value))


def cut_text(text: str) -> str:
    """Show a text that has values of a record, such as JSON of a key, in a message."""
    if _left_out.get():
        return LEFT_OUT
    return f"{visible(text[:LIMIT])}..." if len(text) > LIMIT else visible(text)


def cut_sentence(text: str) -> str:
    """Cut a message that others wrote, such as Spark, and that may have a whole record in it."""
    return text if len(text) <= SENTENCE else f"{text[:SENTENCE]}..."


def visible(text: str) -> str:
    r"""Return a text with control characters in shown form, line ends and tabs as well.

    Examples
    --------
    >>> print(visible("a\x1b[31m\nb"))
    a\x1b[31m\nb
    """
    return _UNSEEN.sub(_shown, text)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines with control characters in shown form; line ends and tabs stay.

    Examples
    --------
    >>> print(visible_lines("a\x1b[31m\nb"))
    a\x1b[31m
    b
    """
    return _UNSEEN_IN_LINES.sub(_shown, text)


def visible_json(text: str) -> str:
    r"""Return JSON in which control characters are escaped that JSON allows as they are.

    Examples
    --------
    >>> print(visible_json('{"a":"\x9b2J"}'))
    {"a":"\u009b2J"}
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _shown(found: re.Match[str]) -> str:
    return repr(found.group())[1:-1]
