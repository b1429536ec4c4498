"""Values that others wrote, before anything is done with them: few bytes must not become a long time or many bytes.

================================================  =================================================================
A record has                                      It is
================================================  =================================================================
a number with an exponent beyond 2,000            no number: written out, ``1e999999999`` has a thousand million digits
a control character in the text of a header       read as if it were escaped: Connect's own converter writes it so
anything else where a text must be                no text: it is not compared, looked up or turned into one
================================================  =================================================================

What no rule foresees is found by the decoder: the record that fails alone is the one that cannot be decoded.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tablestream.base.data_text import cut_text
from tablestream.errors import TablestreamError

MAX_EXPONENT = 2000
#: They say nothing of the record that was decoded, such as that a schema registry does not answer.
NOT_OF_A_RECORD = (TablestreamError, OSError, MemoryError)
_EXPONENT_LETTERS = len(f"-{MAX_EXPONENT}")
#: A text in JSON, or one that does not end; possessive, so that no text is looked at twice.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")


def decimal_of(text: str) -> Decimal:
    """Read a decimal number; `ValueError` if its exponent is beyond `MAX_EXPONENT`, `ArithmeticError` if it is none.

    Examples
    --------
    >>> decimal_of("1.50e3")
    Decimal('1.50E+3')
    """
    if "e" in text or "E" in text:
        exponent = text.lower().partition("e")[2]
        if len(exponent) > _EXPONENT_LETTERS or abs(int(exponent)) > MAX_EXPONENT:
            raise ValueError(f"the exponent of {cut_text(text)} is beyond {MAX_EXPONENT}")
    return Decimal(text)


def text_of(value: Any) -> str | None:
    """Return a text as it is, and None for anything else."""
    return value if isinstance(value, str) else None


def escaped(payload: bytes) -> bytes:
    r"""Escape the control characters in the texts of some JSON.

    Examples
    --------
    >>> escaped(b'{"a": "x\ny"}')
    b'{"a": "x\\u000ay"}'
    """
    return _TEXT.sub(lambda text: _CONTROL.sub(lambda one: b"\\u%04x" % one[0][0], text[0]), payload)
