"""What a source's packer does with records that are none; no session is needed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

from tablestream.base.data_text import data_left_out
from tablestream.base.time_zones import in_utc
from tablestream.cli.display import polars_rows
from tablestream.connectors.source import OnMalformed, Origin
from tablestream.errors import MalformedRecordError, OrderError
from tablestream.operators.deduplicate import Deduplicate
from tablestream.operators.operator import Context, filled_of
from tablestream.runtime.drops import DropRules
from tablestream.runtime.order import number_messages
from tablestream.runtime.ports import EVERY_SHARD, METRICS, RANKS, Port
from tablestream.spark import blobs, packing
from tablestream.spark.packing import Consumer, SourcePacker, _gathered
from tablestream.state.cache import NoCache
from tablestream.state.positions import frame_of
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

PORT, TOLD = Port(1, 1, 1, "_kh", "rows"), Port(2, 2, 2, "_kh", "rejected")
PROGRESS = Port(3, 3, 3, EVERY_SHARD, "progress")


def packed(
    *records: dict[str, Any],
    malformed: OnMalformed = "fail",
    compat: bool = False,
    ordered: bool = False,
    cut: int | None = None,
    progress: Port | None = None,
    explained: bool = False,
    redact: bool = False,
) -> dict[int, pl.DataFrame]:
    """Pack records of one file, in two parts if they are cut; return the messages by port."""
    packer = SourcePacker(
        name="positions",
        number=0,
        origin=Origin(partition=("file",), on_malformed=malformed, explained=explained, continues=True),
        ordered=ordered,
        consumers=(Consumer(PORT, ("_kh", "_k0", "_live"), ("__value_0",)),),
        shards=1,
        rejecting=(TOLD,),
        refuse_negative_time=compat,
        progress=progress,
        rules=DropRules(redact=redact),
    )
    schema = pa.schema(
        [
            ("__ts", pa.int64()),
            ("__null_key", pa.bool_()),
            ("__malformed", pa.string()),
            ("__mark0", pa.string()),
            ("__key_json", pa.string()),
            ("__record", pa.string()),
            ("__to1__kh", pa.int64()),
            ("__to1__k0", pa.string()),
            ("__to1__live", pa.bool_()),
            ("__value_0", pa.string()),
            *([("__position", pa.int64())] if "__position" in records[0] else []),
            *([("__time", pa.int64())] if ordered else []),
            *([("__timeless", pa.bool_())] if "__timeless" in records[0] else []),
            *([("__own", pa.int64())] if any("__own" in one for one in records) else []),
            *([("__now", pa.int64())] if "__now" in records[0] else []),
        ]
    )
    defaults = {"__null_key": False, "__mark0": "file", "__to1__kh": 7, "__to1__live": True, "__record": "{}"}
    rows = [{**defaults, **record} for record in records]
    messages: dict[int, list[pl.DataFrame]] = {}
    parts = [rows] if cut is None else [rows[:cut], rows[cut:]]
    batches = [pa.RecordBatch.from_pylist(part, schema=schema) for part in parts]
    with data_left_out(redact):  # until the packer has ended, which begins as a task does
        sent = list(packer(batches))
    for batch in sent:
        for _, port, rows, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            frame = pl.DataFrame({"counter": [blob.decode()], "count": [rows]}) if port == METRICS else None
            messages.setdefault(port, []).append(blobs.decode([blob])[0] if frame is None else frame)
    return {port: pl.concat(frames) for port, frames in messages.items()}


def test_the_order_is_the_running_maximum_and_the_place_in_the_file() -> None:
    rows = packed({"__ts": 5}, {"__ts": 3}, {"__ts": 9})[PORT.number]
    assert rows.select("_t", "_o", "_ts").rows() == [(5, 0, 5), (5, 1, 3), (9, 2, 9)]


@pytest.mark.parametrize("cut", [None, 1, 2, 3])
def test_a_record_whose_time_is_of_another_clock_is_behind_the_record_before_it(cut: int | None) -> None:
    """Its time is its own, and does not count for the records behind it."""
    places = ((900, True), (3, False), (901, True), (4, False))
    records = [{"__ts": ts, "__timeless": timeless} for ts, timeless in places]
    rows = packed(*records, cut=cut)[PORT.number]
    assert rows.select("_t", "_o", "_ts").rows() == [(0, 0, 900), (3, 1, 3), (3, 2, 901), (4, 3, 4)]


FIRST = -(2**63)


@pytest.mark.parametrize("cut", [None, 1, 2, 3])
def test_a_tombstone_without_a_time_is_behind_what_came_before_it_in_its_partition(cut: int | None) -> None:
    """If nothing did, it is before all records. Its own time is only for an output, and not counted for the order."""
    tombstone: dict[str, Any] = {"__ts": None, "__own": 900, "__to1__live": False, "__value_0": None}
    records: list[dict[str, Any]] = [
        tombstone,
        {"__ts": -5},
        {**tombstone, "__mark0": "other"},
        tombstone,
        {"__ts": -7},
        {"__ts": None},
    ]
    messages = packed(*records, cut=cut)
    rows = messages[PORT.number].sort("_p", "_o")
    assert rows.select("_p", "_t", "_o", "_ts").rows() == [
        ("0000\tfile", FIRST, 0, None),
        ("0000\tfile", -5, 1, -5),
        ("0000\tfile", -5, 2, None),
        ("0000\tfile", -5, 3, -7),
        ("0000\tother", FIRST, 0, None),
    ]
    assert messages[METRICS].rows() == [("positions: null-timestamp", 1)]


@pytest.mark.parametrize("cut", [None, 1, 2, 3, 4])
def test_a_tombstone_without_an_order_is_behind_the_highest_before_it(cut: int | None) -> None:
    tombstone: dict[str, Any] = {
        "__ts": 1, "__time": None, "__own": 900, "__to1__live": False, "__value_0": None,
    }  # fmt: skip
    records: list[dict[str, Any]] = [
        tombstone,
        {"__ts": 1, "__time": 8},
        {"__ts": 1, "__time": 3},
        tombstone,
        {"__ts": 1, "__time": None},
    ]
    messages = packed(*records, ordered=True, cut=cut)
    assert messages[PORT.number].select("_t", "_o").rows() == [(FIRST, 0), (8, 1), (3, 2), (8, 3)]
    assert messages[METRICS].rows() == [("positions: null-timestamp", 1)]


def test_a_partition_with_tombstones_without_a_time_alone_counts_as_silent() -> None:
    tombstone = {"__ts": None, "__own": 900, "__to1__live": False, "__now": 8}
    told = packed(tombstone, {"__ts": 3, "__mark0": "other", "__now": 8}, progress=PROGRESS)[PROGRESS.number]
    assert told.select("_p", "_timed").sort("_p").rows() == [("0000\tfile", False), ("0000\tother", True)]


def test_a_partition_tells_whether_any_record_of_it_has_a_time_of_its_own() -> None:
    records = [
        {"__ts": ts, "__timeless": timeless, "__mark0": file, "__now": 8}
        for ts, timeless, file in ((900, True, "a"), (3, False, "b"), (901, True, "b"))
    ]
    told = packed(*records, progress=PROGRESS)[PROGRESS.number]
    assert told.select("_p", "_t", "_heard", "_timed").sort("_p").rows() == [
        ("0000\ta", 0, 8, False),
        ("0000\tb", 3, 8, True),
    ]


def test_source_partitions_may_come_mixed() -> None:
    records = [
        {"__ts": ts, "__mark0": file} for ts, file in ((1, "a"), (100, "b"), (2, "a"), (50, "b"), (0, "a"))
    ]
    rows = packed(*records)[PORT.number]
    assert rows.select("_t", "_o", "_ts").rows() == [
        (1, 0, 1),
        (100, 0, 100),
        (2, 1, 2),
        (100, 1, 50),
        (2, 2, 0),
    ]


@pytest.mark.parametrize("cut", [None, 1, 2, 4])
def test_rows_of_one_position_are_numbered(monkeypatch: pytest.MonkeyPatch, cut: int | None) -> None:
    """Also where they come in several record batches, and where another partition comes between."""
    monkeypatch.setattr(packing, "ROWS", 1)
    places = [("a", 5), ("a", 5), ("b", 5), ("a", 5), ("a", 7), ("b", 5), ("a", 8), ("a", 8)]
    records = [{"__ts": 1, "__mark0": file, "__position": position} for file, position in places]
    rows = packed(*records, cut=cut)[PORT.number]
    numbers = [(*place, hop // RANKS, hop % RANKS) for *place, hop in rows.select("_p", "_o", "_h0").rows()]
    a, b = "0000\ta", "0000\tb"
    assert numbers == [
        (a, 5, 0, 1),
        (a, 5, 1, 1),
        (b, 5, 0, 1),
        (a, 5, 2, 1),
        (a, 7, 0, 1),
        (b, 5, 1, 1),
        (a, 8, 0, 1),
        (a, 8, 1, 1),
    ]


def test_rows_of_one_position_are_steps_of_their_own() -> None:
    rows = packed(*({"__ts": 1, "__position": position} for position in (5, 5, 6)))[PORT.number]
    place = rows.select("_t", "_p", "_o", "_h0")
    for more in ([], [pl.lit(0, pl.Int64).alias("_hs")]):
        _, (numbers,) = number_messages([place.with_columns(more)], ["_h0"])
        assert numbers["_step"].to_list() == [1, 2, 3]


def test_rows_of_one_position_and_order_are_one_step_only_if_several_tasks_read_them() -> None:
    """As behind a shuffle: a task numbers the rows that it reads together."""
    row = {"__ts": 1, "__time": 7, "__position": 5}
    together = packed(row, row, ordered=True)[PORT.number].select("_t", "_p", "_o", "_h0")
    apart = [packed(row, ordered=True)[PORT.number].select(together.columns) for _ in range(2)]
    for frame, steps in ((together, [1, 2]), (pl.concat(apart), [1, 1])):
        _, (numbers,) = number_messages([frame], ["_h0"])
        assert numbers["_step"].to_list() == steps


def test_elements_of_a_record_that_its_writer_numbered_are_no_repeats_of_each_other() -> None:
    """But the elements of the record that is written again are repeats of the first ones."""
    messages = {"_kh": 1, "_k0": "a", "_w": "w", "_wh": 1, "_rk": b"k", "_fh": 1, "_mb": 0, "_no": 4}
    columns = {"__ts": 1, "__null_key": False, "__mark0": "t", "__to1__live": True, "__value_0": "v"}
    columns |= {f"__to1_{name}": value for name, value in messages.items()}
    places = [{"__position": position} for position in (5, 5, 8, 8)]
    consumer = Consumer(PORT, (*messages, "_live"), ("__value_0",), of_each=("_no",))
    packer = SourcePacker(
        "topic", 0, Origin(partition=("topic",)), ordered=False, consumers=(consumer,), shards=1
    )
    batches = list(packer([pa.RecordBatch.from_pylist([columns | place for place in places])]))
    frames = blobs.decode(blob for batch in batches for blob in batch[blobs.BLOB].to_pylist())
    rows = pl.concat(frames).with_row_index("_seq", 1).with_columns(pl.col("_seq").cast(pl.Int64))
    operator = Deduplicate(pl.Schema({"_k0": pl.String()}), rows.schema["v"])
    assert [name for name, one in filled_of(operator.inputs[0]).items() if one.of_each] == ["_no"]
    state = ShardState(MemoryStore(), NoCache(), numbered_traces(operator.traces), "plan")
    context = Context(state.trace, Counter())
    (emission,) = operator.run([rows.select("_seq", *operator.inputs[0])], context)
    assert emission.rows["_parent"].to_list() == [1, 2]
    assert context.dropped == {"repeated": 2}


def test_a_rejected_row_stands_where_it_stood_among_those_of_its_position() -> None:
    records = ({"__ts": 1, "__position": 5, "__null_key": null} for null in (False, True))
    assert packed(*records)[TOLD.number].select("_o", "_h0").rows() == [(5, RANKS + TOLD.rank)]


@pytest.mark.parametrize("cut", [None, 1])
def test_a_position_behind_its_own_is_an_error_unless_the_order_is_the_users(
    monkeypatch: pytest.MonkeyPatch, cut: int | None
) -> None:
    """The running maximum of the time says nothing about rows that were mixed."""
    monkeypatch.setattr(packing, "ROWS", 1)
    records = [{"__ts": 1, "__time": 3, "__position": 9}, {"__ts": 2, "__time": 2, "__position": 4}]
    with pytest.raises(OrderError, match="their source: source partition file, row 4 comes after 9"):
        packed(*records, cut=cut)
    assert packed(*records, cut=cut, ordered=True)[PORT.number].select("_t", "_o").rows() == [(3, 9), (2, 4)]


def test_a_row_without_a_position_of_its_own_stands_behind_the_one_before() -> None:
    rows = packed({"__ts": 1, "__position": 4}, {"__ts": 2, "__position": None}, {"__ts": 3, "__position": 5})
    assert rows[PORT.number].select("_o", "_h0").rows() == [(4, 1), (4, RANKS + 1), (5, 1)]


def test_parts_of_a_source_partition_sort_before_what_follows_in_longer_ones() -> None:
    names = [
        packed({"__ts": 1, "__mark0": topic})[PORT.number]["_p"][0] for topic in ("a", "a-b", "a.b", "b")
    ]
    assert sorted(names) == names


def test_a_record_without_key_or_time_is_dropped_counted_and_told() -> None:
    messages = packed({"__ts": 1}, {"__ts": 2, "__null_key": True}, {"__ts": None})
    assert messages[PORT.number].height == 1
    assert sorted(messages[METRICS].rows()) == [
        ("positions: null-key", 1),
        ("positions: null-timestamp", 1),
    ]
    assert messages[TOLD.number]["_reason"].to_list() == ["null-key", "null-timestamp"]


def test_a_time_before_1970_is_a_time_like_any_other() -> None:
    assert packed({"__ts": -1})[PORT.number]["_ts"].to_list() == [-1]


@pytest.mark.parametrize("absurd", [253_402_300_800_000_000, 2**63 - 1, -62_135_596_800_000_001, -(2**63)])
def test_a_time_outside_of_the_years_1_to_9999_is_none(absurd: int) -> None:
    """Else it would be the time of all that comes behind it, and be added to until 64 bits are full."""
    messages = packed({"__ts": 5}, {"__ts": absurd}, {"__ts": 7})
    assert messages[PORT.number].select("_t", "_o", "_ts").rows() == [(5, 0, 5), (7, 2, 7)]
    assert messages[METRICS].rows() == [("positions: null-timestamp", 1)]
    assert messages[TOLD.number].select("_t", "_o", "_ts", "_reason").rows() == [
        (5, 1, None, "null-timestamp")
    ]
    edges = packed({"__ts": 253_402_300_799_999_999}, {"__ts": -62_135_596_800_000_000})
    assert edges[PORT.number].height == 2


def test_large_record_batches_are_packed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows they have: nothing waits in memory for 100,000."""
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    batch = pa.record_batch({"value": ["x" * 600]})
    assert [table.num_rows for table in _gathered([batch] * 5)] == [2, 2, 1]


def test_compat_refuses_a_time_before_1970() -> None:
    with pytest.raises(OrderError, match="before 1970"):
        packed({"__ts": -1}, compat=True)


def test_fail_ends_at_a_row_that_cannot_be_read() -> None:
    with pytest.raises(MalformedRecordError, match="nonsense"):
        packed({"__ts": None, "__malformed": "nonsense"})


def test_a_large_row_that_cannot_be_read_stands_in_no_message_whole_and_can_be_left_out() -> None:
    record = {"__ts": None, "__malformed": "\x1b[2J" + "n" * 30_000_000}
    with pytest.raises(MalformedRecordError) as caught:
        packed(record)
    assert "A row cannot be read: '\\x1b[2Jnnn" in str(caught.value)
    assert len(str(caught.value)) < 400
    for told in ("nonsense", '{"error":"no number","key":"nonsense"}'):
        with pytest.raises(MalformedRecordError, match=r"\(left out\) \(source") as caught:
            packed({"__ts": None, "__malformed": told}, redact=True, explained=told != "nonsense")
        assert "nonsense" not in str(caught.value)
        assert ("no number" in told) == ("no number" in str(caught.value))


@pytest.mark.parametrize(("mode", "told"), [("drop", []), ("keep", ["malformed"])])
def test_drop_counts_and_keep_also_tells(mode: OnMalformed, told: list[str]) -> None:
    messages = packed({"__ts": 1}, {"__ts": None, "__malformed": "nonsense"}, malformed=mode)
    assert messages[METRICS].rows() == [("positions: malformed", 1)]
    assert [
        reason for frame in [messages.get(TOLD.number)] if frame is not None for reason in frame["_reason"]
    ] == told


@pytest.mark.parametrize("zone", ["GMT+8", "+05:30", "PST", "Z", "America/New_York", "UTC"])
def test_timestamps_become_utc_whatever_zone_the_session_has(zone: str) -> None:
    """Also within others, and also where Polars does not know the zone."""
    time = pa.timestamp("us", zone)
    kinds = [
        time,
        pa.list_(pa.field("element", time, nullable=False)),
        pa.struct([("at", time), ("local", pa.timestamp("us"))]),
        pa.map_(time, pa.struct([("at", pa.list_(time))])),
    ]
    values: list[Any] = [5, [5, 6], {"at": 5, "local": 6}, [(5, {"at": [6]})]]
    columns = [pa.array([one, None], kind) for one, kind in zip(values, kinds, strict=True)]
    frame = frame_of(in_utc(pa.table(columns, names=list("abcd"))))
    utc = pl.Datetime("us", "UTC")
    assert list(frame.dtypes[:3]) == [utc, pl.List(utc), pl.Struct({"at": utc, "local": pl.Datetime("us")})]
    assert frame["a"].to_physical().to_list() == [5, None]
    again = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    assert again["d"].type.key_type.tz == again["d"].type.item_type["at"].type.value_type.tz == "UTC"


@pytest.mark.parametrize(("zone", "shown"), [("PST", "UTC"), ("GMT+8", "UTC"), ("Asia/Tokyo", "Asia/Tokyo")])
def test_people_see_times_in_their_zone_where_python_knows_it(zone: str, shown: str) -> None:
    rows = pa.table({"at": pa.array([5], pa.timestamp("us", zone))})
    frame = polars_rows(cast("Any", SimpleNamespace(toArrow=lambda: rows)))
    assert frame.schema == {"at": pl.Datetime("us", shown)}
    assert frame["at"].to_physical().to_list() == [5]
    assert in_utc(rows, keep_known=True).to_pylist()[0]["at"].timestamp() == 5e-6
