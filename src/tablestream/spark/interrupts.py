"""Keeps Ctrl-C working in the driver: importing Polars stops it from ending a wait."""

from __future__ import annotations

import signal


def let_ctrl_c_interrupt() -> None:
    """Let SIGINT interrupt the calls of the operating system that wait.

    When Polars is imported it installs a handler of SIGINT, after which such calls go on (SA_RESTART). Then Python does
    not get to raise `KeyboardInterrupt` while ``awaitTermination`` waits for Java: a notebook's stop button, or a
    signal that Java does not get as well, does nothing. The handler itself stays.
    """
    if hasattr(signal, "siginterrupt"):  # not on Windows
        signal.siginterrupt(signal.SIGINT, True)
