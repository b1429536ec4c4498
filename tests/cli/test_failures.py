"""Errors become one message with a code, and an exit code."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from pyspark.errors import StreamingQueryException

from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.sessions import kept_if_needed
from tablestream.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path

ENDED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
IN_A_WORKER = (
    f"{ENDED}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason: "
    "Traceback (most recent call last):\n"
    '  File "a.py", line 1\n'
    "tablestream.errors.PlanError: [TABLESTREAM_PLAN] The directory is another query's. Write elsewhere.\n"
    "\tat org.apache.spark.Everything\n"
)
OF_A_USER = (
    f"{ENDED}Traceback (most recent call last):\n  File\nValueError: not a price: 'x'\n\tat org.apache\n"
)
CAUSES = (
    "\n\nJVM stacktrace:\nan.Error\n\tat x\nCaused by: an.Outer: stage\n\tat y\n\t... 3 more\n"
    "Caused by: java.io.IOException: no space;\n on /x\n\tat z\n"
)
IN_PY4J = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling o1.count.\n: an.Error: Job aborted\n\tat"
)
GO_ON = "Run it with --debug for the traceback. Go on with: tablestream run a:b\n"
OF_JAVA = "An error occurred while calling None.JavaSparkContext.\n: java.net.BindException: no such address\n\tat x"


def failed(message: str) -> StreamingQueryException:
    return StreamingQueryException(message=message)


def ended(
    error: BaseException, *, as_json: bool = False, log: Path | None = None, debug: bool = False
) -> int:
    with (
        pytest.raises(typer.Exit) as end,
        clear_errors(debug=debug, as_json=as_json, log=log, go_on="tablestream run a:b"),
    ):
        raise error
    return end.value.exit_code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            StateError("Another version wrote it.", hint="Use that one."),
            ExitCode.COULD_NOT_RUN,
            "Error TABLESTREAM_STATE: Another version wrote it.\nUse that one.\n",
        ),
        (
            failed(IN_A_WORKER),
            ExitCode.QUERY_FAILED,
            "Error TABLESTREAM_PLAN: The directory is another query's. Write elsewhere.\n" + GO_ON,
        ),
        (
            failed(OF_A_USER),
            ExitCode.QUERY_FAILED,
            "Error ValueError: not a price: 'x'\n" + GO_ON,
        ),
        (
            failed(f"{ENDED}Out of disk\n\tat org.apache"),
            ExitCode.QUERY_FAILED,
            "Error STREAM_FAILED: Out of disk\n" + GO_ON,
        ),
        (
            failed(f"{ENDED}Out of disk{CAUSES}"),
            ExitCode.QUERY_FAILED,
            "Error STREAM_FAILED: Out of disk (IOException: no space; on /x)\n" + GO_ON,
        ),
        (
            failed(f"{ENDED}Reason: Traceback (most recent call last):\n{IN_PY4J}{CAUSES}"),
            ExitCode.QUERY_FAILED,
            "Error STREAM_FAILED: an.Error: Job aborted (IOException: no space; on /x)\n" + GO_ON,
        ),
        (
            failed(f"{ENDED}no space; on /x{CAUSES}"),
            ExitCode.QUERY_FAILED,
            "Error STREAM_FAILED: no space; on /x\n" + GO_ON,
        ),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "Error INTERRUPTED: Interrupted.\n"),
    ],
)
def test_an_error_is_one_message_and_an_exit_code(
    error: BaseException, code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == code
    assert capsys.readouterr().err == said


def test_an_error_of_java_says_what_java_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(RuntimeError(OF_JAVA)) == ExitCode.COULD_NOT_RUN
    assert capsys.readouterr().err.startswith(
        "Error RuntimeError: java.net.BindException: no such address (test_failures.py:"
    )


def test_a_message_is_cut_and_its_control_characters_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ended(ValueError("\x1b[2J" + "x" * 30_000_000))
    said = capsys.readouterr().err
    assert said.startswith("Error ValueError: \\x1b[2Jxxx")
    assert len(said) < 2200
    ended(ValueError("x" * 30_000_000), as_json=True)
    assert len(capsys.readouterr().err) < 2200


def test_programs_get_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    ended(failed(IN_A_WORKER), as_json=True)
    facts = json.loads(capsys.readouterr().err)
    assert (facts["event"], facts["code"], facts["go_on"]) == (
        "error", "TABLESTREAM_PLAN", "tablestream run a:b",
    )  # fmt: skip


def test_the_log_of_spark_is_named_if_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "spark.log"
    ended(RuntimeError("no"), log=log)
    assert "spark.log" not in capsys.readouterr().err
    log.touch()
    ended(RuntimeError("no"), log=log)
    assert f"Spark's own messages are in {log}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (StateError("no", hint="Go."), ExitCode.COULD_NOT_RUN, "Go."),
        (ValueError("no"), ExitCode.COULD_NOT_RUN, ""),
        (SystemExit("no"), ExitCode.COULD_NOT_RUN, ""),
        (BaseException("a panic"), ExitCode.COULD_NOT_RUN, ""),
        (failed(IN_A_WORKER), ExitCode.QUERY_FAILED, "Go on with: tablestream run a:b"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
    ],
)
def test_debug_adds_the_traceback_and_keeps_the_exit_code(
    error: BaseException, code: ExitCode, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error, debug=True) == code
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "in ended\n    raise error\n" in said
    message = said[said.rindex("\nError ") :]
    assert message.endswith(f"\n{hint}\n" if hint else "\n")
    assert "--debug" not in message
    assert ended(error, debug=True, as_json=True) == code
    facts = json.loads(capsys.readouterr().err)
    assert facts["traceback"].startswith("Traceback (most recent call last):\n")
    assert facts["hint"] == hint


@pytest.mark.parametrize(
    ("error", "stays"), [(None, False), (StateError("no"), False), (ValueError("no"), True)]
)
def test_the_log_stays_only_if_the_error_does_not_say_enough(
    error: Exception | None, stays: bool, tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    log.touch()
    with contextlib.suppress(StateError, ValueError), kept_if_needed(log):
        if error is not None:
            raise error
    assert log.exists() == stays


@pytest.mark.parametrize("is_table", [True, False])
def test_who_has_read_enough_ends_a_command_quietly(*, is_table: bool) -> None:
    """As ``head`` does."""
    program = (
        "import sys, polars as pl, typer\n"
        "from tablestream.cli.display import console, print_rows\n"
        "from tablestream.cli.failures import clear_errors\n"
        "def write():\n"
        "    for number in range(2_000):\n"
        f"        if {is_table}:\n"
        "            print_rows(console(), 'rows', pl.DataFrame({'n': ['x' * 60] * 100}))\n"
        "        else:\n"
        "            typer.echo('x' * 6_000)\n"
        "try:\n"
        "    with clear_errors(debug=False, as_json=False):\n"
        "        write()\n"
        "except typer.Exit as end:\n"
        "    sys.exit(end.exit_code)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.read(10)
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == ExitCode.OK


def test_ctrl_c_while_the_program_is_imported_ends_it_quietly() -> None:
    """The class below stands in for the signal: it interrupts the import of the commands."""
    text = """
import sys

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "tablestream.cli.commands":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
import tablestream.__main__
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_another_broken_pipe_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(BrokenPipeError("a socket of the user")) == ExitCode.COULD_NOT_RUN
    assert "BrokenPipeError: a socket of the user" in capsys.readouterr().err
