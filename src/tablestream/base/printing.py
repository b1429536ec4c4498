"""What one thread prints, elsewhere: all threads have one standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from threading import Lock, get_ident
from typing import TextIO, cast

_printing = Lock()


class _OfThisThread:
    """A standard output that hands on what this thread writes; what others write passes."""

    def __init__(self, out: TextIO, write: Callable[[str], int]) -> None:
        self._out, self._write, self._thread = out, write, get_ident()

    def write(self, text: str) -> int:
        return self._write(text) if get_ident() == self._thread else self._out.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


@contextmanager
def printing_to(write: Callable[[str], int]) -> Iterator[None]:
    """Hand what this thread prints to a function, for one thread at a time."""
    with _printing, redirect_stdout(cast("TextIO", _OfThisThread(sys.stdout, write))):
        yield
