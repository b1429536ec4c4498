"""The reasons for which records are dropped, or counted as late. ``docs/semantics.md`` says what each one means."""

from __future__ import annotations

MALFORMED, OUT_OF_ORDER = "malformed", "out-of-order"
NULL_KEY, NULL_TIME, NULL_KEY_OR_VALUE = "null-key", "null-timestamp", "null-key-or-value"
NULL_FOREIGN_KEY, NULL_SEQUENCE = "null-foreign-key", "null-sequence"
#: `LATE` counts rows that are too late to wait: they are not dropped.
EXPIRED, LATE = "expired", "late"
#: Rows that are joined as of a time of which no version is known any more: with `left` they are kept, unmatched.
BEFORE_HISTORY = "before-history"
REPEATED, SUPERSEDED, STALE = "repeated", "superseded", "stale-answer"
#: Of captured tables: a value that no known row has, and a record with columns that the table does not have.
UNKNOWN_VALUE, ADDED_COLUMN = "unknown-value", "added-column"
#: Of whole transactions: one that went on although not all of its events had arrived.
INCOMPLETE = "incomplete-transaction"
