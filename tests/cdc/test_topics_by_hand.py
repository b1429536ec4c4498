"""Topics of MySQL, SQL Server and Oracle, written by hand after Debezium's documentation, with what is hard in each.

The fields of ``source`` and the types of values follow ``documentation/modules/ROOT`` of debezium/debezium at
aad5519902997a3627fe296f77ea6d3452e9acce: ``partials/modules/all-connectors/shared-mariadb-mysql.adoc``,
``pages/connectors/sqlserver.adoc`` and ``pages/connectors/oracle.adoc``. Each topic is read in one micro-batch and
record by record, from the state alone.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tests.cdc.operators import Captured
from tests.cdc.recording import Record

UNKNOWN = "__debezium_unavailable_value"
START_US = 1_700_000_000_000_000
Row = tuple[Any, ...]


@dataclass
class Topic:
    """A topic: each method appends what the connector writes; JSON without schemas."""

    key: str
    records: list[Record] = field(default_factory=list)

    def add(
        self,
        op: str,
        row: dict[str, Any] | None,
        source: dict[str, Any],
        *,
        key: Any = None,
        headers: dict[str, Any] | None = None,
        transaction: dict[str, Any] | None = None,
    ) -> None:
        """Append an envelope; its key is that of the row, if it has one."""
        at = len(self.records)
        said = {"ts_us": START_US + at, "snapshot": "false", **source}
        value = {
            "before": None,
            "after": row,
            "source": said,
            "op": op,
            "ts_ms": 1,
            "transaction": transaction,
        }
        of = row[self.key] if row is not None else key
        named = [[name, json.dumps({self.key: given})] for name, given in (headers or {}).items()]
        text = None if op == "t" else json.dumps({self.key: of})
        self.records.append(Record("db.t", 0, at, START_US // 1000, text, json.dumps(value), named))

    def move(self, row: dict[str, Any], source: dict[str, Any], *, old: Any) -> None:
        """Append the three records of a change of the key."""
        new = row[self.key]
        self.add("d", None, source, key=old, headers={"__debezium.newkey": new})
        self.tombstone(old, {"__debezium.newkey": new})
        self.add("c", row, source, headers={"__debezium.oldkey": old})

    def tombstone(self, key: Any, headers: dict[str, Any] | None = None) -> None:
        """Append a null value."""
        named = [[name, json.dumps({self.key: given})] for name, given in (headers or {}).items()]
        at, text = len(self.records), json.dumps({self.key: key})
        self.records.append(Record("db.t", 0, at, START_US // 1000, text, None, named))

    def again(self, last: int) -> None:
        """Append the last records once more, as a connector does that was killed."""
        at = len(self.records)
        repeated = [one._replace(offset=at + n) for n, one in enumerate(self.records[-last:])]
        self.records += repeated


def rows_of(topic: Topic, table: Captured, size: int) -> dict[Any, Row]:
    """The table after the topic, in micro-batches of a size."""
    for at in range(0, len(topic.records), size):
        table.run(topic.records[at : at + size])
        table.restart()
    return {key[0]: row for key, row in table.rows.items()}


def decimal(unscaled: int) -> str:
    """Connect's Decimal in JSON."""
    size = unscaled.bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def number(unscaled: int, scale: int = 0) -> dict[str, Any]:
    """Oracle's NUMBER without a precision."""
    return {"scale": scale, "value": decimal(unscaled)}


def mysql(file: int, pos: int, **further: Any) -> dict[str, Any]:
    name = f"mysql-bin.{file:06d}"
    return {
        "connector": "mysql",
        "server_id": 223344,
        "file": name,
        "pos": pos,
        "row": 0,
        "gtid": None,
    } | further


def sqlserver(commit: str, change: str | None, **further: Any) -> dict[str, Any]:
    return {
        "connector": "sqlserver",
        "commit_lsn": commit,
        "change_lsn": change,
        "event_serial_no": 1,
    } | further


def oracle(commit: int, scn: int, **further: Any) -> dict[str, Any]:
    return {"connector": "oracle", "scn": str(scn), "commit_scn": str(commit), "redo_thread": 1} | further


SIZES = pytest.mark.parametrize("size", [1, 100])


@SIZES
def test_mysql_values_at_their_limits(size: int) -> None:
    """Unsigned, bits, boolean in both forms, YEAR and SET, a zero date in a column that cannot be null, a long TIME."""
    topic = Topic("id")
    row = {"id": 2**32 - 1, "big": decimal(2**64 - 1), "bits": "Awg=", "done": 1, "year": 0}
    row |= {"set": "", "day": 0, "span": -3_020_399_000_000}
    topic.add("r", row, mysql(1, 4, snapshot="last"))
    topic.add("u", row | {"done": False, "year": 2155, "set": "a,c"}, mysql(1, 200))
    columns = (
        "id bigint, big decimal(20,0), bits binary, done boolean, year int, set string, day date, span string"
    )
    table = Captured(["id"], columns, options={"times": {"span": "microseconds"}})
    wanted = (Decimal(2**64 - 1), b"\x03\x08", False, 2155, "a,c", date(1970, 1, 1), "-838:59:59")
    assert rows_of(topic, table, size) == {2**32 - 1: wanted}


@SIZES
def test_mysql_goes_on_in_the_next_file_and_repeats_from_the_last(size: int) -> None:
    """The file's number has one digit more; what comes again is older than what was shown."""
    topic = Topic("id")
    topic.add("c", {"id": 1, "n": 1}, mysql(999_999, 900))
    topic.add("u", {"id": 1, "n": 2}, mysql(1_000_000, 154))
    topic.again(2)
    topic.add("u", {"id": 1, "n": 3}, mysql(1_000_000, 480))
    table = Captured(["id"], "id int, n int")
    assert rows_of(topic, table, size) == {1: (3,)}
    assert table.dropped["repeated"] == 1  # the last position may have several changes


@SIZES
def test_mysql_leaves_large_values_out_of_updates_and_of_moved_rows(size: int) -> None:
    topic = Topic("id")
    topic.add("c", {"id": 1, "note": "long", "n": 1}, mysql(3, 100))
    topic.add("u", {"id": 1, "note": UNKNOWN, "n": 2}, mysql(3, 200))
    topic.move({"id": 9, "note": UNKNOWN, "n": 2}, mysql(3, 300), old=1)
    topic.add("c", {"id": 2, "note": UNKNOWN, "n": 5}, mysql(3, 400))
    table = Captured(["id"], "id int, note string, n int")
    assert rows_of(topic, table, size) == {9: ("long", 2), 2: (None, 5)}
    assert (table.dropped["filled note"], table.dropped["unknown-value"]) == (2, 0)


@SIZES
def test_sqlserver_values_and_a_key_of_text(size: int) -> None:
    """MONEY at its end, an offset of 14 hours, and a UNIQUEIDENTIFIER as the key; the snapshot has no change_lsn."""
    topic, guid = Topic("id"), "6F9619FF-8B86-D011-B42D-00C04FC964FF"
    row = {
        "id": guid,
        "price": decimal(-(2**63)),
        "at": "2024-03-01T01:00:00.1234567+14:00",
        "version": "AAAAAAAAB9E=",
    }
    topic.add("r", row, sqlserver("00000025:00000448:0003", None, snapshot="last"))
    topic.add("u", row | {"price": decimal(1)}, sqlserver("00000025:00000d98:00a2", "00000025:00000d98:0003"))
    table = Captured(["id"], "id string, price decimal(19,4), at string, version binary")
    wanted = (Decimal("0.0001"), "2024-03-01T01:00:00.1234567+14:00", bytes.fromhex("00000000000007d1"))
    assert rows_of(topic, table, size) == {guid: wanted}


@SIZES
def test_sqlserver_changes_a_key_without_headers(size: int) -> None:
    """Its log has a delete and an insert, and the change_lsn falls within the transaction."""
    topic, commit = Topic("id"), "00000025:00000d98:00a2"
    topic.add("c", {"id": 1, "n": 1}, sqlserver("00000025:00000a00:0001", "00000025:00000a00:0001"))
    topic.add("d", None, sqlserver(commit, "00000025:00000d98:0009"), key=1)
    topic.tombstone(1)
    topic.add("c", {"id": 2, "n": 1}, sqlserver(commit, "00000025:00000d98:0003"))
    table = Captured(["id"], "id int, n int")
    assert rows_of(topic, table, size) == {2: (1,)}
    assert table.dropped["repeated"] == 0


@SIZES
def test_sqlserver_repeats_a_transaction_whose_events_are_numbered(size: int) -> None:
    topic, commit = Topic("id"), "00000025:00000d98:00a2"
    for n in (1, 2):
        told = {"id": commit, "total_order": n, "data_collection_order": n}
        topic.add("u" if n > 1 else "c", {"id": 1, "n": n}, sqlserver(commit, commit), transaction=told)
    topic.again(2)
    table = Captured(["id"], "id int, n int")
    assert rows_of(topic, table, size) == {1: (2,)}
    assert table.dropped["repeated"] == 2


@SIZES
@pytest.mark.parametrize("kind", ["bigint", "string", "decimal(38,0)"])
def test_oracle_has_numbers_without_a_scale_as_keys(kind: str, size: int) -> None:
    """The key of a moved row is in a header; its CLOB did not change."""
    topic = Topic("ID")
    topic.add("c", {"ID": number(7), "NOTE": "long", "RATE": number(333, 2)}, oracle(1000, 990))
    topic.move(
        {"ID": number(5, -2), "NOTE": UNKNOWN, "RATE": number(1, -2)}, oracle(1010, 1005), old=number(7)
    )
    table = Captured(["ID"], f"ID {kind}, NOTE string, RATE double")
    read = {"bigint": int, "string": str, "decimal(38,0)": Decimal}[kind]
    assert rows_of(topic, table, size) == {read(500): ("long", 100.0)}


@SIZES
def test_oracle_commits_two_transactions_at_one_scn(size: int) -> None:
    """The scn of a change can be lower than that of the one before: it was made earlier, and committed later."""
    topic = Topic("ID")
    topic.add("c", {"ID": 1, "N": 1}, oracle(2000, 1500, redo_thread=1))
    topic.add("u", {"ID": 1, "N": 2}, oracle(2000, 1400, redo_thread=2))
    topic.add("u", {"ID": 1, "N": 3}, oracle(2001, 1300))
    table = Captured(["ID"], "ID int, N int")
    assert rows_of(topic, table, size) == {1: (3,)}
    assert table.dropped["repeated"] == 0


@SIZES
def test_oracle_values_and_a_truncate(size: int) -> None:
    """ROWID, an interval as microseconds, a DATE as milliseconds; then a truncate, and one row more."""
    topic, rowid = Topic("ID"), "AAASgjAAMAAAACnAAA"
    row = {"ID": 1, "PLACE": rowid, "SPAN": -93_784_560_000, "DAY": 1_522_108_800_000}
    topic.add("r", row, oracle(0, 900, snapshot="last", commit_scn=None))
    topic.add("t", None, oracle(1000, 990))
    topic.add("c", row | {"ID": 2}, oracle(1001, 1001))
    columns = "ID int, PLACE string, SPAN bigint, DAY timestamp_ntz"
    table = Captured(["ID"], columns, options={"times": "milliseconds"})
    found = rows_of(topic, table, size)
    assert {key: (row[0], row[1], str(row[2])) for key, row in found.items()} == {
        2: (rowid, -93_784_560_000, "2018-03-27 00:00:00")
    }
