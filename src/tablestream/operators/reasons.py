"""The reasons for which records are dropped, or counted as late, and what a user can do about each.

``docs/semantics/dropped-records.md`` shows the table `REASONS`. An operator counts its reasons with `Context.tell` or
`Context.reject`, and declares them in `Operator.reasons`. A new reason needs a row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MALFORMED, OUT_OF_ORDER = "malformed", "out-of-order"
NULL_KEY, NULL_TIME, NULL_KEY_OR_VALUE = "null-key", "null-timestamp", "null-key-or-value"
NULL_FOREIGN_KEY, NULL_SEQUENCE = "null-foreign-key", "null-sequence"
#: `LATE` counts rows that are too late to wait: they are not dropped.
EXPIRED, LATE = "expired", "late"
#: Counts what is joined as of a time before the history begins, and finds nothing: with `left` it is kept.
BEFORE_HISTORY = "before-history"
REPEATED, SUPERSEDED, STALE = "repeated", "superseded", "stale-answer"
#: Counts records that are passed on: the first of a micro-batch of a writer after one of its later micro-batches.
RESUMED = "earlier-micro-batch"
#: Of captured tables: a value that no known row has, and a record with columns that the table does not have.
UNKNOWN_VALUE, ADDED_COLUMN = "unknown-value", "added-column"
#: An expression, or a function of the user's, fails on the row.
FAILED = "failed-expression"
#: Of whole transactions: one that went on although not all of its events had arrived.
INCOMPLETE = "incomplete-transaction"

Kind = Literal["lost", "rule", "counted"]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason, and what users read about it."""

    name: str
    """As counts have it."""
    kind: Kind
    """``lost``: input is lost, so ``on_drop="fail"`` ends the query. ``rule``: the operator's rule leaves the record
    out, or passes it on without what it came too late for; told, and never an error. ``counted``: only counted."""
    meaning: str
    """What happened, as a sentence."""
    remedy: str = ""
    """What to do, as a sentence; empty for what is only counted."""


_ALL = (
    Reason(MALFORMED, "lost", "Dropped: it cannot be read.", "Correct the record or the schema."),
    Reason(
        NULL_KEY,
        "lost",
        "Dropped: a part of the key is null.",
        "Check that the schema names the key's columns as the records do, or filter such records out.",
    ),
    Reason(
        NULL_TIME,
        "lost",
        "Dropped: its time or order_by is null, or not in the years 1 to 9999.",
        "Check the name, the type and the format of that column, or filter such records out.",
    ),
    Reason(
        NULL_SEQUENCE,
        "lost",
        "Dropped: sequence_by is null.",
        "Check the name and the type of that column, or filter such records out.",
    ),
    Reason(
        UNKNOWN_VALUE,
        "lost",
        "Dropped: it leaves a value as it was, and that is not known.",
        "Read the table from a snapshot, or let the database log whole rows.",
    ),
    Reason(
        FAILED,
        "rule",
        "An expression or a function fails on it: it is left out or null, as on_error says.",
        "Correct the expression or such records.",
    ),
    Reason(
        NULL_KEY_OR_VALUE,
        "rule",
        "Dropped: it has no value, or a null in its foreign key or group.",
        'Check the columns of on= or group_by, or join with how="left".',
    ),
    Reason(
        NULL_FOREIGN_KEY,
        "rule",
        "Matches nothing: a part of the foreign key is null.",
        'Check the columns of on=, or join with how="left".',
    ),
    Reason(
        EXPIRED,
        "rule",
        "Dropped: it came after its time had left the history, or the length of keep().",
        "Give a longer history=, or a longer length to keep(), if such records should count.",
    ),
    Reason(
        OUT_OF_ORDER,
        "rule",
        "Dropped at this join: a newer version of the row is known.",
        "Join as of a time (join_as_table, complete_history) if older versions should count.",
    ),
    Reason(
        LATE,
        "rule",
        "Passed on at once: it came too late to wait.",
        "Give a longer grace or bound if such records should wait.",
    ),
    Reason(
        BEFORE_HISTORY,
        "rule",
        "Joined with nothing: the history of the table does not go back to its time.",
        "Give the table a longer history= if such records should find a row.",
    ),
    Reason(
        SUPERSEDED,
        "rule",
        "Dropped: its sequence is below that of its row.",
        "Nothing, unless sequence_by= names the wrong column.",
    ),
    Reason(REPEATED, "rule", "Dropped: it was read before.", "Nothing: its writer wrote it again."),
    Reason(
        RESUMED,
        "rule",
        "Passed on: its writer had begun a later micro-batch.",
        "Look who else writes to the topic, and whether the writer's checkpoint was restored.",
    ),
    Reason(
        INCOMPLETE,
        "rule",
        "Went on without events that had not arrived.",
        "Look for the missing events, or give a longer transaction_timeout.",
    ),
    Reason(STALE, "counted", "An answer to a row that has changed since."),
    Reason(ADDED_COLUMN, "counted", "Has a column that the table does not have; the column is ignored."),
)
#: All reasons, by their names.
REASONS = {one.name: one for one in _ALL}


def reason_of(name: str) -> Reason:
    """Return a reason. Other names are of counts about records that are not dropped, such as filled values."""
    return REASONS.get(name) or Reason(name, "counted", "")
