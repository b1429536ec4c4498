"""A process that is killed while a query evolves: the old plan or the new one goes on, and no target shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tests.cli.programs import kill
from tests.faults.evolver import PLACED, SWITCHED, WRITTEN
from tests.marks import quick_first
from tests.spark.test_deployments import ROOT
from tests.spark.test_evolve import Shop, delta, last_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 600


def killed_at(point: str, directory: Path, *options: str) -> None:
    """Let a query evolve in a process of its own, and kill it where it stands still."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.evolver", point, *options],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))},
        stdout=subprocess.DEVNULL,
        stderr=(directory / "errors.txt").open("a"),
        text=True,
        start_new_session=True,
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not (directory / point).exists():
                assert process.poll() is None, (directory / "errors.txt").read_text()[-5000:]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
        finally:
            kill(process)


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize("points", quick_first([[SWITCHED], [WRITTEN, SWITCHED]]), ids=" and ".join)
def test_a_process_that_is_killed_while_a_query_evolves_does_not_show(
    spark: SparkSession, tmp_path: Path, points: list[str]
) -> None:
    shop, control = Shop(spark, tmp_path / "killed"), Shop(spark, tmp_path / "control")
    order, customer = shop.order, shop.customer
    for one in (shop, control):
        one.logs["orders"].add([order(n, n % 3 if n % 4 else None, 3 * n) for n in range(10)])
        one.logs["customers"].add([customer(n, f"n{n % 2}") for n in range(3)])
    shop.run(shop.old(), evolvable=True)
    before = Counter(shop.log("joined").rows())
    for point in points:  # at the others in tests/kafka/test_ten_changes.py
        killed_at(point, shop.place)
        found = ts.check(*shop.new(), checkpoint=shop.checkpoint)
        assert found.is_same is (point == SWITCHED)
        assert Counter(shop.log("joined").rows()) == before
    assert ts.drop_generations(spark, shop.checkpoint) == len(points)
    assert shop.log("names").rows() == [("n0", 2, "upsert"), ("n1", 1, "upsert")]

    go_on(shop, control)
    assert Counter(shop.log("joined").rows()) == Counter(control.log("joined").rows())
    numbers = sorted(int(one.name.split("=")[1]) for one in (shop.place / "joined").glob("micro_batch=*"))
    assert numbers == list(range(len(numbers)))


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * SECONDS)
def test_a_process_that_is_killed_while_logs_are_read_again_does_not_show(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, control = Shop(spark, tmp_path / "killed"), Shop(spark, tmp_path / "control")
    order, customer = shop.order, shop.customer
    for one in (shop, control):
        one.logs["orders"].add(
            [order(n, n % 3, 3 * n) for n in range(10)], [order(5, 0, 1), order(6, 0, 0, True)]
        )
        one.logs["customers"].add([customer(n, f"n{n % 2}") for n in range(3)], [customer(0, "n1")])
    shop.run(shop.old())
    for point in (WRITTEN, PLACED):
        killed_at(point, shop.place, "refill")
        assert not ts.check(*shop.new(), checkpoint=shop.checkpoint, refill=True).is_same
    ts.evolve(*shop.new(), checkpoint=shop.checkpoint, refill=True)
    assert ts.drop_generations(spark, shop.checkpoint) == 3
    go_on(shop, control)


def go_on(shop: Shop, control: Shop) -> None:
    """Let later changes come to a query that evolved, and to one that had the plan from the start: they are alike."""
    order, customer = shop.order, shop.customer
    control.run(control.new())
    for one in (shop, control):
        one.logs["orders"].add([order(3, 2, 100), order(4, None, 0, gone=True)], [order(11, 1, 12)])
        one.logs["customers"].add([customer(2, "x")], [customer(0, "z", gone=True)])
        one.logs["cities"].add([{"id": 1, "city": "X", "gone": False}])
        one.run(one.new())
    for name, key in (("joined", "id"), ("names", "name"), ("here", "id")):
        assert last_rows(shop.log(name), key) == last_rows(control.log(name), key)
    assert delta(shop.place / "groups") == delta(control.place / "groups")
