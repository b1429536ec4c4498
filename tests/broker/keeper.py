"""Runs a program for as long as someone holds the other end of standard input.

``python keeper.py SECONDS PROGRAM ARGUMENT ...``: when standard input ends, whether it was closed or whoever held it
died, the program is asked to end, and killed if it is still there after so many seconds. So it outlives nobody, not
even a process that was killed. It is ended in the same way when this one is asked to end. Standard library only: it
starts before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue


def keep(grace_s: float, command: Sequence[str]) -> int:
    """Run a program until it ends, standard input does, or this process is asked to end; return its exit code."""
    asked = SimpleQueue[None]()
    # Before the program starts, so that it is never left alone.
    signal.signal(signal.SIGTERM, lambda *_: asked.put(None))
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_ask_with_input, args=(asked,), daemon=True).start()
    threading.Thread(target=_end_when_asked, args=(asked, program, grace_s), daemon=True).start()
    return program.wait()


def _ask_with_input(asked: SimpleQueue[None]) -> None:
    while os.read(0, 1):
        pass
    asked.put(None)


def _end_when_asked(asked: SimpleQueue[None], program: subprocess.Popen[bytes], grace_s: float) -> None:
    asked.get()
    program.terminate()
    try:
        program.wait(grace_s)
    except subprocess.TimeoutExpired:
        program.kill()


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1]), sys.argv[2:]))
