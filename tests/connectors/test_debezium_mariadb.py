"""Records of a real MariaDB decode to what the database held, in every mode; where the connector itself differs."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.ends import EndDecoder
from tablestream.connectors.debezium.records import Reader
from tests.cdc.operators import Captured, struct_of
from tests.cdc.recording import Record
from tests.cdc.vectors import HEADERS
from tests.cdc.whole import Database
from tests.connectors.debezium_capture import database, kinds, topic
from tests.marks import quick_first

#: Each mode with what the decoder must be told.
MODES: dict[str, dict[str, Any]] = {
    "a": {},
    "b": {"binary": "hex"},
    "c": {"binary": "base64"},
    "d": {"binary": "base64-url-safe", "times": dict.fromkeys(("tm", "tm3", "tm6"), "microseconds")},
}
BINARY: dict[str, T.DataType] = dict.fromkeys(("bin", "vbin", "blb", "lblb"), T.BinaryType())
#: Types that the user gives, because the record's do not say, or the default is text or bytes.
GIVEN: dict[str, dict[str, T.DataType]] = {
    "a": BINARY | {"bit12": T.StringType(), "bit64": T.StringType()},
    "b": BINARY | {"bit12": T.ShortType(), "num": T.DecimalType(12, 2), "dec0": T.DecimalType(20, 0)},
    "c": BINARY,
    "d": BINARY | {"dec65": T.BinaryType()},
}
NULL_OF_LONG_TIMES = {21: ("tm", "tm6"), 22: ("tm", "tm3", "tm6")}


def columns_of(mode: str) -> Columns:
    source = topic(f"{'a' if mode == 'd' else mode}.shop.types")
    found = infer([(_bytes(one.key), _bytes(one.value)) for one in source])
    given = GIVEN[mode]
    value = [T.StructField(one.name, given.get(one.name, one.dataType)) for one in found.value]
    return Columns(found.key, T.StructType(value))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def rows_of(decoder: DebeziumDecoder, records: list[Record]) -> list[dict[str, Any]]:
    """What the decoder says of each record; none is an error."""
    headers = [[{"key": name, "value": text.encode()} for name, text in one.headers] for one in records]
    keys = pa.array([_bytes(one.key) for one in records], pa.binary())
    values = pa.array([_bytes(one.value) for one in records], pa.binary())
    rows: list[dict[str, Any]] = decoder.decode(keys, values, pa.array(headers, HEADERS)).to_pylist()
    assert [row["error"] for row in rows] == [None] * len(rows)
    return rows


def decoded(mode: str) -> dict[int, dict[str, Any]]:
    """The table at the end of the topic."""
    records = topic(f"{mode}.shop.types")
    found: dict[int, dict[str, Any]] = {}
    for row in rows_of(DebeziumDecoder(columns_of(mode), **MODES[mode]), records):
        if row["op"] == "delete":
            found.pop(row["key"]["id"], None)
        else:
            found[row["key"]["id"]] = {name: plain(value) for name, value in row["value"].items()}
    return found


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (
            value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            if value.tzinfo
            else value.isoformat(" ", "microseconds")
        )
    return value.isoformat() if isinstance(value, date) else value


def point(printed: str) -> dict[str, Any]:
    wkb, srid = printed.split()
    raw = bytes.fromhex(wkb)
    return {"x": None, "y": None, "wkb": raw, "srid": int(srid) or None} | (
        dict(zip("xy", struct.unpack("<dd", raw[5:]), strict=True)) if len(raw) == 21 else {}
    )


def of_database(name: str, kind: str, printed: str | None, mode: str) -> Any:  # noqa: C901, PLR0911 - a line a type
    """What a column should be in a mode, from what the database prints."""
    if printed is None:
        return None
    if name in BINARY:
        return bytes.fromhex(printed)
    if kind in {"point", "geometry", "polygon"}:
        return {one: value for one, value in point(printed).items() if kind == "point" or one not in "xy"}
    if kind.startswith("bit"):
        return bits(kind, printed, mode)
    if kind == "bigint(20) unsigned":
        return Decimal(printed) if mode == "b" else signed(int(printed))
    if kind.startswith("decimal"):
        return number(name, printed, mode)
    if "int" in kind or kind.startswith("year"):
        return int(printed)
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", float(printed)))[0]
    if kind == "double":
        return float(printed)
    if kind.startswith("time") and not kind.startswith("timestamp"):
        return printed.rstrip("0").rstrip(".") if "." in printed else printed
    return printed


def bits(kind: str, printed: str, mode: str) -> Any:
    if kind == "bit(1)":
        return printed == "1"
    if mode == "a":
        return printed
    if mode == "b" and kind == "bit(12)":
        return int(printed, 2)
    return int(printed, 2).to_bytes(-(-len(printed) // 8), "little")


def signed(value: int) -> int:
    """What ``bigint.unsigned.handling.mode=long`` makes of a value: those beyond a long wrap around."""
    return value - (1 << 64) if value >= 1 << 63 else value


def number(name: str, printed: str, mode: str) -> Any:
    if mode == "c":
        return float(printed)
    if name == "dec65" and mode == "d":  # without a schema nothing says the scale of 30
        unscaled = int(printed.replace(".", ""))
        return unscaled.to_bytes(
            (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True
        )
    return printed if name == "dec65" else Decimal(printed)


def changed_by_the_connector(rows: dict[int, dict[str, Any]], mode: str) -> None:
    """Apply what Debezium itself changes: years of one or two digits, zero dates, and what a mode cannot hold."""
    for one in (3, 13):
        rows[one]["dt"] = "2001-01-01"  # enable.time.adjuster
    rows[23] |= {"yr": 1900, "dt": None, "dtm": None, "dtm6": None, "ts": "1970-01-01 00:00:00.000000"}
    if mode not in {"b", "c"}:
        return
    for one, names in NULL_OF_LONG_TIMES.items():
        rows[one] |= dict.fromkeys(names)
    rows[21]["tm3"] = "24:00:00" if mode == "b" else "00:00:00"
    if mode == "b":  # milliseconds
        for row in rows.values():
            row["dtm6"] = row["dtm6"] and row["dtm6"][:-3] + "000"
            row["tm6"] = (
                row["tm6"] and {"13:14:15.123456": "13:14:15.123", "00:00:00.000001": "00:00:00"}[row["tm6"]]
            )


@pytest.mark.parametrize("mode", MODES)
def test_every_column_of_mariadb_is_what_the_database_had(mode: str) -> None:
    types = kinds()
    wanted = {
        int(row["id"]): {
            name: of_database(name, types[name], value, mode) for name, value in row.items() if name != "id"
        }
        for row in database("types")
    }
    changed_by_the_connector(wanted, mode)
    assert decoded(mode) == wanted


TABLES = {
    "orders": (["id"], "id int, customer string, note string"),
    "order_lines": (["order_id", "line"], "order_id int, line int, sku string, quantity int"),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("cut", quick_first([7, 1, 1000]))
def test_mariadbs_tables_are_what_the_database_had_although_its_connector_was_killed(
    table: str, cut: int
) -> None:
    key, columns = TABLES[table]
    captured, records = Captured(key, columns, 1), topic(f"a.shop.{table}")
    for at in range(0, len(records), cut):
        captured.run(records[at : at + cut])
    assert rows_left(captured, table) == database(table)
    assert captured.dropped["repeated"] == 10  # eleven came again; the last of them is as it was


def rows_left(captured: Captured, table: str) -> list[dict[str, Any]]:
    """The rows of a table, by key."""
    key, columns = TABLES[table]
    both = [*key, *names(columns, key)]
    return [dict(zip(both, (*one, *row), strict=True)) for one, row in sorted(captured.rows.items())]


def names(columns: str, key: list[str]) -> list[str]:
    return [name for one in columns.split(", ") if (name := one.split()[0]) not in key]


def changes(table: str) -> list[dict[str, Any]]:
    """What the decoder says of the changes of a table."""
    key, columns = TABLES[table]
    schema = struct_of(columns)
    parts = Columns(
        T.StructType([schema[one] for one in key]),
        T.StructType([one for one in schema if one.name not in key]),
    )
    rows = rows_of(DebeziumDecoder(parts), topic(f"a.shop.{table}"))
    return [row for row in rows if row["position"] is not None]


def test_positions_of_two_tables_sort_as_the_database_committed_across_a_new_binary_log() -> None:
    rows = sorted((row for table in TABLES for row in changes(table)), key=lambda row: str(row["position"]))
    places = [str(row["position"]).split(":")[0].lstrip("binlog.0") for row in rows]
    assert [one for n, one in enumerate(places) if one not in places[:n]] == ["999998", "999999", "1000000"]
    snapshots = [row["snapshot"] is not None for row in rows]
    assert snapshots == sorted(snapshots, reverse=True)
    ended = [row for row in rows if row["snapshot"] is None and row["op"] != "truncate"]
    commits = [int(row["transaction"].removeprefix("0-4242-")) for row in ended]
    assert len(set(commits)) > 20
    assert commits == sorted(commits)


def test_key_changes_of_mariadb_name_the_other_key() -> None:
    moved = [
        (row["key"]["id"], row["moved_to"] and row["moved_to"]["id"])
        for row in changes("orders")
        if row["moved_to"]
    ]
    assert moved == [(3, 5), (1, 9), (4, 1), (9, 4)]
    back = [(row["moved_from"]["id"], row["key"]["id"]) for row in changes("orders") if row["moved_from"]]
    assert back == moved


def test_ends_of_transactions_have_the_names_of_their_changes_and_count_them() -> None:
    values = pa.array([_bytes(one.value) for one in topic("a.transaction")], pa.binary())
    ends = [row for row in EndDecoder(Reader("__")).decode(values).to_pylist() if row["transaction"]]
    counted = {row["transaction"]: dict(zip(row["tables"], row["events"], strict=True)) for row in ends}
    assert counted["0-4242-17"] == {"shop.orders": 1, "shop.order_lines": 2}
    for table in TABLES:
        last: dict[str, int] = {}
        for row in changes(table):
            if row["snapshot"] is None and row["op"] != "truncate":
                last[row["transaction"]] = last.get(row["transaction"], 0) + 1
        del last["0-4242-32"]  # the connector was killed after its events: the second end of it counts none
        repeated = {f"0-4242-{n}" for n in range(33, 44)}
        for name, count in last.items():
            assert count == counted[name][f"shop.{table}"] * (2 if name in repeated else 1)


@pytest.mark.parametrize("cut", quick_first([1000, 3]))
def test_whole_transactions_of_mariadb_leave_what_the_database_had(cut: int) -> None:
    tables = {f"shop.{name}": Captured(*one, 1) for name, one in TABLES.items()}
    whole = Database(tables, shards=1)
    topics = [topic("a.transaction"), *(topic(f"a.{name}") for name in tables)]
    seen: list[str | None] = []
    for at in range(0, max(map(len, topics)), cut):
        seen += whole.run([one for records in topics for one in records[at : at + cut]])
    for name in TABLES:
        assert rows_left(tables[f"shop.{name}"], name) == database(name)
    released = [one for one in dict.fromkeys(seen) if one is not None]
    assert released == [f"0-4242-{n}" for n in (*range(17, 24), *range(32, 45), 46, 47)]
