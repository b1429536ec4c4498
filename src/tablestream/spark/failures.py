"""What a failed query says: the one sentence that matters, out of the pages that Spark makes of it.

An error of a worker arrives in the driver as text, inside Spark's own messages, tracebacks and stack traces.

A query that failed at a file says which file, what is wrong with it, and what to do.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tablestream.base.data_text import cut_sentence
from tablestream.connectors.settings import changed
from tablestream.errors import QueryFailedError

_CODE = re.compile(r"\[(TABLESTREAM_[A-Z_]+)\] ([^\n]*)")
#: The query's plan, which may have the texts of errors that were not raised.
_PLAN = re.compile(r"\n=== Streaming Query ===.*?(?=\n(?:JVM stacktrace|Caused by): |\Z)", re.DOTALL)
#: Lets the text of an error have the stack trace of Java.
_STACKS = "spark.sql.pyspark.jvmStacktrace.enabled"
#: What Spark adds to the text of `raise_error`.
_STATE = re.compile(r" SQLSTATE: \w{5}$")
#: How Spark begins the message of a query that failed.
_ENDED = re.compile(r"^\[STREAM_FAILED\] .*?terminated with exception: ", re.DOTALL)
#: The last line of a Python traceback in a message of Spark, behind an indented one.
_RAISED = re.compile(r"^[ \t]+\S.*\n(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$", re.MULTILINE)
#: A line of a Python traceback.
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)$', re.MULTILINE)
#: Files that are not the user's, and the files of notebooks and shells, whose names say nothing.
_INSTALLED = re.compile(
    r"site-packages|/pyspark|pyspark\.zip|py4j|/lib/python\d|/tablestream/(?:spark|connectors|operators|runtime|state)/|^<frozen"
)
#: How often a wait looks whether the query has ended.
_POLL_S = 0.05
#: What Py4J says of an error of Java.
_OF_JAVA = re.compile(r"^py4j\.\S+: An error occurred while calling .*\n: (.*)$", re.MULTILINE)
#: A cause in a stack trace of Java.
_CAUSED = re.compile(
    r"^Caused by: (?:[\w$]+\.)*([\w$]+(?:: .*?)?)(?=\n\s+at |\n\s*\.{3} |\s*\Z)", re.MULTILINE | re.DOTALL
)
_READ_FAILED = "[FAILED_READ_FILE"
_FILE = re.compile(r"\[FAILED_READ_FILE[^\]]*\] [^\n]*? file (?:file://(?=/))?(?P<file>\S+?)\.?(?:\s|\Z)")
_OTHER_NAMES = re.compile(
    r"CSV header does not conform .* Header: (?P<header>.*) Schema: (?P<schema>.*?) Expected: "
)
_OTHER_COUNT = re.compile(
    r"CSV header is not equal .* Header length: (?P<header>\d+), schema size: (?P<schema>\d+)"
)
_HEADER_HINT = (
    "Give from_files the columns of the header in its order, or mend the file under its name and start the query again."
    " Files with other columns need a directory of their own."
)
_FILE_HINT = "Write the file again under its name, and start the query again."


@dataclass(frozen=True)
class Failure:
    """What failed: the code of an error of the library, or the class of another error, and a sentence."""

    code: str
    message: str

    @property
    def is_ours(self) -> bool:
        """Whether an error of the library ended the query."""
        return self.code.startswith("TABLESTREAM_")


def failure_of(text: str) -> Failure:
    r"""Read the text of a failed query: the library's error, what Python raised, or Spark's first line and its cause.

    Examples
    --------
    >>> failure_of("[STREAM_FAILED] Query [id = 1] terminated with exception: Out of disk\n\tat org.apache")
    Failure(code='STREAM_FAILED', message='Out of disk')
    """
    found = _failure_of(text)
    return Failure(found.code, cut_sentence(found.message))


def _failure_of(text: str) -> Failure:
    text = _PLAN.sub("", text)
    inner = _CODE.search(text)
    if inner:
        return Failure(inner.group(1), _STATE.sub("", inner.group(2)))
    of_java = _OF_JAVA.search(text)
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    if raised and of_java is None:
        kind, message = raised[-1]
        return Failure(kind.rpartition(".")[2], f"{message}{_users_line(text)}")
    said = _ENDED.sub("", text).partition("\n")[0] if of_java is None else of_java.group(1)
    cause = cause_of(text)
    if _READ_FAILED in said:
        return Failure(
            "STREAM_FAILED", f"{unread_file(said, cause)} (Spark: {said}{f' {cause}' if cause else ''})"
        )
    is_new = (cause.partition(": ")[2] or cause) not in said
    return Failure("STREAM_FAILED", f"{said} ({cause})" if is_new else said)


def cause_of(text: str) -> str:
    """Return the innermost cause in a stack trace of Java on one line; empty if there is none."""
    causes = _CAUSED.findall(text)
    return " ".join(causes[-1].split()) if causes else ""


def _users_line(text: str) -> str:
    """Say in which function of the user's, and in which line, Python raised; empty if it was not in one."""
    own = [one for one in _FRAME.finditer(text) if not _INSTALLED.search(one["file"])]
    if not own:
        return ""
    name = own[-1]["file"].rpartition("/")[2]
    return f" ({own[-1]['function']}, {name}:{own[-1]['line']})"


def failed(error: StreamingQueryException) -> QueryFailedError:
    """Return the same error, with a text that begins with what failed."""
    if isinstance(error, QueryFailedError):
        return error
    text = str(error)
    cause = java_cause(error) if _READ_FAILED in text else ""  # which Spark leaves out
    found = failure_of(f"{text}\nCaused by: {cause}" if cause else text)
    made = QueryFailedError(found.code, found.message, text=text)
    made.__cause__ = error
    return made


def java_cause(error: StreamingQueryException) -> str:
    """Return what caused an error of a query, as long as its session is there to be asked; else nothing."""
    session = SparkSession.getActiveSession()
    if session is None:
        return ""
    with changed(session, {_STACKS: "true"}):
        return cause_of(str(error.__cause__ or error))


class _Plain:
    """What a query says when it has failed: first what failed, then Spark's text."""

    def exception(self) -> StreamingQueryException | None:
        """See Spark's ``StreamingQuery.exception``."""
        error: StreamingQueryException | None = super().exception()  # type: ignore[misc]
        return None if error is None else failed(error)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """See Spark's ``StreamingQuery.awaitTermination``."""
        try:
            if timeout is None and isinstance(self, StreamingQuery):  # not that of Spark Connect
                # So Ctrl-C interrupts Python, and not a call of Java that then breaks.
                while self.isActive:
                    time.sleep(_POLL_S)
            ended: bool | None = super().awaitTermination(timeout)  # type: ignore[misc]
        except StreamingQueryException as error:
            raise failed(error) from error
        return ended


@cache
def _plain(kind: Any) -> Any:
    """A query of Spark's class, or of the one for Spark Connect, that says what failed."""
    return type(kind.__name__, (_Plain, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def saying_what_failed(query: StreamingQuery) -> StreamingQuery:
    """Return the same query; its errors begin with what failed."""
    query.__class__ = _plain(type(query))  # type: ignore[arg-type, unused-ignore]
    return query


def unread_file(text: str, cause: str) -> str:
    r"""Say what is wrong with a file, and what to do.

    `text`: what Spark says. `cause`: Java's innermost cause; empty if it is not known.

    Examples
    --------
    >>> print(unread_file("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a%20b.csv.", ""))
    The file /a b.csv cannot be read. Write the file again under its name, and start the query again.
    """
    found = _FILE.search(text)
    file = f"The file {unquote(found['file'])}" if found else "A file"
    if names := _OTHER_NAMES.search(cause):
        what = f"the columns of its header are {names['header']}, and those of the schema {names['schema']}"
    elif counts := _OTHER_COUNT.search(cause):
        what = f"its header has {counts['header']} columns, and the schema {counts['schema']}"
    else:
        why = f": {cause.removesuffix('.')}" if cause else ""
        return f"{file} cannot be read{why}. {_FILE_HINT}"
    return f"{file} cannot be read: {what}. {_HEADER_HINT}"
