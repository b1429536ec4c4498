"""A demo without the engine: its directory, its verdict, and what it does when it is stopped."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest
from pyspark.sql import Row

from examples.demo import run as module
from examples.demo.compare import Comparison
from examples.demo.display import JsonDisplay, TextDisplay
from examples.demo.flights_join import FLIGHTS_JOIN, joined_by_polars
from examples.demo.holdings_list import HOLDINGS_LIST, mailing_list_by_polars
from examples.demo.run import DemoOptions, prepare, run_demo, run_demos
from examples.demo.verdict import Check, Verdict
from examples.demo.weather_join import WEATHER_JOIN, joined_by_duckdb
from tablestream.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.demo.scenario import Scenario
    from tablestream.tables import Table

NO_SPARK = cast("SparkSession", object())


class StoppableQuery:
    """A query that has run already, or is interrupted at the first look."""

    def __init__(self, progress: list[dict[str, Any]], *, interrupted: bool = False) -> None:
        self.recentProgress, self.stopped, self._interrupted = progress, False, interrupted

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        if self._interrupted:
            raise KeyboardInterrupt
        return False

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        return

    def stop(self) -> None:
        self.stopped = True


Spoil = Callable[[pl.DataFrame], pl.DataFrame]

FLIGHTS = replace(FLIGHTS_JOIN, outputs=lambda *_: {"flights": cast("Table", None)})
HOLDINGS = replace(
    HOLDINGS_LIST, outputs=lambda *_: dict.fromkeys(("distributed", "global"), cast("Table", None))
)


WEATHER = replace(WEATHER_JOIN, outputs=lambda *_: {"weather": cast("Table", None)})
LATE = "departures_with_weather: late"


def as_it_is(table: pl.DataFrame) -> pl.DataFrame:
    return table


def engine(
    monkeypatch: pytest.MonkeyPatch,
    options: DemoOptions,
    spoil: Spoil | dict[str, Spoil] = as_it_is,
    *,
    batch: Callable[[Path], pl.DataFrame] = joined_by_polars,
    interrupted: bool = False,
    observed: dict[str, int] | None = None,
) -> StoppableQuery:
    """Put a batch computation in the place of the engine: it writes all rows as one micro-batch.

    `spoil` changes the rows of all outputs, or those of some, by their names.
    """
    metrics = {"tablestream": Row(**observed)} if observed else {}
    progress = {"batchId": 0, "numInputRows": 9, "batchDuration": 1000, "observedMetrics": metrics}
    query = StoppableQuery([progress], interrupted=interrupted)

    def start(outputs: dict[str, object], changes: Path, checkpoint: Path, *, name: str) -> StoppableQuery:
        assert name in {"flights", "holdings", "weather"}
        checkpoint.mkdir()
        for output in outputs:
            rows = (spoil.get(output, as_it_is) if isinstance(spoil, dict) else spoil)(batch(options.inputs))
            directory = changes / output / "micro_batch=0"
            directory.mkdir(parents=True)
            order = pl.struct(micro_batch=pl.lit(0), number=pl.int_range(pl.len()))
            told = rows.with_columns(_change_type=pl.lit("upsert"), _timestamp=pl.lit(None), _order=order)
            told.write_parquet(directory / "part-0.parquet")
        return query

    monkeypatch.setattr(module, "start", start)
    return query


@pytest.fixture
def options(tmp_path: Path) -> DemoOptions:
    return DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.005)


def test_an_equal_table_is_called_equal_and_all_is_told(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    query, file = engine(monkeypatch, options), io.StringIO()
    result = run_demo(FLIGHTS, options, TextDisplay(file), NO_SPARK)
    text = file.getvalue()
    assert result.ok
    assert query.stopped
    assert f"equal, all {result.table.height:,} rows" in text
    assert f"8 of {result.table.height:,} joined flights" in text
    assert re.search(r"flights that move to another plane: [1-9]", text)
    assert all(str(path) in text for path in (options.table, options.changes, options.inputs))
    assert pl.read_parquet(options.table).height == result.table.height


def test_a_planted_difference_is_told_row_by_row(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    engine(monkeypatch, options, lambda table: table.tail(-1).with_columns(pl.col("seats") + 1))
    file = io.StringIO()
    result = run_demo(FLIGHTS, options, TextDisplay(file), NO_SPARK)
    assert not result.ok
    (check,) = result.checks
    assert check.result.differing > 0
    assert check.result.only_expected == 1
    assert "NOT EQUAL" in file.getvalue()
    assert "only in the batch computation" in file.getvalue()
    assert "seats is" in file.getvalue()


def test_programs_get_the_verdict_in_the_last_line(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    engine(monkeypatch, options)
    file = io.StringIO()
    result = run_demo(FLIGHTS, options, JsonDisplay(file), NO_SPARK)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["micro_batch", "summary"]
    assert lines[-1]["ok"] is True
    assert lines[-1]["comparisons"] == [
        {
            "found": "flights",
            "expected": "the batch computation",
            "of": "rows",
            "equal": result.table.height,
            "differing": 0,
            "only_found": 0,
            "only_expected": 0,
        }
    ]
    assert lines[-1]["differences"] == []
    assert lines[-1]["changes_out"] == lines[0]["changes_out"] == result.table.height
    assert lines[-1]["outputs"]["table"] == str(options.table)
    assert len(lines[-1]["sample"]) == 8


def test_every_output_is_compared_and_all_with_the_first(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    engine(monkeypatch, options, batch=mailing_list_by_polars)
    file = io.StringIO()
    result = run_demo(HOLDINGS, options, TextDisplay(file), NO_SPARK)
    text, count = file.getvalue(), result.table.height
    assert result.ok
    assert count > 50
    assert f"distributed compared with the batch computation: equal, all {count:,} rows." in text
    assert f"global compared with the batch computation: equal, all {count:,} rows." in text
    assert f"global compared with distributed: equal, all {count:,} changes." in text
    assert re.search(r"moves to another ticker and back in one step: [1-9]", text)


def test_an_output_that_differs_from_the_first_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    """Also where both come to the same table: here one of them says each row twice."""
    engine(
        monkeypatch,
        options,
        {"global": lambda table: pl.concat([table, table])},
        batch=mailing_list_by_polars,
    )
    result = run_demo(HOLDINGS, options, JsonDisplay(io.StringIO()), NO_SPARK)
    assert [check.result.ok for check in result.checks] == [True, True, False]
    assert not result.ok


def test_what_waits_is_told_and_the_rest_compared(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    """The last departure of each airport may wait; here one of them does."""
    waiting = pl.col("scheduled_at") == pl.col("scheduled_at").max()
    engine(
        monkeypatch,
        options,
        lambda table: table.filter(~waiting),
        batch=joined_by_duckdb,
        observed={LATE: 17, "changes": 99},
    )
    file, programs = io.StringIO(), io.StringIO()
    result = run_demo(WEATHER, options, TextDisplay(file), NO_SPARK)
    lines = file.getvalue().splitlines()
    assert result.ok
    assert result.table.height == round(336_776 * options.scale) - 1
    assert f"equal, all {result.table.height:,} rows." in file.getvalue()
    assert "1 more wait in the query's state: the logs end before their time has come." in lines
    assert "17 departures came too late to wait for late readings, and were joined at once." in lines
    assert not any("readings came later than the history" in line for line in lines)
    run_demo(WEATHER, options, JsonDisplay(programs), NO_SPARK)
    summary = json.loads(programs.getvalue().splitlines()[-1])
    assert (summary["demo"], summary["held"]) == ("weather", 1)
    assert list(summary["counted"].values()) == [17, 0]


def test_what_need_not_wait_is_a_difference_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    first = pl.col("scheduled_at") == pl.col("scheduled_at").min()
    engine(monkeypatch, options, lambda table: table.filter(~first), batch=joined_by_duckdb)
    result = run_demo(WEATHER, options, JsonDisplay(io.StringIO()), NO_SPARK)
    assert [check.result.only_expected for check in result.checks] == [1]
    assert result.held == 0


def test_demos_run_one_after_the_other_each_in_its_directory(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    sessions, ran = [], []

    @contextmanager
    def local_spark(scratch: Path, log: Path) -> Iterator[SparkSession]:
        sessions.append((scratch, log))
        yield NO_SPARK

    def run_demo(scenario: Scenario, options: DemoOptions, _: object, spark: SparkSession) -> Verdict:
        ran.append((scenario.name, options.output))
        assert spark is NO_SPARK
        return Verdict(pl.DataFrame(), (Check("", "", "", Comparison(0, len(ran) - 1, 0, 0, ())),))

    monkeypatch.setattr(module, "local_spark", local_spark)
    monkeypatch.setattr(module, "run_demo", run_demo)
    assert run_demos([FLIGHTS], options, JsonDisplay(io.StringIO()))
    assert not run_demos([FLIGHTS, WEATHER], options, JsonDisplay(io.StringIO()))
    assert ran == [(name, options.output / name) for name in ("flights", "flights", "weather")]
    assert sessions == [(options.scratch, options.log)] * 2


def test_a_difference_in_any_output_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    engine(monkeypatch, options, {"global": lambda table: table.head(-1)}, batch=mailing_list_by_polars)
    file = io.StringIO()
    assert not run_demo(HOLDINGS, options, TextDisplay(file), NO_SPARK).ok
    assert "global compared with the batch computation: NOT EQUAL." in file.getvalue()
    assert "distributed compared with the batch computation: equal" in file.getvalue()


@pytest.mark.parametrize("keep", [True, False])
def test_the_checkpoint_stays_only_when_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, keep: bool
) -> None:
    options = DemoOptions(tmp_path / "demo", micro_batches=1, scale=0.005, keep=keep)
    engine(monkeypatch, options)
    run_demo(FLIGHTS, options, JsonDisplay(io.StringIO()), NO_SPARK)
    assert options.checkpoint.exists() is keep
    assert not options.scratch.exists()


def test_an_interrupt_stops_the_query_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, options: DemoOptions
) -> None:
    query = engine(monkeypatch, options, interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        run_demo(FLIGHTS, options, TextDisplay(io.StringIO()), NO_SPARK)
    assert query.stopped


def test_an_earlier_demo_is_replaced_and_nothing_else_is_touched(options: DemoOptions) -> None:
    prepare(options)
    options.changes.mkdir()
    (options.changes / "old.parquet").touch()
    options.table.touch()
    own = options.output / "notes.txt"
    own.write_text("mine")
    prepare(options)
    assert not options.changes.exists()
    assert not options.table.exists()
    assert own.read_text() == "mine"
    assert (options.output / ".gitignore").read_text() == "*\n"


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ArgumentError, match="not an earlier demo's"):
        prepare(DemoOptions(tmp_path))
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(ArgumentError, match="not a directory"):
        prepare(DemoOptions(tmp_path / "thesis.tex"))
