"""Window functions of rows that are sorted, without a plan around them."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from tablestream.errors import TotalOverflowError
from tablestream.operators.reduce import frame_aggregates
from tablestream.operators.reduce.accumulated import Accumulated
from tablestream.operators.reduce.aggregate import AnyFunction
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.frame_aggregates import OfFrame
from tablestream.operators.reduce.frames import Frame, Frames, Use
from tablestream.operators.reduce.powers import Variance
from tablestream.operators.reduce.ranked_counts import Percentile

LARGEST = 2**63 - 1


def told(function: str, values: list[Any], peers: list[int], *, by_rows: bool = False) -> list[Any]:
    """What the rows of one partition are told; `peers`: a number that peers share."""
    return seen(Use(function, "c0", name="total"), values, Frame(by_rows=by_rows), peers)


def seen(
    use: Use | OfFrame,
    values: list[Any],
    frame: Frame,
    order: list[Any],
    *,
    starts: tuple[int, ...] = (0,),
    down: bool = False,
) -> list[Any]:
    """What rows are told over a frame; they are sorted by `order`, and partitions start at `starts`."""
    rows = pl.DataFrame({"c0": pl.Series(values), "by": pl.Series(order)}).to_struct("v")
    places = np.arange(len(values))
    peers = np.cumsum([not number or order[number - 1] != one for number, one in enumerate(order)])
    frames = Frames(rows, places, np.isin(places, starts), peers, frame, (("by", down),))
    return use.of(frames).to_list()


def test_a_frame_ends_at_the_last_peer_or_at_the_row() -> None:
    assert told("sum", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 6, 6, 6]
    assert told("sum", [1, 2, 3, None], [0, 1, 1, 2], by_rows=True) == [1, 3, 6, 6]
    assert told("last_value", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 3, 3, None]
    assert told("rank", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 2, 2, 4]
    assert told("dense_rank", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 2, 2, 3]


def test_nulls_do_not_count_and_nan_is_the_greatest() -> None:
    assert told("sum", [None, 1.5], [0, 1]) == [None, 1.5]
    assert told("count", [None, 1.5, None], [0, 1, 2]) == [0, 1, 1]
    assert told("min", [None, 3.0, float("nan"), 2.0], [0, 1, 2, 3]) == [None, 3.0, 3.0, 2.0]
    assert str(told("max", [1.0, float("nan"), 2.0], [0, 1, 2])) == "[1.0, nan, nan]"
    assert told("max", ["a", "\U0001f600", "\uff5e", None], [0, 1, 2, 3])[-1] == "\U0001f600"


def test_a_sum_beyond_64_bits_ends_the_query() -> None:
    assert told("sum", [LARGEST, -LARGEST, LARGEST], [0, 1, 2]) == [LARGEST, 0, LARGEST]
    with pytest.raises(TotalOverflowError, match="column 'total' does not fit bigint"):
        told("sum", [LARGEST, 1], [0, 1])
    assert (
        told("sum", [LARGEST, 1, -2], [0, 0, 0]) == [LARGEST - 1] * 3
    )  # nobody is told the sum of the first two
    with pytest.raises(TotalOverflowError):
        told("sum", [-LARGEST, -LARGEST, -LARGEST], [0, 1, 2])


FRAMES = [
    Frame(by_rows=by_rows, start=start, end=end)
    for by_rows in (True, False)
    for start in (None, -2, 0, 1)
    for end in (None, -1, 0, 2)
    if start is None or end is None or start <= end
]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_frames_see_what_is_not_further_from_the_row_than_their_bounds(frame: Frame, *, down: bool) -> None:
    values = [4, None, 1, 9, 9, None, -3, 2, 5]
    uses = {one: Use(one, "c0") for one in ("sum", "count", "avg", "min", "max", "first_value", "last_value")}
    uses["nth_value"] = Use("nth_value", "c0", offset=2, ignores_nulls=True)
    for order in (
        [None, 1, 2, 2, 5, None, 0, 1, 3],
        [None, 0.5, 0.5, 2.0, 2.5, -math.inf, 1.0, 1.0, math.nan],
    ):
        starts = (0, 5)
        given = order if not down else [*order[4::-1], *order[:4:-1]]
        parts = [range(5), range(5, 9)]
        frames = [
            [at for at in part if in_frame(frame, given, row, at, down=down)]
            for part in parts
            for row in part
        ]
        found = {
            name: seen(one, values, frame, given, starts=starts, down=down) for name, one in uses.items()
        }
        for row, shown in enumerate(frames):
            of = [values[at] for at in shown]
            known = [one for one in of if one is not None]
            wanted = {
                "sum": sum(known) if known else None,
                "count": len(known),
                "avg": sum(known) / len(known) if known else None,
                "min": min(known, default=None),
                "max": max(known, default=None),
                "first_value": next(iter(of), None),
                "last_value": next(reversed(of), None),
                "nth_value": known[1] if len(known) > 1 else None,
            }
            assert {name: one[row] for name, one in found.items()} == wanted, (frame, order, row)


@pytest.mark.parametrize("rows_at_once", [1, 3, 1000])
@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_declared_aggregates_are_those_of_the_rows_of_the_frame(
    frame: Frame, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_aggregates, "FRAME_ROWS", rows_at_once)
    values, order, starts = [4, None, 1, 9, 9, None, -3, 2, 5], [1, 2, 2, 4, 5, 0, 1, 1, 3], (0, 5)
    kind = pl.Int64()
    every = Collected(Kind.COLLECT_LIST, "c0", pl.List(kind))
    different = Collected(Kind.COUNT_DISTINCT, "c0", kind)
    functions: dict[str, AnyFunction] = {
        "every": Accumulated(every, kind),
        "different": Accumulated(different, kind),
        "middle": Percentile("c0", kind, 0.5),
        "variance": Variance("c0", kind, population=True, root=False),
    }
    found = {
        name: seen(OfFrame(one, ("c0",)), values, frame, order, starts=starts)
        for name, one in functions.items()
    }
    parts = [range(5), range(5, 9)]
    for part in parts:
        for row in part:
            of = [values[at] for at in part if in_frame(frame, order, row, at, down=False)]
            known = [one for one in of if one is not None]
            assert {name: one[row] for name, one in found.items()} == {
                "every": known,
                "different": len(set(known)),
                "middle": statistics.median(known) if known else None,
                "variance": pytest.approx(statistics.pvariance(known)) if known else None,
            }, (frame, row)


def test_there_are_aggregates_of_no_rows() -> None:
    none = OfFrame(Percentile("c0", pl.Int64(), 0.5), ("c0",))
    assert seen(none, [], Frame(), []) == []


def in_frame(frame: Frame, order: list[Any], row: int, at: int, *, down: bool) -> bool:
    """Whether another row of the partition is in a row's frame."""
    here, there = ((-one if down and one is not None else one) for one in (order[row], order[at]))

    def reaches(bound: float | None, sign: int) -> bool:
        if bound is None:
            return True
        if frame.by_rows:
            return sign * at >= sign * (row + bound)
        if is_special(here) or is_special(there):
            return str(here) == str(there) or sign * at > sign * row
        return bool(sign * there >= sign * (here + bound))

    return reaches(frame.start, 1) and reaches(frame.end, -1)


def is_special(value: float | None) -> bool:
    return value is None or math.isnan(value)


def test_distances_at_the_bounds_of_64_bits_are_no_others() -> None:
    order = [-LARGEST - 1, -LARGEST, 0, LARGEST - 1, LARGEST]
    count = Use("count", "c0")
    assert seen(count, order, Frame(start=-1, end=1), order) == [2, 2, 1, 2, 2]
    assert seen(count, order, Frame(start=-1, end=1), order[::-1], down=True) == [2, 2, 1, 2, 2]
    assert seen(count, order, Frame(start=-LARGEST - 1, end=0), order) == [1, 2, 3, 2, 3]


def test_sums_of_a_frame_have_no_residue_and_fit_though_those_of_the_partition_do_not() -> None:
    rows = Frame(by_rows=True, start=-1, end=0)
    order = list(range(4))
    assert seen(Use("sum", "c0"), [1e300, 1.5, math.inf, 0.25], rows, order)[1:] == [
        1e300,
        math.inf,
        math.inf,
    ]
    assert seen(Use("sum", "c0"), [math.nan, 1.5, 0.25, 0.1], rows, order)[2:] == [1.75, 0.35]
    assert seen(Use("sum", "c0"), [LARGEST, 0, LARGEST, -1], rows, order) == [
        LARGEST,
        LARGEST,
        LARGEST,
        LARGEST - 1,
    ]
    nines = [Decimal("9" * 38), Decimal(0), Decimal("9" * 38), Decimal(-1)]
    assert seen(Use("sum", "c0"), nines, rows, order) == [
        nines[0],
        nines[0],
        nines[0],
        Decimal("9" * 37 + "8"),
    ]
    for sums in (nines[:1] * 2, nines[:1] * 4):
        with pytest.raises(TotalOverflowError, match=r"does not fit decimal\(38\)"):
            seen(Use("sum", "c0"), sums, Frame(), [0] * len(sums))
    thirds = [Decimal("0.01"), None, Decimal("0.01"), Decimal("0.00")]
    assert seen(Use("avg", "c0"), thirds, Frame(end=None), order) == [Decimal("0.006667")] * 4


def test_ranks_as_shares_and_parts() -> None:
    order, starts = [1, 2, 2, 3, 9, 9, 9], (0, 4)
    shares = [seen(Use(one), order, Frame(), order, starts=starts) for one in ("percent_rank", "cume_dist")]
    assert shares == [[0, 1 / 3, 1 / 3, 1, 0, 0, 0], [0.25, 0.75, 0.75, 1, 1, 1, 1]]
    for parts, wanted in {
        1: [1] * 7,
        2: [1, 1, 2, 2, 1, 1, 2],
        3: [1, 1, 2, 3, 1, 2, 3],
        9: [1, 2, 3, 4, 1, 2, 3],
    }.items():
        assert seen(Use("ntile", offset=parts), order, Frame(), order, starts=starts) == wanted


def test_rows_whose_value_is_null_are_passed_over() -> None:
    values, order = [None, 1, None, 2, None, 3], list(range(6))
    found = {
        name: seen(
            Use(name, "c0", offset=2 if name == "nth_value" else 1, ignores_nulls=True),
            values,
            Frame(),
            order,
        )
        for name in ("lag", "lead", "first_value", "last_value", "nth_value")
    }
    assert found == {
        "lag": [None, None, 1, 1, 2, 2],
        "lead": [1, 2, 2, 3, 3, None],
        "first_value": [None, 1, 1, 1, 1, 1],
        "last_value": [None, 1, 1, 2, 2, 3],
        "nth_value": [None, None, None, 2, 2, 2],
    }


def test_bounds_beyond_all_rows_and_distances_of_short_floats() -> None:
    every = Frame(by_rows=True, start=0, end=LARGEST)  # Spark's unboundedFollowing
    assert seen(Use("count", "c0"), [1, 2, 3], every, [0, 1, 2]) == [3, 2, 1]
    tenths = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    near = Frame(start=-0.1, end=0)
    given = pl.Series("by", tenths)
    rows = pl.DataFrame({"c0": [1, 2, 3, 4], "by": given}).to_struct("v")
    places = np.arange(4)
    frames = Frames(rows, places, places == 0, places, near, (("by", False),))
    assert Use("count", "c0").of(frames).to_list() == [1, 2, 1, 2]  # as in DuckDB: 0.3 - 0.1 is more than 0.2


def test_no_row_before_is_the_row_itself_also_where_nulls_are_passed_over() -> None:
    for function in ("lag", "lead"):
        use = Use(function, "c0", offset=0, ignores_nulls=True)
        assert seen(use, [1, None, 3], Frame(), [0, 1, 2]) == [1, None, 3]


def test_a_mean_that_does_not_fit_its_type_ends_the_query() -> None:
    with pytest.raises(TotalOverflowError, match=r"does not fit decimal\(38,14\)"):
        told("avg", [Decimal("9" * 25 + ".0000000001")], [0])
