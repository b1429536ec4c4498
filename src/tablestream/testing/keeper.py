"""Runs a program for as long as someone holds the other end of standard input.

``python keeper.py SECONDS PROGRAM ARGUMENT ...``: when standard input ends, whether it was closed or whoever held it
died, the program is asked to end, and killed if it is still there after so many seconds. So it outlives nobody, not
even a process that was killed. Standard library only: it starts before anything else is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence


def keep(grace_s: float, command: Sequence[str]) -> int:
    """Run a program until it ends or standard input does; return its exit code."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - what the caller asked for
    threading.Thread(target=_end_with_input, args=(program, grace_s), daemon=True).start()
    return program.wait()


def _end_with_input(program: subprocess.Popen[bytes], grace_s: float) -> None:
    while os.read(0, 1):
        pass
    program.terminate()
    try:
        program.wait(grace_s)
    except subprocess.TimeoutExpired:
        program.kill()


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1]), sys.argv[2:]))
