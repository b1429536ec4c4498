"""The timeline of a key: which changes it shows, from every kind of rows, and what it says of bad input."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy import asarray
from pyspark.sql import Row

import tablestream as ts
from tablestream.base.extras import install_hint
from tablestream.errors import ArgumentError

pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import is_math_text
from matplotlib.dates import num2date
from matplotlib.patches import Rectangle

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession

Bar = tuple[int, int, int]
END = 99


def change(
    order: int, minute: int, price: float | None, *, key: int = 1, latest: bool | None = True, kind: str = ""
) -> dict[str, Any]:
    """A change as a sink keeps it; the order has the number of the micro-batch first."""
    found = {
        "id": key,
        "price": price,
        "currency": "EUR",
        "_change_type": kind or ("delete" if price is None else "upsert"),
        "_timestamp": datetime(2024, 1, 2, 9, minute),
        "_is_latest": latest,
        "_order": {"micro_batch": order // 10, "partition": "a" if order > 20 else None, "position": order},
        "micro_batch": order // 10,
    }
    if latest is None:
        found.pop("_is_latest")
    return found


#: Two versions, a late one between them in the next micro-batch, and a delete. The first row belongs to another key.
CHANGES = [
    change(1, 7, 99.0, key=2),
    change(12, 10, 11.0),
    change(2, 0, 10.5),
    change(20, 4, 10.75, latest=False),
    change(21, 20, None),
]


def rows(given: list[dict[str, Any]]) -> list[Row]:
    return [
        Row(**{name: Row(**one) if isinstance(one, dict) else one for name, one in row.items()})
        for row in given
    ]


KINDS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "Polars": pl.DataFrame,
    "Arrow": pa.Table.from_pylist,
    "rows": rows,
}


def axes_of(shown: ts.Timeline) -> Axes:
    (axes,) = shown.figure.axes
    return axes


def minute(place: float) -> int:
    """The minutes from nine o'clock to a place on the axis of times."""
    time: datetime = num2date(place)  # type: ignore[no-untyped-call]
    return round((time.replace(tzinfo=None) - datetime(2024, 1, 2, 9)).total_seconds() / 60)


def bars(shown: ts.Timeline, *, written: bool) -> list[Bar]:
    """The bars of written values, or of those that still hold: their line, and the minutes of their ends."""
    axes = axes_of(shown)
    end = axes.get_xlim()[1]
    found = [one for one in axes.patches if isinstance(one, Rectangle)]
    return sorted(
        (
            round(one.get_y() + one.get_height() / 2),
            minute(one.get_x()),
            END if one.get_x() + one.get_width() >= end - 1e-9 else minute(one.get_x() + one.get_width()),
        )
        for one in found
        if (one.get_alpha() != 0.3) is written
    )


def labels(shown: ts.Timeline) -> list[str]:
    return [one.get_text() for one in axes_of(shown).get_yticklabels()]


@pytest.mark.parametrize("kind", KINDS)
def test_corrections_are_visible(kind: str) -> None:
    shown = ts.timeline(KINDS[kind](CHANGES), key={"id": 1}, value="price")
    assert labels(shown) == ["0: 10.5", "1: 11.0", "2: 10.75", "3: deleted"]
    assert bars(shown, written=True) == [(0, 0, END), (1, 10, END), (2, 4, 10), (3, 20, END)]
    assert bars(shown, written=False) == [
        (1, 0, 10),
        (2, 0, 4),
        (2, 10, END),
        (3, 0, 4),
        (3, 4, 10),
        (3, 10, 20),
    ]
    axes = axes_of(shown)
    assert axes.get_title(loc="left") == "id = 1: 4 changes, 1 correction"
    points = [(asarray(one.get_ydata()), one.get_marker()) for one in axes.lines]
    marks = {round(float(at[0])): shape for at, shape in points if shape != "None"}
    assert marks == {0: "o", 1: "o", 2: "D", 3: "o"}
    assert [one.get_text() for one in axes.texts] == ["micro-batch 0", "micro-batch 1", "micro-batch 2"]


def test_a_value_has_one_colour_wherever_it_is() -> None:
    axes = axes_of(ts.timeline(pl.DataFrame(CHANGES), key={"id": 1}, value="price"))
    colours: dict[int, set[Any]] = {}
    for one in axes.patches:
        if isinstance(one, Rectangle) and one.get_alpha() is not None:
            colours.setdefault(minute(one.get_x()), set()).add(one.get_facecolor()[:3])
    assert {at: len(one) for at, one in colours.items()} == {0: 1, 4: 1, 10: 1}
    assert len({next(iter(one)) for one in colours.values()}) == 3


def test_a_late_row_of_a_table_without_versions_holds_from_its_time_on() -> None:
    late = [change(1, 10, 1.0, latest=None), change(2, 5, 2.0, latest=None)]
    shown = ts.timeline(pd.DataFrame(late), key={"id": 1})
    assert labels(shown) == ["0: price=1.0, currency=EUR", "1: price=2.0, currency=EUR"]
    assert bars(shown, written=True) == [(0, 10, END), (1, 5, END)]
    assert bars(shown, written=False) == []


def test_a_column_whose_name_has_an_equals_sign_is_shown_as_any_other() -> None:
    prices = pl.DataFrame([change(1, 0, 1.5, latest=None), change(2, 1, None, latest=None)]).rename(
        {"price": "a=b"}
    )
    assert labels(ts.timeline(prices, key={"id": 1}, value="a=b")) == ["0: 1.5", "1: deleted"]
    assert labels(ts.timeline(prices, key={"id": 1}))[0] == "0: a=b=1.5, currency=EUR"


def test_rows_before_a_change_are_not_changes() -> None:
    images = [
        change(1, 0, 1.0, latest=None, kind="insert"),
        change(2, 1, 1.0, latest=None, kind="update_preimage"),
        change(3, 1, 2.0, latest=None, kind="update_postimage"),
        change(4, 2, 2.0, latest=None, kind="delete"),
    ]
    shown = ts.timeline(pa.Table.from_pylist(images), key={"id": 1}, value=["price"])
    assert labels(shown) == ["0: 1.0", "1: 2.0", "2: deleted"]


def test_the_last_changes_are_shown_with_what_earlier_ones_said() -> None:
    shown = ts.timeline(pl.DataFrame(CHANGES), key={"id": 1}, value="price", last=2)
    assert labels(shown) == ["2: 10.75", "3: deleted"]
    assert bars(shown, written=False)[0] == (2, 0, 4)
    assert axes_of(shown).get_title(loc="left") == "id = 1: 4 changes, 1 correction"


def test_no_text_is_cut_or_over_another() -> None:
    long = [change(at, at, at / 3) | {"currency": "a $long$ value_{x} " * at} for at in range(1, 30)]
    shown = ts.timeline(pd.DataFrame(long), key={"id": 1})
    canvas = FigureCanvasAgg(shown.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    axes, page = axes_of(shown), shown.figure.bbox
    texts = [*axes.get_yticklabels(), *axes.texts, axes.xaxis.label, axes.yaxis.label]
    areas = [one.get_window_extent() for one in texts if one.get_text()]
    assert len(areas) == 29 + 3 + 2
    assert [
        one for one in areas if one.x0 < page.x0 or one.x1 > page.x1 or one.y0 < page.y0 or one.y1 > page.y1
    ] == []
    assert [
        (one, other) for at, one in enumerate(areas) for other in areas[at + 1 :] if one.overlaps(other)
    ] == []


def test_a_row_too_long_for_its_line_shows_what_changed() -> None:
    given = [change(at, at, price, latest=None) for at, price in enumerate([1.0, 2.0, 2.0])]
    shown = ts.timeline(pd.DataFrame([one | {"currency": "EUR" * 10} for one in given]), key={"id": 1})
    whole = f"price=1.0, currency={'EUR' * 10}"[:39]
    assert labels(shown)[:2] == [f"0: {whole}…", "1: price=2.0"]
    assert labels(shown)[2] == f"2: {whole.replace('1.0', '2.0')}…"


def test_a_log_of_json_is_read_with_its_types_first() -> None:
    given = pd.DataFrame([change(1, 1, 1.0, latest=None) | {"_timestamp": "2024-01-02T09:00:00.000000Z"}])
    with pytest.raises(ArgumentError, match=r"The column _timestamp has texts.*spark.read.schema"):
        ts.timeline(given, key={"id": 1})


def test_dollar_signs_are_no_mathematics() -> None:
    prices = [change(at, at, 1.0, latest=None) | {"id": "$x$", "currency": "$y$"} for at in (1, 2)]
    shown = ts.timeline(pl.DataFrame(prices), key={"id": "$x$"}, value="currency")
    texts = [axes_of(shown).get_title(loc="left"), *labels(shown)]
    assert texts == [r"id = \$x\$: 2 changes, 0 corrections", r"0: \$y\$", r"1: \$y\$"]
    assert not any(map(is_math_text, texts))


def test_changes_go_from_above_to_below() -> None:
    lower, upper = axes_of(ts.timeline(pl.DataFrame(CHANGES), key={"id": 1})).get_ylim()
    assert (lower > 3, upper < 0) == (True, True)


def test_a_notebook_shows_it_and_it_is_saved(tmp_path: Path) -> None:
    shown = ts.timeline(pl.DataFrame(CHANGES), key={"id": 1})
    assert shown._repr_png_().startswith(b"\x89PNG")
    shown.save(tmp_path / "one.svg")
    assert "<svg" in (tmp_path / "one.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (CHANGES, {"key": {"id": 7}}, "no change of the key {'id': 7}"),
        ([], {"key": {"id": 1}}, "have no column id"),
        (CHANGES, {"key": 1}, "key=1 is no key"),
        (CHANGES, {"key": {}}, "key={} is no key"),
        (CHANGES, {"key": {"ident": 1}}, "have no column ident; they have id, price"),
        (CHANGES, {"key": {"id": 1}, "value": "cost"}, "have no column cost"),
        (CHANGES, {"key": {"id": 1}, "last": 0}, "last=0 is no number"),
    ],
)
def test_bad_input_is_refused(changes: list[dict[str, Any]], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refused:
        ts.timeline(rows(changes), **options)
    assert refused.value.where.startswith("test_timeline.py")


def test_what_has_no_rows_is_refused() -> None:
    with pytest.raises(ArgumentError, match="A dict has no changes"):
        ts.timeline({"id": 1}, key={"id": 1})


def test_without_matplotlib_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tablestream.pictures.plot", raising=False)
    for name in [one for one in sys.modules if one.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArgumentError, match="needs Matplotlib") as refused:
        ts.timeline(pl.DataFrame(CHANGES), key={"id": 1})
    assert refused.value.hint == install_hint("plot")


def test_changes_that_spark_reads(spark: SparkSession) -> None:
    fields = (
        "id int, price double, currency string, _change_type string, _timestamp timestamp, _is_latest boolean"
    )
    order = "struct<micro_batch: bigint, partition: string, position: bigint>"
    frame = spark.createDataFrame(rows(CHANGES), f"{fields}, _order {order}, micro_batch bigint")
    shown = ts.timeline(frame, key={"id": 1}, value="price")
    assert labels(shown) == ["0: 10.5", "1: 11.0", "2: 10.75", "3: deleted"]
    assert bars(shown, written=True) == [(0, 0, END), (1, 10, END), (2, 4, 10), (3, 20, END)]
    with pytest.raises(ArgumentError, match="streaming DataFrame has no rows"):
        ts.timeline(spark.readStream.format("rate").load(), key={"id": 1})


def test_late_versions_of_a_driver_are_corrections(spark: SparkSession) -> None:
    frame = ts.testing.frame(spark, "id int, price double, at timestamp")
    prices = ts.table(frame, "id", timestamp="at", columns="price", history="1 hour", name="prices")
    driver = ts.testing.Driver(prices)
    times = {10.5: "09:00", 11.0: "09:10", 10.75: "09:04"}
    for price, time in times.items():
        driver.pipe("prices", [{"id": 1, "price": price, "at": f"2024-01-02 {time}:00"}])
        driver.run()
    shown = ts.timeline(driver.changes(), key={"id": 1})
    assert labels(shown) == ["0: 10.5", "1: 11.0", "2: 10.75"]
    assert bars(shown, written=True) == [(0, 0, END), (1, 10, END), (2, 4, 10)]
