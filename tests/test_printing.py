"""What threads print, taken side by side."""

from __future__ import annotations

import sys
from io import StringIO
from threading import Barrier, Thread
from typing import TYPE_CHECKING

from tablestream.base.printing import printing_to

if TYPE_CHECKING:
    import pytest


def test_threads_take_what_they_print_without_waiting_for_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown, both_inside, first_is_out = sys.stdout, Barrier(3, timeout=20), Barrier(2, timeout=20)
    taken = {"first": StringIO(), "second": StringIO()}

    def take(name: str) -> None:
        with printing_to(lambda text, _: taken[name].write(text)):
            both_inside.wait()  # with a lock around it, the other thread would never come
            if name == "second":
                first_is_out.wait()
            sys.stdout.write(name)
        if name == "first":
            first_is_out.wait()

    threads = [Thread(target=take, args=(name,)) for name in taken]
    for one in threads:
        one.start()
    both_inside.wait()
    sys.stdout.write("others pass")
    for one in threads:
        one.join()
    assert {name: text.getvalue() for name, text in taken.items()} == {"first": "first", "second": "second"}
    assert capsys.readouterr().out == "others pass"
    assert sys.stdout is shown


def test_a_function_can_change_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with printing_to(lambda text, out: out.write(text.upper())):
        sys.stdout.write("rows")
    assert capsys.readouterr().out == "ROWS"
