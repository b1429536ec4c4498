"""Change feeds: what a version leaves counts, whatever the order of its changes and however it is cut."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.connectors.infinity import AFTER_ALL, BEFORE_ALL
from tablestream.errors import CaptureError
from tablestream.operators.captured.capture import CAPTURE, DELETE, FIELDS, PREIMAGE, UPSERT
from tablestream.operators.captured.captured_table import CapturedTable
from tablestream.operators.captured.feed_checks import check_preimages
from tablestream.operators.cells import column
from tablestream.operators.operator import NUMBER, PARENT
from tablestream.state.cache import NoCache
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace import Trace
from tests.cdc.operators import Shard

Rows = dict[int, int]
KEYS, VALUE = pl.Schema({"_k0": pl.Int64()}), pl.Struct({"c0": pl.Int64()})
TABLE = CapturedTable(KEYS, VALUE, ("n",), follows_moves=False, truncates="drop", commits=True)
#: A change: version, rank (0: what the version found), key, value.
Change = tuple[int, int, int, int]


class Feed:
    """A table that follows a change feed, and may check its preimages."""

    def __init__(self, *, checks: bool = False) -> None:
        self.shard = Shard(TABLE)
        self.rows: Rows = {}
        self.checks = checks

    def run(self, changes: list[Change], *, inserts: bool = False) -> list[tuple[int, int | None]]:
        """Process a micro-batch; return the changes of the table."""
        ordered = sorted(changes)
        if self.checks:
            preimages = [(version, -1, key, value) for version, rank, key, value in changes if rank == 0]
            ordered = sorted([*changes, *preimages])
        messages = [self._message(number, *one) for number, one in enumerate(ordered, start=1)]
        for one in messages if inserts else ():
            one[CAPTURE] |= {"number": 0} if one[LIVE] else {}  # type: ignore[operator]
        capture = {SEQ: pl.Int64(), STEP: pl.Int64(), **TABLE.inputs[0]}
        control = {SEQ: pl.Int64(), STEP: pl.Int64(), **TABLE.inputs[1]}
        inputs = [pl.DataFrame(messages, schema=capture), pl.DataFrame(schema=control)]
        (found,) = self.shard.run(inputs, Counter(), (0, 1))
        found = found.sort(PARENT, NUMBER)
        emitted = []
        for key, live, value in found.select("_k0", LIVE, "v").iter_rows():
            emitted.append((key, value["c0"] if live else None))
            if live:
                self.rows[key] = value["c0"]
            else:
                del self.rows[key]
        return emitted

    def _message(self, number: int, version: int, rank: int, key: int, value: int) -> dict[str, object]:
        position = f"{version:020d}:{0:020d}"
        said = dict.fromkeys(FIELDS) | {
            "op": (DELETE, UPSERT, PREIMAGE)[rank],
            "position": position,
            "partition": 0,
        }
        row = {"c0": value} if rank else None
        return {
            SEQ: number,
            STEP: number,
            KEY_HASH: key,
            "_k0": key,
            TS: version,
            LIVE: bool(rank),
            CAPTURE: said,
            "v": row,
        }


def changes_between(version: int, before: Rows, after: Rows, touched: frozenset[int]) -> list[Change]:
    """What a feed has of a version; rows that were only touched were deleted and inserted."""
    differ = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} | touched
    gone = [(version, 0, key, before[key]) for key in differ if key in before]
    return gone + [(version, 1, key, after[key]) for key in differ if key in after]


def test_a_version_that_deletes_and_inserts_the_same_row_emits_nothing() -> None:
    feed = Feed()
    assert feed.run([(1, 1, 7, 70)]) == [(7, 70)]
    assert feed.run([(2, 1, 7, 70), (2, 0, 7, 70)]) == []


def test_an_update_is_one_change() -> None:
    feed = Feed()
    assert feed.run([(1, 1, 7, 70), (2, 0, 7, 70), (2, 1, 7, 71)]) == [(7, 70), (7, 71)]


def test_an_update_of_the_key_deletes_the_row_under_the_old_key() -> None:
    feed = Feed()
    feed.run([(1, 1, 7, 70)])
    feed.run([(2, 0, 7, 70), (2, 1, 8, 70)])
    assert feed.rows == {8: 70}


def test_a_version_that_comes_again_is_dropped() -> None:
    feed = Feed()
    feed.run([(1, 1, 7, 70), (2, 0, 7, 70)])
    assert feed.run([(1, 1, 7, 70)]) == []


def test_a_preimage_that_is_the_row_of_the_table_changes_nothing() -> None:
    feed = Feed(checks=True)
    feed.run([(1, 1, 7, 70)])
    # Stored, of the version before, and of a row that comes back.
    assert feed.run([(2, 0, 7, 70), (2, 1, 7, 71), (3, 0, 7, 71), (4, 1, 7, 72)]) == [
        (7, 71),
        (7, None),
        (7, 72),
    ]
    assert feed.run([(5, 0, 7, 72)]) == [(7, None)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [(2, 0, 7, 71), (2, 1, 7, 72)],
            r"Version 2 .* key 7, .*: n was 71 in the feed and is 70 in the table",
        ),
        ([(2, 0, 8, 70)], r"Version 2 .* key 8, .*: the table has no row with this key"),
        ([(2, 0, 7, 70), (3, 0, 7, 70)], r"Version 3 .* key 7, .*: the table has no row"),
        (
            [(2, 1, 7, 71), (3, 0, 7, 70), (3, 1, 7, 73)],
            "Version 3 .*: n was 70 in the feed and is 71 in the",
        ),
    ],
)
def test_a_preimage_that_is_not_the_row_of_the_table_is_an_error(changes: list[Change], message: str) -> None:
    feed = Feed(checks=True)
    feed.run([(1, 1, 7, 70), (1, 1, 6, 60)])
    with pytest.raises(CaptureError, match=message):
        feed.run(changes)


def test_of_several_wrong_preimages_the_first_is_named() -> None:
    for wrong, other in ((7, 3), (3, 7)):
        feed = Feed(checks=True)
        feed.run([(1, 1, 3, 30), (1, 1, 7, 70)])
        with pytest.raises(CaptureError, match=f"Version 2 .* key {wrong},"):
            feed.run([(2, 0, wrong, 1), (9, 0, other, 1)])


def table_of(rows: pl.DataFrame) -> Trace:
    """The remembered rows of a table."""
    keys, value = pl.Schema({"_k0": rows.schema["_k0"]}), rows.schema["v"]
    (spec, *_) = CapturedTable(keys, value, (), follows_moves=False).traces
    trace = ShardState(MemoryStore(), NoCache(), [spec], "").trace(spec.name)
    trace.insert(
        rows.select(
            rows[name] if name in rows.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in spec.schema.items()
        )
    )
    return trace


def test_the_message_names_only_columns_that_differ() -> None:
    keys, value = pl.Schema({"_k0": pl.Int64()}), pl.Struct({"c0": pl.Float64(), "c1": pl.String()})
    row = {SEQ: 1, KEY_HASH: 7, "_k0": 7, LIVE: True, CAPTURE: {"op": PREIMAGE, "position": "2:0"}}
    said = pl.Struct({"op": pl.String(), "position": pl.String()})
    schema = {SEQ: pl.Int64(), KEY_HASH: pl.Int64(), **keys, LIVE: pl.Boolean(), CAPTURE: said, "v": value}
    changes = pl.DataFrame([{**row, "v": {"c0": float("nan"), "c1": "b" * 200}}], schema=schema)
    stored = changes.with_columns(v=pl.struct(pl.lit(float("nan")).alias("c0"), pl.lit("a").alias("c1")))
    with pytest.raises(
        CaptureError, match=r"table: y was 'b{199}\.\.\. in the feed and is 'a' in the table\."
    ):
        check_preimages(changes, ["x", "y"], table_of(stored))
    assert check_preimages(stored, ["x", "y"], table_of(stored)).is_empty()


@pytest.mark.parametrize("time", [253402318799_000_000, AFTER_ALL, BEFORE_ALL])
def test_the_message_shows_times_beyond_the_years_of_python(time: int) -> None:
    kind = pl.Datetime("us", "UTC")
    said = pl.Struct({"op": pl.String(), "position": pl.String()})
    times = column([time], kind)
    changes = pl.DataFrame({SEQ: [1], KEY_HASH: [7], "_k0": times, LIVE: [True]}).with_columns(
        pl.lit({"op": PREIMAGE, "position": "2:0"}, said).alias(CAPTURE),
        pl.struct(times.alias("c0")).alias("v"),
    )
    stored = changes.with_columns(v=pl.struct(pl.lit(0).cast(kind).alias("c0")))
    with pytest.raises(CaptureError, match=rf"the key {time}, .*: at was {time} in the feed and is 0 in"):
        check_preimages(changes, ["at"], table_of(stored))


def test_the_last_version_again_is_an_error_with_the_check_and_nothing_without() -> None:
    last = [(2, 0, 7, 70), (2, 1, 7, 71)]
    for checks in (False, True):
        feed = Feed(checks=checks)
        feed.run([(1, 1, 7, 70), *last])
        if not checks:
            assert feed.run(last) == []
            continue
        with pytest.raises(CaptureError, match="Version 2"):
            feed.run(last)


def test_the_preimages_of_a_version_that_comes_again_are_not_checked() -> None:
    feed = Feed(checks=True)
    feed.run([(1, 1, 7, 70), (2, 0, 7, 70), (2, 1, 7, 71), (3, 0, 7, 71)])
    assert feed.run([(2, 0, 7, 70), (2, 1, 7, 71)]) == []


@pytest.mark.parametrize(
    "runs",
    [
        [[(1, 1, 7, 70), (1, 1, 7, 71)]],
        [[(1, 1, 7, 70), (2, 1, 7, 71)]],
        [[(1, 1, 7, 70)], [(2, 1, 7, 70)]],
        [[(1, 1, 7, 70), (1, 1, 8, 70)], [(2, 0, 7, 70), (2, 0, 7, 71)]],
    ],
)
def test_two_rows_with_one_key_end_the_query(runs: list[list[Change]]) -> None:
    """In one version or in two, also with equal values. A delete of one of them would delete the key."""
    feed, *before, last = Feed(), *runs
    for changes in before:
        feed.run(changes, inserts=True)
    with pytest.raises(CaptureError, match="several rows with the key 7 in version"):
        feed.run(last, inserts=True)


def test_an_insert_is_no_second_row_where_the_first_went_or_the_version_comes_again() -> None:
    feed = Feed()
    feed.run([(1, 1, 7, 70)], inserts=True)
    assert feed.run([(1, 1, 7, 70)], inserts=True) == []
    feed.run([(2, 0, 7, 70), (2, 1, 7, 71)], inserts=True)
    feed.run([(3, 0, 7, 71), (4, 1, 7, 72)], inserts=True)
    assert feed.rows == {7: 72}


_TABLES = st.dictionaries(st.integers(0, 4), st.integers(0, 2))


@given(
    st.lists(st.tuples(_TABLES, st.frozensets(st.integers(0, 4))), min_size=1, max_size=8),
    st.integers(0, 99),
    st.booleans(),
)
def test_the_table_is_that_of_each_version(
    versions: list[tuple[Rows, frozenset[int]]], seed: int, checks: bool
) -> None:
    feed, order, before, waiting = Feed(checks=checks), random.Random(seed), dict[int, int](), list[Change]()
    for number, (after, touched) in enumerate(versions, start=1):
        waiting += changes_between(number, before, after, touched)
        before = after
        if order.random() < 0.6 or number == len(versions):
            order.shuffle(waiting)
            feed.run(waiting)
            waiting = []
            assert feed.rows == after
