"""Each hazard is counted where it is, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from examples.demo.change_logs import ChangeLog, LogSpec
from examples.demo.hazards import hazards
from examples.demo.holdings import CLIENTS, POSITIONS, TICKERS

START = datetime(2024, 1, 1, tzinfo=UTC)


def log(spec: LogSpec, column: str, *changes: tuple[int, str | int, str | None]) -> ChangeLog:
    """Make a log of (step, key, value of a column), a second apart; no value is a delete."""
    steps, keys, values = zip(*changes, strict=True) if changes else ((), (), ())
    rows = pl.DataFrame(
        {
            spec.key: keys,
            column: values,
            "op": ["d" if value is None else "u" for value in values],
            "changed_at": [START + timedelta(seconds=number) for number in range(len(keys))],
            "step": steps,
        },
        schema={
            spec.key: spec.key_type,
            column: pl.String,
            **{one: spec.schema[one] for one in ("op", "changed_at")},
            "step": pl.Int32,
        },
    )
    return ChangeLog(spec, rows)


def counted(*positions: tuple[int, int, str | None], **others: ChangeLog) -> dict[str, int]:
    tickers = others.get("tickers", log(TICKERS, "exchange"))
    clients = others.get("clients", log(CLIENTS, "email"))
    found = hazards(log(POSITIONS, "ticker", *positions), tickers, clients)
    return {what: count for what, count in found.items() if count}


SAME_STEP_DELETE = "positions deleted in the step of their insert"
SAME_STEP_INSERT = "positions inserted again in the step of their delete"
LATER_INSERT = "positions inserted again in a later step"
MOVES = "moves to another ticker"
BACK = "moves to another ticker and back in one step"
MOVED_AND_GONE = "moves with the delete right behind, in one step"


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([(0, 1, "A"), (0, 1, None)], {SAME_STEP_DELETE: 1}),
        ([(0, 1, "A"), (1, 1, None)], {}),
        ([(0, 1, "A"), (0, 2, None), (0, 1, "A")], {}),
        ([(0, 1, "A"), (1, 1, None), (1, 1, "A")], {SAME_STEP_INSERT: 1}),
        ([(0, 1, "A"), (1, 1, None), (2, 1, "A")], {LATER_INSERT: 1}),
        ([(0, 1, "A"), (1, 1, None), (2, 1, "A"), (2, 1, None)], {LATER_INSERT: 1, SAME_STEP_DELETE: 1}),
        ([(0, 1, "A"), (0, 1, "B")], {MOVES: 1}),
        ([(0, 1, "A"), (0, 2, "B"), (0, 1, "B"), (0, 1, "A")], {MOVES: 2, BACK: 1}),
        ([(0, 1, "A"), (0, 1, "B"), (1, 1, "A")], {MOVES: 2}),
        ([(0, 1, "A"), (0, 1, "B"), (0, 1, "C")], {MOVES: 2}),
        ([(0, 1, "A"), (0, 1, "A"), (0, 1, "A")], {}),
        ([(0, 1, "A"), (0, 1, "B"), (0, 1, None)], {MOVES: 1, MOVED_AND_GONE: 1}),
        ([(0, 1, "A"), (0, 1, "A"), (0, 1, None)], {}),
        ([(0, 1, "A"), (0, 1, "B"), (1, 1, None)], {MOVES: 1}),
    ],
)
def test_the_hazards_of_positions(
    positions: list[tuple[int, int, str | None]], expected: dict[str, int]
) -> None:
    assert counted(*positions) == expected


CHANGED = "changes of a ticker's exchange"
AMID = "changes of a ticker's exchange between a position's coming and going"


@pytest.mark.parametrize(
    ("ticker", "at_s", "step", "amid"),
    [("B", 2, 0, 1), ("B", 1, 0, 0), ("B", 4, 0, 0), ("B", 2, 1, 0), ("A", 2, 0, 0)],
)
def test_a_ticker_that_changes_exchange_amid_a_visit(ticker: str, at_s: int, step: int, amid: int) -> None:
    """Position 1 is at A, at B from second 1 to second 4, and at A again."""
    tickers = log(TICKERS, "exchange", (step, ticker, "X"), (step, ticker, "Y"))
    moments = pl.Series([START - timedelta(days=1), START + timedelta(seconds=at_s)])
    moved = ChangeLog(TICKERS, tickers.rows.with_columns(changed_at=moments))
    positions = [(0, 1, "A"), (0, 1, "B"), (0, 2, "C"), (0, 2, "C"), (0, 1, "A")]
    found = counted(*positions, tickers=moved)
    assert (found[CHANGED], found.get(AMID, 0)) == (1, amid)


def test_a_clients_other_address_is_counted() -> None:
    clients = log(CLIENTS, "email", (0, "c", "a"), (0, "d", "x"), (0, "c", "b"), (0, "c", "b"))
    assert counted(clients=clients) == {"changes of a client's e-mail": 1}
