"""The exit codes of all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of a command means.

    Attributes
    ----------
    OK
        Success. A query ended by itself, or was stopped by Ctrl-C after its micro-batch.
    DAMAGED
        `verify` found damage.
    COULD_NOT_RUN
        Wrong use, an error in the user's module, a checkpoint that does not fit. Trying again does not help.
    QUERY_FAILED
        A query was running, and ended with an error. It can be started again from its checkpoint.
    INTERRUPTED
        Ctrl-C twice, or while no query was running.
    """

    OK = 0
    DAMAGED = 1
    COULD_NOT_RUN = 2
    QUERY_FAILED = 3
    INTERRUPTED = 130
