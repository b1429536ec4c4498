"""Tables of few values, so that the rows of random queries meet, and micro-batches that change them."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

from tests.sql.world import Described

if TYPE_CHECKING:
    from tests.sql.world import MicroBatch, Row

TABLES = {
    "people": Described("id int, city string, boss int, age int, paid decimal(8,2), born date", ("id",)),
    "cities": Described("city string, country string, size int", ("city",)),
    "visits": Described("who int, day int, place string, spent double, came timestamp", ("who", "day")),
    "notes": Described("note string, who int, stars int, seen timestamp", ("note",)),
    "wages": Described("id int, wage int, since date", ("id",)),
}
#: The values of a type, beside null. Columns of one type have the same ones.
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, 4],
    "string": ["a", "b", "c", "d", "e"],
    "decimal(8,2)": [Decimal("0.01"), Decimal("0.50"), Decimal("1.00"), Decimal("2.25")],
    "double": [0.5, 1.0, 1.5, 2.25],
    "date": [date(2024, 1, day) for day in range(1, 6)],
    "timestamp": [datetime(2024, 1, day, hour) for day in (1, 2, 4) for hour in (0, 12)],
}
#: Further values of a key of one column: the ends of which nothing points at.
MORE: dict[str, list[Any]] = {"int": [5, 6], "string": ["f", "g"]}
NULLS, DELETES, EMPTIED, QUIET = 0.1, 0.25, 0.1, 0.15


def changes(seed: int, micro_batches: int = 3) -> list[MicroBatch]:
    """Return micro-batches: the first fills the tables, the others change most of them.

    A later one changes a few keys, each several times: a row comes, changes, moves to other keys and goes within
    one micro-batch. Some tables lose all rows first, so that their groups are empty and come back.
    """
    drawn = random.Random(seed)
    filled = {name: [_row(one, key, drawn) for key in _keys(one, drawn, 0.8)] for name, one in TABLES.items()}
    return [filled, *(_changed(drawn) for _ in range(micro_batches - 1))]


def _changed(drawn: random.Random) -> MicroBatch:
    batch: MicroBatch = {}
    for name, one in TABLES.items():
        if drawn.random() < QUIET:
            continue
        rows = [_deleted(one, key) for key in _keys(one, drawn, 1)] if drawn.random() < EMPTIED else []
        keys = _keys(one, drawn, 1)
        some = drawn.sample(keys, len(keys) // 2 + 1)
        for key in drawn.choices(some, k=drawn.randint(len(some), 2 * len(some))):
            is_deleted = drawn.random() < DELETES
            rows.append(_deleted(one, key) if is_deleted else _row(one, key, drawn))
        batch[name] = rows
    return batch


def _keys(table: Described, drawn: random.Random, share: float) -> list[tuple[Any, ...]]:
    is_one = len(table.key) == 1
    domains = [
        VALUES[_types(table)[part]] + (MORE[_types(table)[part]] if is_one else []) for part in table.key
    ]
    return [key for key in product(*domains) if drawn.random() < share]


def _row(table: Described, key: tuple[Any, ...], drawn: random.Random) -> Row:
    row = {
        name: None if drawn.random() < NULLS else drawn.choice(VALUES[of])
        for name, of in _types(table).items()
    }
    return row | dict(zip(table.key, key, strict=True)) | {"gone": False}


def _deleted(table: Described, key: tuple[Any, ...]) -> Row:
    return dict.fromkeys(table.names) | dict(zip(table.key, key, strict=True)) | {"gone": True}


def _types(table: Described) -> dict[str, str]:
    return dict(one.split() for one in table.columns.split(", "))
