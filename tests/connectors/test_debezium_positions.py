"""Where changes were made: positions sort as each connector writes, across tables, and no change is lost by them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.cdc.operators import Captured
from tests.cdc.recording import Record
from tests.cdc.rows import decode, envelope

Place = dict[str, Any]


def lsn(commit: str, change: str | None = None, serial: int | None = 1, **more: Any) -> Place:
    return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": serial, **more}


def log(file: str, pos: int, row: int = 0, **more: Any) -> Place:
    return {"file": file, "pos": pos, "row": row, **more}


#: Changes of any tables in the order in which the connector writes them; those of one list have one position.
ORDERS: dict[str, list[list[Place]]] = {
    "postgresql": [
        [{"sequence": '[null,"99"]', "snapshot": "true", "lsn": 99}],
        [{"sequence": '[null,"100"]', "lsn": 100, "number": 1}],
        [{"sequence": '["100","90"]', "number": 1}],
        [{"sequence": '["100","90"]', "number": 2}],
        [{"sequence": '["100","90"]', "snapshot": "incremental"}],
        [{"sequence": '["100","1000"]', "number": 1}],
    ],
    "mysql": [
        [log("mysql-bin.000009", 500, snapshot="first"), log("mysql-bin.000009", 500, snapshot="last")],
        [log("mysql-bin.000009", 1000), log("mysql-bin.000009", 1000, 1)],
        [log("mysql-bin.000009", 1000, 1, snapshot="incremental")],
        [log("mysql-bin.000009", 20000)],
        [log("mysql-bin.000010", 4)],
        [log("mysql-bin.000010", 7, number=1), log("mysql-bin.000010", 7, number=2)],
        [log("mysql-bin.000010", 9, gtid="24bc7850-2c16-11e6-a073-0242ac110002:9")],
        [log("mysql-bin.000010", 30, gtid="24bc7850-2c16-11e6-a073-0242ac110002:10")],
        [log("mysql-bin.999999", 2**32)],
        [log("mysql-bin.1000000", 4)],
    ],
    "mariadb": [
        [log("binlog.000009", 339, snapshot="true")],
        [log("binlog.000009", 400, gtid="0-4242-9")],
        [log("binlog.000010", 400, gtid="0-4242-10")],
        [log("binlog.999999", 400, gtid="1-4242-3")],
        [log("binlog.1000000", 4, gtid="0-4242-11")],
    ],
    "sqlserver": [
        [lsn("0000002a:00000100:0003", None, None, snapshot="true")],
        [lsn("0000002A:00000101:0003", "0000002a:000000f0:0002", number=1)],
        [lsn("0000002a:00000101:0003", "0000002a:000000f0:0002", 2, number=2)],
        [lsn("0000002a:00000101:0003", "0000002a:000000f1:0002", number=3)],
        [lsn("0000002a:00000101:0003", "0000002a:000000ef:0002", number=4)],
        [lsn("0000002a:00000101:0003", "0000002a:000000ef:0002", 2, number=10)],
        [lsn("0000002b:00000001:0001", f"0000002a:{change}:0002") for change in ("000000aa", "000000a9")],
        [lsn("0000002b:00000001:000a", "0000002a:000000a0:0002")],
        [lsn("00000100:00000000:0001", "0000002a:000000a0:0002")],
    ],
    "oracle": [
        [{"scn": "999", "snapshot": "true"}],
        [{"scn": "1000", "commit_scn": "1002", "redo_thread": 2}],
        [
            {"scn": "900", "commit_scn": "10030", "txId": "0a00", "redo_thread": 1, "number": 1},
            {"scn": "910", "commit_scn": "10030", "txId": "0a00", "redo_thread": 1, "number": 2},
            {"scn": "800", "commit_scn": "10030", "txId": "0500", "redo_thread": 2, "number": 1},
        ],
        [{"scn": "801", "commit_scn": "281474976710656", "redo_thread": 1}],
        [{"scn": "801", "commit_scn": "9223372036854775807", "redo_thread": 2}],
        [{"scn": "801", "commit_scn": "18446744073709551615", "redo_thread": 1}],
    ],
}  # fmt: skip
ORDERS["db2"] = ORDERS["sqlserver"]
#: Db2 has 16 bytes, with colons after the fourth and the eighth.
ORDERS["db2 on Linux"] = [
    [lsn(f"00000000:00000000:{first}", None, None, connector="db2")]
    for first in ("00000000000c1c5a", "00000000000C1C5B", "00000000ffffffff", "0000000100000000")
]


def position(connector: str, place: Place) -> Any:
    """The position of a change; a flattened record has the same."""
    source = {"connector": connector} | {name: one for name, one in place.items() if name != "number"}
    row = decode(envelope(**source) | {"transaction": {"id": "5:6", "total_order": place.get("number")}})
    assert row["error"] is None
    flat = {f"__source_{name}": one for name, one in source.items()}
    number = {"__transaction_total_order": place.get("number")}
    assert decode({"id": 7, "name": "Ada", **flat, **number})["position"] == row["position"]
    return row["position"]


@pytest.mark.parametrize("connector", ORDERS)
def test_positions_sort_in_commit_order(connector: str) -> None:
    found = [{position(connector, place) for place in group} for group in ORDERS[connector]]
    assert [len(group) for group in found] == [1] * len(found)
    assert all(first.pop() < next(iter(second)) for first, second in pairwise(found))


def test_a_commit_lsn_that_is_not_known_yet_is_before_all_others() -> None:
    assert position("sqlserver", lsn("NULL")) < position("sqlserver", lsn("00000000:00000000:0001"))
    assert position("db2", lsn("NULL")) < position("db2", lsn("00000000:00000000:00000000000c1c5a"))


@pytest.mark.parametrize("connector", ["mysql", "sqlserver", "db2 on Linux"])
def test_a_flattened_row_without_its_connector_is_recognised_by_its_fields(connector: str) -> None:
    for place in ORDERS[connector][1]:
        given = {name: one for name, one in place.items() if name not in {"number", "connector"}}
        flat = {f"__source_{name}": one for name, one in given.items()}
        row = decode({"id": 7, "name": "Ada", **flat, "__transaction_total_order": place.get("number")})
        assert row["position"] == position(connector, place)


@pytest.mark.parametrize(
    ("connector", "place", "field"),
    [
        ("mysql", log("mysql-bin", 4), "file"),
        ("mysql", log("mysql-bin.000001", -4), "pos"),
        ("sqlserver", lsn("0000002a:00000101"), "commit_lsn"),
        ("db2", lsn("00000000:00000000:000000000000c1c5a"), "commit_lsn"),
        ("oracle", {"commit_scn": "1e9"}, "commit_scn"),
        ("oracle", {"commit_scn": "1" * 21}, "commit_scn"),
        ("oracle", {"scn": "1e9", "snapshot": "true"}, "scn"),
    ],
)
def test_a_field_that_is_no_position_is_named(connector: str, place: Place, field: str) -> None:
    assert f"'source.{field}'" in decode(envelope(connector=connector, **place))["error"]


def changes(connector: str, *rows: tuple[int, int, Place]) -> list[Record]:
    """Updates of rows, by key and value; the number is that in the transaction ``transaction``."""
    found = []
    for n, (key, value, place) in enumerate(rows):
        source = {name: one for name, one in place.items() if name not in {"number", "transaction"}}
        after = {"id": key, "n": value}
        record = envelope("u", after, connector=connector, **source)
        if "transaction" in place:
            record |= {"transaction": {"id": place["transaction"], "total_order": place["number"]}}
        payload = json.dumps(record)
        found.append(Record("t", 0, n, 0, json.dumps({"id": key}), payload, []))
    return found


#: What a connector writes in this order, none of it twice; the last value of each key stays.
WRITTEN_ONCE: dict[str, tuple[str, list[tuple[int, int, Place]]]] = {
    "two statements of a compressed transaction": (
        "mysql",
        [(1, 1, log("b.000001", 99)), (2, 1, log("b.000001", 99, 1)), (1, 2, log("b.000001", 99))],
    ),
    "a restart inside a transaction, which counts again": (
        "mysql",
        [
            (1, 1, log("b.000001", 99, 0, transaction="file=b.000001,pos=50", number=4)),
            (2, 1, log("b.000001", 99, 1, transaction="file=b.000001,pos=50", number=5)),
            (3, 1, log("b.000001", 99, 2, transaction="file=b.000001,pos=50", number=1)),
        ],
    ),
    "change LSNs that fall in a transaction": (
        "sqlserver",
        [
            (1, 1, lsn("00000001:00000009:0001", "00000001:00000005:0002")),
            (2, 1, lsn("00000001:00000009:0001", "00000001:00000004:0002")),
        ],
    ),
    "two transactions of one commit SCN": (
        "oracle",
        [
            (1, 1, {"scn": "7", "commit_scn": "9", "transaction": "0a", "number": 1}),
            (2, 1, {"scn": "8", "commit_scn": "9", "transaction": "0a", "number": 2}),
            (1, 2, {"scn": "6", "commit_scn": "9", "transaction": "05", "number": 1}),
        ],
    ),
}


@pytest.mark.parametrize("case", WRITTEN_ONCE)
@pytest.mark.parametrize("cut", [1, 10])
def test_no_change_that_is_written_once_is_taken_for_a_repeat(case: str, cut: int) -> None:
    connector, rows = WRITTEN_ONCE[case]
    table, records = Captured(["id"], "id int, n int", 1), changes(connector, *rows)
    for at in range(0, len(records), cut):
        table.run(records[at : at + cut])
    assert table.dropped["repeated"] == 0
    assert table.rows == {(key,): (value,) for key, value, _ in rows}


#: Three commits in the order of the log, for each connector.
COMMITS: dict[str, list[Place]] = {
    "mysql": [log("b.999999", 900), log("b.1000000", 4), log("b.1000000", 90)],
    "mariadb": [log("b.000009", 900), log("b.000010", 4), log("b.000010", 90)],
    "sqlserver": [
        lsn("0000000a:00000009:0001", "0000000a:00000008:0002"),
        lsn("0000000a:00000010:0001", "0000000a:00000001:0002"),
        lsn("00000010:00000001:0001", "0000000a:00000001:0002"),
    ],
    "oracle": [{"scn": "9", "commit_scn": one} for one in ("99", "100", "1000")],
}


@pytest.mark.parametrize("connector", COMMITS)
def test_a_connector_that_restarts_and_repeats_commits_changes_nothing(connector: str) -> None:
    table = Captured(["id"], "id int, n int", 1)
    records = changes(connector, *((1, n, place) for n, place in enumerate(COMMITS[connector])))
    table.run(records)
    assert table.run(records) == []
    assert (table.dropped["repeated"], table.rows) == (2, {(1,): (2,)})
