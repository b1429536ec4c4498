"""The exit codes of all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of a command means: the table of `tablestream.cli`."""

    OK = 0
    DAMAGED = 1
    COULD_NOT_RUN = 2
    """Trying again does not help."""
    QUERY_FAILED = 3
    """The query can be started again from its checkpoint."""
    INTERRUPTED = 130
