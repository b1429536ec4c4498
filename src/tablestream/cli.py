"""The command line: a demo, the plan of a table, and a table as it is in the state of a query.

``tablestream demo`` shows the library at work, ``tablestream explain`` prints a plan, ``tablestream state`` a table.

Exit codes: 0 all is well, 1 the demo's comparison found a difference, 2 it could not be run, 130 interrupted.
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
from typing import TYPE_CHECKING, Annotated, Any, cast

import polars as pl
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

from tablestream.connectors.files import JSON_OPTIONS
from tablestream.errors import ArgumentError, TablestreamError

try:
    import typer
    from rich.console import Console
    from rich.text import Text

    from tablestream.demo.display import Display, JsonDisplay, TextDisplay
    from tablestream.demo.scenarios import SCENARIOS
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"The command line needs {missing.name}. Install it with: pip install 'tablestream[demo]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

EXIT_DIFFERENT, EXIT_ERROR, EXIT_INTERRUPTED = 1, 2, 130

FIRST_SHOWN = ["flights", "weather"]

_CODE = re.compile(r"\[(TABLESTREAM_[A-Z_]+)\] ([^\n]*)")

app = typer.Typer(
    help="Kafka Streams' table algebra for PySpark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON lines for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


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


def _known(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"there is no {unknown[0]}; there are {', '.join(SCENARIOS)}.")
    return list(dict.fromkeys(names))


@app.command()
def demo(
    names: Annotated[
        list[str],
        typer.Argument(help=f"Which: {', '.join(SCENARIOS)}.", metavar="NAME", callback=_known),
    ] = FIRST_SHOWN,
    *,
    micro_batches: Annotated[
        int, typer.Option(min=1, max=50, help="How many micro-batches the logs are read in.")
    ] = 6,
    scale: Annotated[float, typer.Option(min=0.001, max=1.0, help="The share of the data to use.")] = 1.0,
    output: Annotated[
        Path,
        typer.Option(
            help="Where to write, each demo in a directory of its name; an earlier one is replaced."
        ),
    ] = Path("tablestream-demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkpoint with the query's state.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Maintain results while all their tables change, and check them.

    flights: the flights that left New York City in 2013, written as change logs with corrections, moves and
    deletes, joined to planes, airlines and airports by four foreign keys.

    weather: the same flights as they leave, each with the weather read last before its time, while readings come late,
    are corrected and withdrawn. Departures wait for late readings; the result is compared with DuckDB's ASOF JOIN.

    holdings: which clients hold something on an exchange, how much, and whom to e-mail. The logs are full of what
    makes joins race; the tickers are joined twice, distributed and as a global table.

    Each result is compared with a batch computation from the final tables, and where there are two, with each other.
    """
    from tablestream.demo.run import DemoOptions, run_demos

    display: Display = JsonDisplay() if as_json else TextDisplay()
    options = DemoOptions(output, micro_batches=micro_batches, scale=scale, keep=keep)
    with _clear_errors(debug=debug, as_json=as_json, log=options.log):
        try:
            equal = run_demos([SCENARIOS[name] for name in names], options, display)
        except KeyboardInterrupt:
            display.say(f"Stopped. What was written so far lies in {output}.")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not equal:
        raise typer.Exit(EXIT_DIFFERENT)


@app.command()
def explain(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="A table, or a function that makes one.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the plan of a table: its rounds, and what each of them remembers.

    The module is imported, and so run: what starts a query belongs under if __name__ == "__main__".
    """
    with _clear_errors(debug=debug, as_json=as_json):
        printed = io.StringIO()
        table = _load(target)
        with contextlib.redirect_stdout(printed):
            table.explain()
        text = printed.getvalue().rstrip("\n")
        typer.echo(json.dumps({"object": target, "plan": text}) if as_json else text)


@app.command()
def state(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint directory of the query.")],
    table: Annotated[str, typer.Argument(help="A table whose rows the state has; another name lists them.")],
    *,
    as_of: Annotated[
        str | None,
        typer.Option(help="Of a versioned table: the time as of which, in UTC if it names no zone."),
    ] = None,
    batch_id: Annotated[
        int | None, typer.Option(min=0, help="After which micro-batch; the last one by default.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many rows to print.")] = 20,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the rows of a table as they are in the state of a query, which may run meanwhile."""
    from tablestream import read_state
    from tablestream.demo import local_spark

    with (
        _clear_errors(debug=debug, as_json=as_json),
        tempfile.TemporaryDirectory(prefix="tablestream-") as scratch,
        local_spark.local_spark(Path(scratch) / "spark", Path(scratch) / "log") as spark,
    ):
        _print_rows(read_state(spark, checkpoint, table, batch_id, as_of), table, limit, as_json=as_json)


def _print_rows(rows: DataFrame, title: str, limit: int, *, as_json: bool) -> None:
    """Print some rows; people are told whether there are more."""
    if as_json:
        lines = rows.limit(limit).select(F.to_json(F.struct("*"), JSON_OPTIONS)).collect()
        for (line,) in lines:
            typer.echo(line)
        return
    found = cast("pl.DataFrame", pl.from_arrow(rows.limit(limit + 1).toArrow()))
    more = (
        f"the first {limit} rows" if found.height > limit else f"{found.height} row{'s'[: found.height != 1]}"
    )
    TextDisplay().rows(f"{title}: {more}", found.head(limit))


def _load(target: str) -> Any:
    """Return the object that `target` names; a function without arguments is called for it."""
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
            f"There is no module {error.name}.", hint="It is looked for from here."
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
def _clear_errors(*, debug: bool, as_json: bool, log: Path | None = None) -> Iterator[None]:
    """Turn an error into one message on standard error and an exit code, unless the traceback is wanted."""
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
    # An error of the library that was raised in a worker arrives as the text of one of Spark's errors.
    inner = _CODE.search(str(error))
    if inner:
        return {"code": inner.group(1), "message": inner.group(2), "hint": hint}
    first_line = next(iter(str(error).splitlines()), "") or "no message"
    return {"code": type(error).__name__, "message": first_line, "hint": hint}
