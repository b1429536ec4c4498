"""The soak: its load can be made again, its check sees what is lost, doubled, moved or wrong, its faults hit."""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

from benchmarks.soak.checks import Verdict, check
from benchmarks.soak.faults import CACHE, SHARES, Faults, kinds
from benchmarks.soak.load import CUSTOMERS, changes_of_second
from benchmarks.soak.samples import Sample, flatness, read_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.broker.kafka_broker import KafkaBroker

SECONDS, PER_S = 3, 2000


def joined() -> list[dict[str, Any]]:
    """The records that a left join of the load makes, one change after the other."""
    items: dict[str, tuple[str, int]] = {}
    names: dict[str, str] = {}
    of_customer: dict[str, dict[str, None]] = {}
    told: list[dict[str, Any]] = []

    def tell(key: str) -> None:
        customer, number = items.get(key, (None, None))
        name = None if customer is None else names.get(customer)
        told.append({"_order": len(told), "key": key, "customer": customer, "number": number, "name": name})

    for second in range(SECONDS):
        for change in changes_of_second(second, PER_S):
            if change.topic == CUSTOMERS:
                names[change.key] = f"name {change.number}"
                for key in of_customer.get(change.key, ()):
                    tell(key)
                continue
            before = items.pop(change.key, None)
            if before is not None:
                del of_customer[before[0]][change.key]
            if change.customer is not None:
                items[change.key] = change.customer, change.number
                of_customer.setdefault(change.customer, {})[change.key] = None
            if before is not None or change.customer is not None:
                tell(change.key)
    return told


def verdict(directory: Path, records: list[dict[str, Any]], changes: int) -> Verdict:
    """Check records, in two micro-batches."""
    for number, part in enumerate((records[: len(records) // 2], records[len(records) // 2 :])):
        (directory / f"micro_batch={number}").mkdir(parents=True)
        pl.DataFrame(part, infer_schema_length=None).write_parquet(
            directory / f"micro_batch={number}" / "0.parquet"
        )
    return check(directory, SECONDS, PER_S, changes)


def test_all_that_was_sent_is_there(tmp_path: Path) -> None:
    records = joined()
    found = verdict(tmp_path, records, len(records))
    assert found.ok
    assert (found.lost, found.moved, found.wrong_rows) == (0, 0, 0)
    assert found.rows > 1000


def last_versions(records: list[dict[str, Any]]) -> tuple[int, int]:
    """Two places of one key, both of them versions."""
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        if record["number"] is not None:
            places.setdefault(record["key"], []).append(place)
    for of_key in places.values():
        for one, other in pairwise(of_key):
            if records[one]["number"] != records[other]["number"]:
                return one, other
    raise AssertionError("no key changes twice")


def lose(records: list[dict[str, Any]]) -> None:
    del records[last_versions(records)[0]]


def double(records: list[dict[str, Any]]) -> None:
    records.append(records[-1])


def move(records: list[dict[str, Any]]) -> None:
    one, other = last_versions(records)
    records[one], records[other] = (
        records[other] | {"_order": records[one]["_order"]},
        records[one] | {"_order": records[other]["_order"]},
    )


def spoil(records: list[dict[str, Any]]) -> None:
    records[:] = [record | {"name": "another"} if record["name"] else record for record in records]


@pytest.mark.parametrize(
    ("fault", "sees"),
    [
        (lose, lambda found: found.lost == 1 and found.records < found.changes),
        (double, lambda found: found.records > found.changes and not found.lost),
        (move, lambda found: found.moved == 1 and not found.lost),
        (spoil, lambda found: found.wrong_rows > 0 and not found.moved),
    ],
)
def test_a_fault_is_seen(
    tmp_path: Path, fault: Callable[[list[dict[str, Any]]], None], sees: Callable[[Verdict], bool]
) -> None:
    records = joined()
    changes = len(records)
    fault(records)
    found = verdict(tmp_path, records, changes)
    assert not found.ok
    assert sees(found), found


def test_flat_is_one_and_growth_is_more() -> None:
    assert flatness([1.0] * 9) == 1.0
    assert flatness([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]) == 2.0
    assert flatness([1.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.0, 1.0, 2.0], max) == 0.5
    assert flatness([1.0]) is None


SAMPLE = Sample(1.0, micro_batch=3, seconds=0.5, rows_in=10, changes_out=12, state_rows=None, state_bytes=7)


def test_of_a_micro_batch_that_was_done_twice_the_last_line_counts_and_a_cut_line_does_not(
    tmp_path: Path,
) -> None:
    again, empty, next_one = (
        replace(SAMPLE, at_s=2.0),
        replace(SAMPLE, micro_batch=4, rows_in=0),
        replace(SAMPLE, micro_batch=5),
    )
    lines = [json.dumps(asdict(one)) for one in (SAMPLE, next_one, again, empty)]
    file = tmp_path / "samples.jsonl"
    assert read_samples(file) == []
    file.write_text("\n".join([*lines, lines[0][:20]]))
    assert read_samples(file) == [again, next_one]


def test_every_kind_of_fault_is_dealt_out_and_what_hit_nothing_is_not_counted() -> None:
    calls: list[str] = []

    def of(kind: str) -> Callable[[random.Random], bool]:
        def harm(_: random.Random) -> bool:
            calls.append(kind)
            return kind != CACHE

        return harm

    faults = Faults(0.001, time.time(), {kind: of(kind) for kind in SHARES})
    faults.start()
    end = time.monotonic() + 60
    while set(calls) != set(SHARES) and time.monotonic() < end:
        time.sleep(0.01)
    faults.stop()
    assert [fault.kind for fault in faults.done] == [kind for kind in calls if kind != CACHE]


def test_a_fault_that_fails_itself_ends_the_soak() -> None:
    def harm(_: random.Random) -> bool:
        raise RuntimeError("the broker does not start")

    faults = Faults(0.001, time.time(), dict.fromkeys(SHARES, harm))
    faults.start()
    faults.join(60)
    with pytest.raises(SystemExit, match="no more faults: the broker does not start"):
        faults.check()


def test_half_of_the_cache_goes(tmp_path: Path) -> None:
    directory = tmp_path / "cache" / "shard"
    directory.mkdir(parents=True)
    for number in range(40):
        (directory / str(number)).touch()
    delete = kinds(cast("KafkaBroker", None), tmp_path / "cache")[CACHE]
    assert delete(random.Random(1))
    assert 10 < len(list(directory.iterdir())) < 30
    assert not kinds(cast("KafkaBroker", None), tmp_path / "none")[CACHE](random.Random(1))
