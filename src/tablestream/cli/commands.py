"""The program ``tablestream``: its commands, and its own options.

A new command is a module of this package with a function, and a line here.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tablestream.cli import demo, diagram, explain, relocate, run, state
from tablestream.cli.wrong_use import UsageError, say_wrong_use

app = typer.Typer(
    help="Maintained tables on Spark Structured Streaming.",
    epilog="Exit codes: 0 success, 2 the command could not run, 3 a query ended with an error, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(explain.explain)
app.command()(diagram.diagram)
app.command()(state.state)
app.command()(relocate.relocate)
app.command()(demo.demo)


def main() -> None:
    """Run the command line, and exit with its code."""
    try:
        code = app(prog_name="tablestream", standalone_mode=False)
    except UsageError as error:
        code = say_wrong_use(error, as_json="--json" in sys.argv[1:])
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
