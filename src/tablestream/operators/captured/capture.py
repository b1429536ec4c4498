"""What a database's connector says of each record: the columns that operators of captured tables read.

==============  ============  ===================================================================================
field           dtype         meaning
==============  ============  ===================================================================================
``op``          String        ``upsert``, ``delete``, ``read`` (a row of a snapshot), ``truncate``; ``preimage`` (a
                              row as it was before the change behind it); any other is not a change of the table
``position``    String        the place in the database's log; text that sorts in the order of commits
``snapshot``    String        which row of a snapshot it is: ``first``, ``last``, ``incremental``, ...; null: none
``partition``   Int64         the topic partition
``unchanged``   List(Int16)   the columns of the value that the connector does not know, because they did not change
``key``         String        the key as text
``moved_from``  String        the key from which an update moved the row, as text
``moved_to``    String        the key to which an update moved the row, as text
``transaction`` String        the transaction
``number``      Int64         the number of the event in its transaction; null: it is not known. Of a feed: 0 if it
                              inserts a row
``added``       Boolean       whether the record has columns that the table does not have
==============  ============  ===================================================================================
"""

from __future__ import annotations

import polars as pl

from tablestream.operators.operator import Filled

#: The columns of messages: the changes of rows, and what concerns all rows.
CAPTURE, CONTROL = "_capture", "_control"
UPSERT, DELETE, READ, TRUNCATE, PREIMAGE = "upsert", "delete", "read", "truncate", "preimage"
#: What concerns one row.
OF_ROWS = (UPSERT, DELETE, READ, PREIMAGE)
INCREMENTAL = "incremental"
#: The rows of a snapshot that end it, for one table or for all.
LAST = ("last", "last_in_data_collection")
FIELDS: dict[str, pl.DataType] = {
    "op": pl.String(),
    "position": pl.String(),
    "snapshot": pl.String(),
    "partition": pl.Int64(),
    "unchanged": pl.List(pl.Int16()),
    "key": pl.String(),
    "moved_from": pl.String(),
    "moved_to": pl.String(),
    "transaction": pl.String(),
    "number": pl.Int64(),
    "added": pl.Boolean(),
}
TYPE = pl.Struct(FIELDS)
#: How a message of one row is filled, of what concerns all rows, and that it is an event of a transaction.
SAID = Filled(TYPE, "__capture")
ON_ROWS = Filled(pl.Boolean(), f"CASE WHEN __capture.op IN {OF_ROWS} THEN {{there}} END")
ON_ALL = Filled(
    pl.Boolean(),
    f"CASE WHEN __capture.op = '{TRUNCATE}' OR __capture.op = '{READ}' AND __capture.snapshot IN {LAST} THEN true END",
)
IS_EVENT = Filled(pl.Boolean(), f"CASE WHEN __capture.op IN {(UPSERT, DELETE, READ, TRUNCATE)} THEN true END")
IN_ONE_SHARD = Filled(pl.Int64(), "0L")

#: The first part of a position that is not known; the database's first transaction after a snapshot has none.
_UNKNOWN = "0" * 20


def is_known(position: pl.Expr) -> pl.Expr:
    """Whether a position can be compared with others."""
    return position.is_not_null() & ~position.str.starts_with(_UNKNOWN)


def snapshot_place(position: pl.Expr) -> pl.Expr:
    """Where in the log a snapshot was taken: comparable with the known positions of changes."""
    return position.str.strip_prefix(_UNKNOWN).str.strip_chars_start(":")


def is_numbered(position: pl.Expr) -> pl.Expr:
    """Whether a position ends with the event's number in its transaction: no other event has the position."""
    return ~position.str.ends_with(_UNKNOWN)
