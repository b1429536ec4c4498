"""Tells of a command line that cannot be read, as of any other error."""

from __future__ import annotations

import typer

from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import say_error

#: Typer has no public name for it: it is click's class in older versions, and its own in newer ones.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def say_wrong_use(error: Exception, *, as_json: bool) -> int:
    """Write what is wrong with the arguments of a command, and return the exit code."""
    # Help instead of an error: it has been printed by now.
    if type(error).__name__ != "NoArgsIsHelpError":
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "tablestream"
        reason = error.format_message()  # type: ignore[attr-defined]
        say_error(
            {"code": "USAGE", "message": reason, "hint": f"{command} --help has all options."},
            as_json=as_json,
        )
    return ExitCode.COULD_NOT_RUN
