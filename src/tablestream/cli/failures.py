"""Turns an error into one message with a code and a hint, and into an exit code."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer
from pyspark.errors import StreamingQueryException
from pyspark.logger import PySparkLogger
from rich.console import Console
from rich.text import Text

import tablestream
from tablestream.base.data_text import cut_sentence, visible_lines
from tablestream.cli.exit_codes import ExitCode
from tablestream.errors import QueryFailedError, TablestreamError
from tablestream.spark.failures import failure_of, java_cause

_INSTALLED = (
    sysconfig.get_path("purelib"),
    sysconfig.get_path("stdlib"),
    str(Path(tablestream.__file__).parent),
)


@contextlib.contextmanager
def clear_errors(
    *, debug: bool, as_json: bool, log: Path | None = None, go_on: str | None = None
) -> Iterator[None]:
    """Turn an error into one message on standard error, a JSON object if wanted, and an exit code.

    The message says where Spark's own messages are (`log`), and which command starts a failed query again (`go_on`).
    """
    if not debug:
        _keep_spark_quiet()
    try:
        yield
    except typer.Exit:
        raise
    except typer.Abort:
        facts = {"code": "INTERRUPTED", "message": "Nothing was done.", "hint": "--yes answers the question."}
        say_error(facts, as_json=as_json)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except KeyboardInterrupt:
        facts = {"code": "INTERRUPTED", "message": "Interrupted.", "hint": ""}
        say_error(facts | _traceback(debug=debug), as_json=as_json)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BaseException as error:  # noqa: BLE001 - each becomes a message; a panic of Rust is no Exception
        # Who reads the output has enough, as `head` does. A sink that shows changes writes in a query.
        is_broken_pipe = isinstance(error, BrokenPipeError) or BrokenPipeError.__name__ in str(error)
        if is_broken_pipe and _reader_has_gone():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere
            raise typer.Exit(ExitCode.OK) from None
        failed = isinstance(error, StreamingQueryException)
        facts = _facts(error, _hint(log if log is not None and log.exists() else None, debug=debug))
        if failed and go_on is not None:
            facts |= {"hint": f"{facts['hint']} Go on with: {go_on}".strip(), "go_on": go_on}
        say_error(facts | _traceback(debug=debug), as_json=as_json)
        raise typer.Exit(ExitCode.QUERY_FAILED if failed else ExitCode.COULD_NOT_RUN) from None


def _reader_has_gone() -> bool:
    """Whether nobody reads standard output any more."""
    try:
        output = sys.stdout.fileno()
        watch = select.poll()
    except (AttributeError, OSError, ValueError):  # it is no open file, or the system has no poll
        return False
    watch.register(output, select.POLLOUT)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in watch.poll(0))


def note_cause(error: StreamingQueryException) -> None:
    """Note with an error of a query what it was caused by, as long as its session is there to be asked."""
    cause = java_cause(error)
    if cause:
        error.add_note(f"Caused by: {cause}")


def say_error(facts: Mapping[str, str], *, as_json: bool) -> None:
    """Write an error to standard error: as one JSON object, or as its traceback, its code and message, and its hint."""
    if as_json:
        typer.echo(
            json.dumps({"event": "error", **facts, "message": cut_sentence(facts["message"])}), err=True
        )
        return
    lines = [
        facts.get("traceback"),
        f"Error {facts['code']}: {cut_sentence(facts['message'])}",
        facts["hint"],
    ]
    text = visible_lines("\n".join(filter(None, lines)))
    Console(stderr=True, highlight=False).print(Text(text), soft_wrap=True)


def _traceback(*, debug: bool) -> dict[str, str]:
    return {"traceback": traceback.format_exc().rstrip()} if debug else {}


def _hint(log: Path | None, *, debug: bool) -> str:
    """Say where more is found about an error that does not say enough itself."""
    parts = [] if debug else ["run it with --debug for the traceback"]
    parts += [] if log is None else [f"Spark's own messages are in {log}"]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _keep_spark_quiet() -> None:
    """Keep PySpark from writing refused columns and failed calls to standard error, with stack traces."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _facts(error: BaseException, hint: str) -> dict[str, str]:
    """Return the code of an error, its message, and what to do; `hint` if the error itself does not say it."""
    if isinstance(error, TablestreamError) and not isinstance(error, QueryFailedError):
        return {"code": error.code, "message": error.reason, "hint": error.hint}
    text = error.text if isinstance(error, QueryFailedError) else str(error)
    found = failure_of("\n".join([text, *getattr(error, "__notes__", [])]))
    # The library's error in a worker arrives as the text of a Spark error.
    if found.is_ours or isinstance(error, StreamingQueryException):
        return {"code": found.code, "message": found.message, "hint": hint}
    message = f"{_first_line(str(error))}{_users_line(error)}"
    return {"code": type(error).__name__, "message": message, "hint": hint}


def _first_line(text: str) -> str:
    """Return the first line that says something; that of Py4J only names a Java method."""
    lines = [line for line in text.splitlines() if not line.startswith("An error occurred while calling")]
    return lines[0].removeprefix(": ") if lines else "no message"


def _users_line(error: BaseException) -> str:
    """Return the last line of the user's own files that an error passed; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith((*_INSTALLED, "<"))]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
