"""Recordings of the topics that Debezium wrote for a database under load, and of what the database held.

Those of ``mariadb_`` are of MariaDB 10.11 with its connector 3.5 (`scripts.record_mariadb`), the others of PostgreSQL
15 with its connector 3.6.

======================  =========================================================================================
file                    a line
======================  =========================================================================================
``<prefix>``            a record: topic, partition, offset, timestamp (ms), key, value, headers; keys and values are
                        text or null
``database``            a quiescent point: the last commit before it, the end offsets by topic, the rows of tables and
                        of the join; then a commit: the rows of the join that it removed and added
======================  =========================================================================================

The join is ``positions p left join tickers t on t.ticker = p.ticker left join clients c on c.client_id = p.client_id``.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden" / "cdc"
#: The tables of the join, with key and columns.
TABLES = {
    "clients": ("client_id", "client_id int, name string, email string, tier string"),
    "tickers": (
        "ticker",
        "ticker string, exchange string, price decimal(12,4), at timestamp, note string",
    ),
    "positions": (
        "position_id",
        "position_id bigint, client_id int, ticker string, amount int, opened timestamp_ntz, tags array<string>",
    ),
}
Row = tuple[Any, ...]


class Record(NamedTuple):
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: list[list[str]]


@dataclass(frozen=True)
class Point:
    """A moment at which everything up to a commit, and nothing later, lies below some offsets."""

    after_commit: int
    ends: dict[str, list[int]]
    tables: dict[str, list[dict[str, Any]]]

    def covers(self, record: Record) -> bool:
        """Whether a record lies below the offsets."""
        ends = self.ends.get(record.topic)
        return ends is not None and record.offset < ends[record.partition]


@cache
def records(capture: str) -> list[Record]:
    """Read the records of a capture, partition by partition."""
    return [Record(*row) for row in _lines(capture)]


@cache
def points(database: str = "database") -> list[Point]:
    """Read the quiescent points, in their order."""
    rows = [row for row in _lines(database) if "ends" in row]
    return [Point(row["after_commit"], row["ends"], row["tables"]) for row in rows]


@cache
def commits(database: str = "database") -> list[dict[str, Any]]:
    """Read the commits, in their order."""
    return [row for row in _lines(database) if "commit" in row]


def _lines(name: str) -> list[Any]:
    with lzma.open(GOLDEN / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def row_of(table: str, row: dict[str, Any]) -> Row:
    """A row of a table, or of the join, as the database tells of it."""
    values = dict(row)
    for name in ("at", "opened"):
        if values.get(name) is not None:
            values[name] = _time(values[name])
    if values.get("price") is not None:
        values["price"] = Decimal(str(values["price"])).quantize(Decimal("0.0001"))
    names = JOINED if table == "join" else [one.split()[0] for one in TABLES[table][1].split(", ")]
    return tuple(tuple(value) if isinstance(value := values[name], list) else value for name in names)


def _time(text: str) -> datetime:
    """A time in UTC, without its zone."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo is not None else found


#: The columns of the join.
JOINED = (
    *("position_id", "client_id", "ticker", "amount", "opened", "tags"),
    *("t_ticker", "exchange", "price", "at", "note_md5"),
    *("c_client_id", "name", "email", "tier"),
)


def md5(text: str | None) -> str | None:
    """What the join has of a note."""
    return None if text is None else hashlib.md5(text.encode()).hexdigest()  # noqa: S324 - as in the recording
