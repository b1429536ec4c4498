"""Every error of the library, in one tree.

::

    TablestreamError                        PySparkException
    ├── ArgumentError                       PySparkValueError     an argument is invalid
    │   └── ReservedNameError                                     a column has a name the library adds itself
    ├── PlanError                           AnalysisException     the plan cannot be built
    │   ├── ColumnCollisionError                                  two columns would have the same name
    │   ├── KeyMismatchError                                      the keys of a join have no common type
    │   ├── NotVersionedError                                     the operation needs a table with a history
    │   ├── GraceExceedsHistoryError                              records would wait longer than versions are kept
    │   ├── NondeterministicError                                 an expression whose result cannot be retracted
    │   ├── SqlRefusedError                                       a query in SQL that cannot be maintained
    │   ├── SqlFileError                                          statements of a SQL file that cannot be used
    │   ├── SessionSettingError                                   the session lacks what a stateful plan needs
    │   ├── MixedPlanError                                        outputs that cannot run as one plan
    │   ├── TargetError                                           what is in a target does not fit the checkpoint
    │   └── UnsupportedTypeError                                  a column whose type is not supported
    ├── StateError                          PySparkRuntimeError   the checkpoint does not fit the plan or version
    │   ├── PlanChangedError                                      the plan is not the one that made the state
    │   ├── CheckpointMovedError                                  the checkpoint was moved or copied
    │   └── DamagedStateError                                     a part of the state is missing or was altered
    ├── DamagedMessagesError                PySparkRuntimeError   a task received something else than was sent
    ├── OrderError                          PySparkRuntimeError   a record without a place in the total order
    ├── ExpressionError                     PySparkRuntimeError   an expression or a function fails on a row
    ├── FunctionValueError                  PySparkRuntimeError   a user function's value does not fit its type
    ├── TotalOverflowError                  ArithmeticException   a sum or an average does not fit its type
    ├── BufferFullError                     PySparkRuntimeError   suppress holds more than its limit
    ├── MalformedRecordError                PySparkRuntimeError   a record cannot be read, in mode "fail"
    ├── DroppedRecordError                  PySparkRuntimeError   a record was lost, with on_drop="fail"
    ├── CaptureError                        PySparkRuntimeError   what a database's connector sent cannot be applied
    ├── RecordEncodingError                 PySparkRuntimeError   a row cannot be written to its topic or table
    ├── RegistryError                       PySparkRuntimeError   a schema registry refuses, or does not answer
    ├── DatabaseError                       PySparkRuntimeError   a database refuses, or does not answer
    └── QueryFailedError                    StreamingQueryException   a query has failed

Each class has a stable ``code``. A message says what is wrong and what to do. It names the line of the user's code that
built the operator, or made the call, if it is known.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    PySparkException,
    PySparkRuntimeError,
    PySparkValueError,
    StreamingQueryException,
)

from tablestream.base.calling import user_line
from tablestream.base.redaction import redacted


class TablestreamError(PySparkException):
    """The base class of every error that this library raises.

    Parameters
    ----------
    message
        What is wrong, as a sentence. Secrets in it and in `hint` are not shown (`redaction`).
    hint
        What the user can do about it.
    operator
        The name of the table or operator concerned.
    where
        ``file:line`` of the user's code that built it; without an operator, of the call that is refused. Errors about
        a call find it themselves.

    Attributes
    ----------
    code : str
        A stable name, such as ``TABLESTREAM_PLAN``, to match on.

    Examples
    --------
    >>> print(TablestreamError("The cup is empty.", hint="Fill it.", operator="cup", where="tea.py:3"))
    [TABLESTREAM_ERROR] The cup is empty. (cup, built at tea.py:3) Fill it.
    >>> print(TablestreamError("There is no tea.", hint="Buy some.", where="tea.py:4"))
    [TABLESTREAM_ERROR] There is no tea. (called at tea.py:4) Buy some.
    """

    code: ClassVar[str] = "TABLESTREAM_ERROR"
    _is_of_call: ClassVar[bool] = False
    """Whether it is raised while the user's call is checked, so that the line of the call is known."""
    seq: int | None = None

    def __init__(self, message: str, *, hint: str = "", operator: str = "", where: str | None = None) -> None:
        if where is None:
            where = user_line() if self._is_of_call else ""
        message, hint = redacted(message), redacted(hint)
        self.reason, self.hint, self.operator, self.where = message, hint, operator, where
        line = f"{'built' if operator else 'called'} at {where}" if where else ""
        place = ", ".join(part for part in (operator, line) if part)
        parts = (f"[{self.code}] {message}", f"({place})" if place else "", hint)
        super().__init__(message=" ".join(part for part in parts if part))

    def __str__(self) -> str:
        return str(self._message)

    def at(self, operator: str, where: str, place: str = "") -> TablestreamError:
        """Return the same error with the name of its operator, which the code that raised it did not know.

        `place`: where its row comes from.
        """
        reason = f"{self.reason} The row is that of {place}." if place else self.reason
        return _rebuild(type(self), reason, self.hint, operator, where)

    def of_row(self, seq: int) -> TablestreamError:
        """Note the number of the row that is to blame, among those of a slice."""
        self.seq = seq
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.hint, self.operator, self.where))


def _rebuild(
    kind: type[TablestreamError], reason: str, hint: str, operator: str, where: str
) -> TablestreamError:
    """Create an error again after pickling, which does not keep keyword-only arguments."""
    return kind(reason, hint=hint, operator=operator, where=where)


class ArgumentError(TablestreamError, PySparkValueError):
    """An argument of a call cannot be used."""

    code = "TABLESTREAM_ARGUMENT"
    _is_of_call = True


class ReservedNameError(ArgumentError):
    """A column has a name that the library adds to its outputs itself."""

    code = "TABLESTREAM_RESERVED_NAME"


class PlanError(TablestreamError, AnalysisException):
    """The plan cannot be built."""

    code = "TABLESTREAM_PLAN"


class ColumnCollisionError(PlanError):
    """Two columns of a result would share a name."""

    code = "TABLESTREAM_COLUMN_COLLISION"


class KeyMismatchError(PlanError):
    """The keys of the two sides of a join have no common type."""

    code = "TABLESTREAM_KEY_MISMATCH"


class NotVersionedError(PlanError):
    """The operation needs a table with a history."""

    code = "TABLESTREAM_NOT_VERSIONED"


class GraceExceedsHistoryError(PlanError):
    """Records would wait for versions longer than the table keeps them."""

    code = "TABLESTREAM_GRACE_EXCEEDS_HISTORY"


class NondeterministicError(PlanError):
    """An expression may give another value when its result has to be retracted."""

    code = "TABLESTREAM_NONDETERMINISTIC"


class SqlRefusedError(PlanError):
    """A query in SQL cannot be maintained; the message has every reason.

    Attributes
    ----------
    reasons : tuple
        Line, column, what is wrong and what to write instead, of each reason.
    """

    code = "TABLESTREAM_SQL_REFUSED"
    reasons: tuple[tuple[int, int, str, str], ...] = ()


class SqlFileError(PlanError):
    """Statements of a file of SQL cannot be used; the message has all that is wrong, with line and column."""

    code = "TABLESTREAM_SQL_FILE"


class SessionSettingError(PlanError):
    """The Spark session lacks a setting that a stateful plan needs."""

    code = "TABLESTREAM_SESSION_SETTING"
    _is_of_call = True


class MixedPlanError(PlanError):
    """The outputs cannot run as one plan."""

    code = "TABLESTREAM_MIXED_PLAN"


class TargetError(PlanError):
    """What is in the target of an output belongs to another query, or to another point of the query's history."""

    code = "TABLESTREAM_TARGET"


class UnsupportedTypeError(PlanError):
    """The type of a column is not supported."""

    code = "TABLESTREAM_UNSUPPORTED_TYPE"
    _is_of_call = True


class StateError(TablestreamError, PySparkRuntimeError):
    """The checkpoint does not fit the plan or this version, or has no such state."""

    code = "TABLESTREAM_STATE"


class PlanChangedError(StateError):
    """The plan is not the one that made the state in the checkpoint."""

    code = "TABLESTREAM_PLAN_CHANGED"


class CheckpointMovedError(StateError):
    """The checkpoint was moved or copied, and its files still name the old place."""

    code = "TABLESTREAM_CHECKPOINT_MOVED"


class DamagedStateError(StateError):
    """A part of the stored state is missing or was altered."""

    code = "TABLESTREAM_DAMAGED_STATE"


class DamagedMessagesError(TablestreamError, PySparkRuntimeError):
    """A task received something else than another task of the query sent."""

    code = "TABLESTREAM_DAMAGED_MESSAGES"


class OrderError(TablestreamError, PySparkRuntimeError):
    """A record has no place in the total order."""

    code = "TABLESTREAM_ORDER"


class ExpressionError(TablestreamError, PySparkRuntimeError):
    """An expression cannot be computed for a row, or a function of ``aggregate`` or ``reduce`` raised."""

    code = "TABLESTREAM_EXPRESSION"


class FunctionValueError(TablestreamError, PySparkRuntimeError):
    """A function of ``aggregate`` or ``reduce`` returned a value that its column cannot hold, or cannot get a value."""

    code = "TABLESTREAM_FUNCTION_VALUE"


class TotalOverflowError(TablestreamError, ArithmeticException):
    """The sum or the average of a group does not fit the type of its column."""

    code = "TABLESTREAM_TOTAL_OVERFLOW"


class BufferFullError(TablestreamError, PySparkRuntimeError):
    """`Table.suppress` with ``on_full="fail"`` holds more than its limit."""

    code = "TABLESTREAM_BUFFER_FULL"


class CaptureError(TablestreamError, PySparkRuntimeError):
    """What a database's connector sent cannot be applied to its table."""

    code = "TABLESTREAM_CAPTURE"


class MalformedRecordError(TablestreamError, PySparkRuntimeError):
    """A row of a source cannot be read, and the source's mode is ``fail``."""

    code = "TABLESTREAM_MALFORMED_RECORD"


class DroppedRecordError(TablestreamError, PySparkRuntimeError):
    """A record of the input was lost, and the query was started with ``on_drop="fail"``."""

    code = "TABLESTREAM_DROPPED_RECORD"


class RecordEncodingError(TablestreamError, PySparkRuntimeError):
    """A row cannot be written in the format of its topic, or has a value that its database cannot store."""

    code = "TABLESTREAM_RECORD_ENCODING"


class RegistryError(TablestreamError, PySparkRuntimeError):
    """A schema registry refuses a request, or does not answer."""

    code = "TABLESTREAM_REGISTRY"


class DatabaseError(TablestreamError, PySparkRuntimeError):
    """A database refuses a micro-batch, or does not answer."""

    code = "TABLESTREAM_DATABASE"


class QueryFailedError(TablestreamError, StreamingQueryException):
    """A query that `start` started has failed. The text begins with what failed; Spark's own text follows.

    Parameters
    ----------
    found
        The code of the library's error that ended the query, or the name of another error.
    message
        What failed, as a sentence.
    text
        Spark's text.

    Attributes
    ----------
    code : str
        That of the library's error, if one ended the query.
    found : str
        That code, or the name of another error, such as ``ZeroDivisionError``.
    """

    code = "TABLESTREAM_QUERY_FAILED"

    def __init__(self, found: str, message: str, *, text: str = "") -> None:
        is_ours = found.startswith("TABLESTREAM_")
        super().__init__(message if is_ours else f"{found}: {message}")
        self.found, self.said, self.text = found, message, text
        if is_ours:
            self.code = found  # type: ignore[misc]
            self._message = f"[{found}] {message}"
        self._message = "\n\n".join(part for part in (str(self._message), text) if part)

    def __reduce__(self) -> tuple[object, ...]:
        return (_failed_again, (self.found, self.said, self.text))


def _failed_again(found: str, message: str, text: str) -> QueryFailedError:
    """Create the error of a query again after pickling."""
    return QueryFailedError(found, message, text=text)
