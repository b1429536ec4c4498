"""What a run says about micro-batches: a line, without colours; on a terminal one line that is updated."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa
import pytest

from tablestream.cli.display import console, print_rows
from tablestream.cli.progress import MicroBatch
from tablestream.cli.screen import JsonScreen, TextScreen
from tablestream.cli.sinks import ScreenSink
from tablestream.errors import PlanError
from tablestream.metrics.query_metrics import OperatorMetrics, QueryMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS: dict[str, Any] = {"batchId": 7, "batchDuration": 2000, "numInputRows": 30}


class Progress:
    """Spark's progress of a micro-batch."""

    batchId, batchDuration, numInputRows = 7, 2000, 30  # noqa: N815 - Spark's names

    def __init__(self, *sources: dict[str, str]) -> None:
        self.sources = [type("Source", (), {"metrics": one}) for one in sources]


def metrics(*sizes: tuple[int | None, int | None]) -> QueryMetrics:
    operators = {str(n): OperatorMetrics(1, 1, rows, size, 0, 0, 0) for n, (rows, size) in enumerate(sizes)}
    dropped = {("orders", "null-key"): 2, ("orders", "malformed"): 0}
    return QueryMetrics(None, "q", "r", 7, "", 2000, 30, 12, dropped, operators)


def of(progress: Progress, found: QueryMetrics | None) -> MicroBatch:
    return MicroBatch.of(progress, found)  # type: ignore[arg-type]


def test_a_line_has_what_is_known() -> None:
    assert str(of(Progress(), metrics((3, 1000), (4, 500)))) == (
        "batch 7: in 30 (15/s), out 12 (6.0/s), 2.0 s, state 7 rows 1.5 kB, dropped 2"
    )
    assert str(of(Progress(), metrics((3, 1000), (None, None)))) == (
        "batch 7: in 30 (15/s), out 12 (6.0/s), 2.0 s, dropped 2"
    )
    assert str(of(Progress({}, {"maxOffsetsBehindLatest": "9"}, {"maxOffsetsBehindLatest": "40"}), None)) == (
        "batch 7: in 30 (15/s), 2.0 s, behind 40"
    )
    assert str(MicroBatch(7, 2.0, 30, state_rows=1, state_bytes=999_960)) == (
        "batch 7: in 30 (15/s), 2.0 s, state 1 rows 1.0 MB"
    )


def test_a_usual_line_fits_80_columns_and_one_of_large_figures_120() -> None:
    largest = MicroBatch(
        99_999, 1.0, 9_999_999, 99_999_999, {"t": 99_999}, 999_999_999, 999_999_999_999, 99_999_999
    )
    assert len(str(largest)) <= 120
    usual = MicroBatch(12, 3.2, 1_234_567, 1_234_567, {}, 12_345_678, 1_234_567_890)
    assert len(str(usual)) <= 80


def test_programs_get_the_exact_figures() -> None:
    assert of(Progress(), metrics((3, 1000))).as_json() == {
        "event": "micro_batch",
        "micro_batch": 7,
        "duration_s": 2.0,
        "records_in": 30,
        "records_per_s": 15.0,
        "changes_out": 12,
        "changes_per_s": 6.0,
        "dropped": {"orders: null-key": 2},
        "state_rows": 3,
        "state_bytes": 1000,
        "behind": None,
    }


def not_called() -> Any:
    pytest.fail("A screen read what it does not show.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_each_micro_batch_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TextScreen()
    screen.micro_batch(MicroBatch(0, 1.0, 5))
    screen.micro_batch(MicroBatch(1, 1.0, 6))
    screen.close()
    said = capsys.readouterr()
    assert said.err == "batch 0: in 5 (5.0/s), 1.0 s\nbatch 1: in 6 (6.0/s), 1.0 s\n"
    assert said.out == ""


def test_on_a_terminal_one_line_is_updated_below_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = TextScreen()
    screen.micro_batch(MicroBatch(0, 1.0, 5))
    screen.changes("two rows", lambda: pl.DataFrame({"id": [1, 2]}), not_called)
    screen.micro_batch(MicroBatch(1, 1.0, 6))
    screen.close()
    first, second = "batch 0: in 5 (5.0/", "batch 1: in 6 (6.0/"
    erase = "\r\x1b[2K"
    assert err.getvalue() == f"{erase}{first}{erase}{erase}{first}{erase}{second}\n"
    assert "two rows" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_json_lines_are_all_that_programs_get(capsys: pytest.CaptureFixture[str]) -> None:
    screen = JsonScreen()
    screen.say("Hello.", {"event": "started"})
    screen.micro_batch(MicroBatch(0, 1.0, 5))
    screen.changes("rows", not_called, lambda: ['{"event": "change"}'])
    said = capsys.readouterr()
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == [
        "started", "micro_batch", "change",
    ]  # fmt: skip
    assert said.err == ""


def test_changes_are_not_shown_on_the_console_of_a_server_of_spark_connect() -> None:
    sink = ScreenSink(screen=JsonScreen(), limit=None)
    with pytest.raises(PlanError, match="under Spark Connect: the server would show them"):
        sink.check(cast("SparkSession", object()), ())  # it has no SparkContext


def shown(rows: pl.DataFrame) -> str:
    out = io.StringIO()
    print_rows(console(out), "title", rows)
    return out.getvalue()


def test_rows_are_a_table_where_it_fits_80_columns_and_one_column_a_line_elsewhere() -> None:
    narrow = shown(pl.DataFrame({"id": [1], "name": [None]}))
    assert "│ id │ name │" in narrow or "┃ id ┃ name ┃" in narrow
    wide = shown(pl.DataFrame({"id": [1], "a": ["x" * 40], "long name": ["y" * 40]}))
    assert wide == f"title\nrow 1\n  id         1\n  a          {'x' * 40}\n  long name  {'y' * 40}\n"
    for text in (narrow, wide):
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text


def test_control_characters_reach_the_terminal_only_in_shown_form(capsys: pytest.CaptureFixture[str]) -> None:
    attack = "\x1b]0;x\x07\x9b2J\n"
    rows = pl.DataFrame({"n\x1bame": [attack], "nested": [{"k\x1bey": [attack]}]})
    for text in (shown(rows), shown(rows.select(pl.all(), wide=pl.lit("x" * 80)))):
        assert r"\x1b]0;x\x07\x9b2J\n" in text
        assert not set("\x1b\x07\x9b") & set(text)
    TextScreen().say(f"Warning: {attack}", {})
    assert capsys.readouterr().err == "Warning: \\x1b]0;x\\x07\\x9b2J\n\n"


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([253402318799_000_000], pa.timestamp("us", "America/New_York"), "9999-12-31 23:59:59"),
        ([9223372036825200000], pa.timestamp("us", "Asia/Tokyo"), "+294247-01-10 13:00:25.200000"),
        ([-62135596800_000_001], pa.timestamp("us", "UTC"), "0000-12-31 23:59:59.999999"),
        ([253402300800_000_000], pa.timestamp("us"), "+10000-01-01 00:00:00"),
        ([1720000000_500_000], pa.timestamp("us", "America/New_York"), "2024-07-03 05:46:40.500000"),
        ([2**31 - 1], pa.date32(), "+5881580-07-11"),
        ([19782], pa.date32(), "2024-02-29"),
        ([[2932897, None]], pa.list_(pa.date32()), "[+10000-01-01, None]"),
        ([[({"a": 1}, "x")]], pa.map_(pa.struct({"a": pa.int32()}), pa.string()), "{{'a': 1}: 'x'}"),
        ([[([1], 2.5)]], pa.map_(pa.list_(pa.int32()), pa.float64()), "{[1]: 2.5}"),
        ([{"k": "v", "n": None}], pa.struct({"k": pa.string(), "n": pa.int32()}), "{'k': 'v', 'n': None}"),
    ],
)
def test_every_value_is_shown_also_where_python_has_none(
    values: list[Any], kind: pa.DataType, text: str
) -> None:
    rows = pl.from_arrow(pa.table({"v": pa.array(values, kind)}))
    assert isinstance(rows, pl.DataFrame)
    assert text in shown(rows)


def test_names_of_columns_are_no_markup() -> None:
    rows = pl.DataFrame({"price[usd]": [1], "a[/b]": [2], "x:smile:": [3]})
    assert all(name in shown(rows) for name in rows.columns)
