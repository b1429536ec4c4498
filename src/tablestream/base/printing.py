"""What one thread prints, elsewhere: all threads have one standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import TextIO, cast

_replacing = Lock()


class _ByThread:
    """A standard output that hands on what some threads write; what others write passes."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.functions = out, dict[int, Callable[[str, TextIO], int]]()

    def write(self, text: str) -> int:
        function = self.functions.get(get_ident())
        return self.out.write(text) if function is None else function(text, self.out)

    def __getattr__(self, name: str) -> object:
        return getattr(self.out, name)


@contextmanager
def printing_to(function: Callable[[str, TextIO], int]) -> Iterator[None]:
    """Hand what this thread prints to a function, with the standard output. Threads do not wait for each other."""
    thread = get_ident()
    with _replacing:
        shown = sys.stdout
        replaced = shown if isinstance(shown, _ByThread) else _ByThread(shown)
        replaced.functions[thread] = function
        sys.stdout = cast("TextIO", replaced)
    try:
        yield
    finally:
        with _replacing:
            del replaced.functions[thread]
            if cast("object", sys.stdout) is replaced and not replaced.functions:
                sys.stdout = replaced.out
