"""The command line: ``explain`` prints a plan, ``state`` a table from a query's state, ``relocate`` repairs paths.

Exit codes: 0 success, 2 the command could not run.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import polars as pl
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

from tablestream.connectors.files import JSON_OPTIONS
from tablestream.errors import ArgumentError, TablestreamError

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"The command line needs {missing.name}. Install it with: pip install 'tablestream[cli]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

EXIT_ERROR = 2
#: The width of lines if the output is not a terminal.
_LINE_WIDTH = 140

_CODE = re.compile(r"\[(TABLESTREAM_[A-Z_]+)\] ([^\n]*)")

app = typer.Typer(
    help="Kafka Streams' table algebra for PySpark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON lines for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")]


def main() -> None:
    """Run the command line."""
    app()


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
    """Kafka Streams' table algebra for PySpark Structured Streaming."""


@app.command()
def explain(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="A table, or a function that returns one.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the plan of a table: its rounds, and what each of them remembers.

    The module is imported, so its code runs: put code that starts a query under if __name__ == "__main__".
    """
    with clear_errors(debug=debug, as_json=as_json):
        printed = io.StringIO()
        table = _load(target)
        with contextlib.redirect_stdout(printed):
            table.explain()
        text = printed.getvalue().rstrip("\n")
        typer.echo(json.dumps({"object": target, "plan": text}) if as_json else text)


@app.command()
def state(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint directory of the query.")],
    table: Annotated[
        str, typer.Argument(help="A table whose rows are in the state; an unknown name lists them.")
    ],
    *,
    as_of: Annotated[
        str | None,
        typer.Option(help="For a versioned table: the rows valid at this time, in UTC if it has no zone."),
    ] = None,
    batch_id: Annotated[
        int | None, typer.Option(min=0, help="The table after this micro-batch; by default the last one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many rows to print.")] = 20,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the rows of a table from the state of a query, which may be running."""
    from tablestream import read_state
    from tablestream.spark import local_spark

    with (
        clear_errors(debug=debug, as_json=as_json),
        tempfile.TemporaryDirectory(prefix="tablestream-") as scratch,
        local_spark.local_spark(Path(scratch) / "spark", Path(scratch) / "log") as spark,
    ):
        _print_rows(read_state(spark, checkpoint, table, batch_id, as_of), table, limit, as_json=as_json)


@app.command()
def relocate(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint directory at its new place.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a checkpoint usable that was moved or copied, while no query uses it."""
    from tablestream import relocate_checkpoint

    with clear_errors(debug=debug, as_json=as_json):
        rewritten = relocate_checkpoint(checkpoint)
        if as_json:
            typer.echo(json.dumps({"checkpoint": checkpoint, "rewritten": rewritten}))
        elif rewritten:
            typer.echo(f"Rewrote {rewritten} files: queries can start on {checkpoint}.")
        else:
            typer.echo(f"{checkpoint} is where its files say: nothing to do.")


def _print_rows(rows: DataFrame, title: str, limit: int, *, as_json: bool) -> None:
    """Print some rows; the title says whether there are more."""
    if as_json:
        lines = rows.limit(limit).select(F.to_json(F.struct("*"), JSON_OPTIONS)).collect()
        for (line,) in lines:
            typer.echo(line)
        return
    found = cast("pl.DataFrame", pl.from_arrow(rows.limit(limit + 1).toArrow()))
    more = (
        f"the first {limit} rows" if found.height > limit else f"{found.height} row{'s'[: found.height != 1]}"
    )
    console().print(table_of_rows(f"{title}: {more}", found.head(limit)))


def console(file: IO[str] | None = None) -> Console:
    """Return the console: as wide as the terminal, or a fixed width for plain output."""
    found = Console(file=file, highlight=False)
    return found if found.is_terminal else Console(file=file, highlight=False, width=_LINE_WIDTH)


def table_of_rows(title: str, rows: pl.DataFrame) -> Table:
    """Lay out rows as a table; null is shown as a dash."""
    table = Table(title=title, title_justify="left")
    for name, dtype in rows.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in rows.iter_rows():
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    return table


def _load(target: str) -> Any:
    """Return the object that `target` names. A function is called without arguments."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ArgumentError(f"{target} does not name an object.", hint="Write it as module:object.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(
            f"There is no module {error.name}.", hint="The search starts in the current directory."
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{module_name} has no {path}.", hint="Write the target as module:object.")
        found = getattr(found, part)
    if not hasattr(found, "explain") and callable(found):
        found = found()
    if not hasattr(found, "explain"):
        raise ArgumentError(f"{target} is a {type(found).__name__}, which has no plan.", hint="Name a table.")
    return found


@contextlib.contextmanager
def clear_errors(*, debug: bool, as_json: bool, log: Path | None = None) -> Iterator[None]:
    """Turn an error into one message on standard error and an exit code, unless ``debug`` is set."""
    if not debug:
        _keep_spark_quiet()
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if debug:
            raise
        facts = _facts(error, log)
        if as_json:
            typer.echo(json.dumps({"event": "error", **facts}), err=True)
        else:
            lines = [f"Error {facts['code']}: {facts['message']}", facts["hint"]]
            Console(stderr=True, highlight=False).print(Text("\n".join(filter(None, lines))), soft_wrap=True)
        raise typer.Exit(EXIT_ERROR) from None


def _keep_spark_quiet() -> None:
    """Keep PySpark from writing every refused column to standard error, as JSON with a JVM stack trace."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _facts(error: Exception, log: Path | None) -> dict[str, str]:
    if isinstance(error, TablestreamError):
        return {"code": error.code, "message": error.reason, "hint": error.hint}
    hint = "Run it with --debug for the traceback."
    if log is not None and log.exists():
        hint = f"Run it with --debug for the traceback; Spark's own messages are in {log}."
    # The library's error in a worker arrives as the text of a Spark error.
    inner = _CODE.search(str(error))
    if inner:
        return {"code": inner.group(1), "message": inner.group(2), "hint": hint}
    first_line = next(iter(str(error).splitlines()), "") or "no message"
    return {"code": type(error).__name__, "message": first_line, "hint": hint}
