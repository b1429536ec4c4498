"""The program ``tablestream``: its commands, and its own options.

A new command is a function in a module of this package, and a line here. A command line that cannot be read is told
as any other error.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tablestream.cli import checkpoints, demo, lag, plans, run, state
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import say_error

app = typer.Typer(
    help="Maintained tables on Spark Structured Streaming.",
    epilog="Exit codes: 0 success, 1 verify found damage, 2 the command could not run, 3 a query ended with an error,"
    " 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(plans.explain)
app.command()(plans.diagram)
app.command()(state.state)
app.command()(state.verify)
app.command()(lag.lag)
app.command()(checkpoints.check)
app.command()(checkpoints.evolve)
app.command()(checkpoints.drop_generations)
app.command()(state.why)
app.command()(checkpoints.relocate)
app.command()(demo.demo)
#: Typer has no public name for it: it is click's class in older versions, and its own in newer ones.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line, and exit with its code."""
    try:
        code = app(prog_name="tablestream", standalone_mode=False)
    except UsageError as error:
        code = _say_wrong_use(error, as_json="--json" in sys.argv[1:])
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tablestream {version('tablestream')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Maintained tables on Spark Structured Streaming."""


def _say_wrong_use(error: Exception, *, as_json: bool) -> int:
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
