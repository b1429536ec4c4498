"""A small pipeline in a directory, as a user's module, and its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.change_logs import ChangeLog

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """\
import os

import tablestream as ts

HERE = os.path.dirname(__file__)


def orders(spark):
    log = ts.from_files(
        spark, f"{HERE}/log", "json", "id int, sku string, amount int, at timestamp", max_files_per_trigger=1
    )
    return ts.table(log, "id", timestamp="at", columns=["sku", "amount"], name="orders")


def per_sku(spark):
    return orders(spark).group_by("sku").count(name="per_sku")


def outputs(spark):
    table = orders(spark)
    counted = table.group_by("sku").count(name="per_sku")
    return [
        counted.to(ts.to_files(f"{HERE}/out/per_sku")),
        table.rejected().to(ts.to_files(f"{HERE}/out/rejected")),
    ]


def query(spark, checkpoint):
    return ts.start(*outputs(spark), checkpoint=checkpoint, trigger={"availableNow": True})


def started(spark, checkpoint=f"{HERE}/started"):
    return ts.start(*outputs(spark), checkpoint=checkpoint)


def headed(spark):
    log = ts.from_files(spark, f"{HERE}/csv", "csv", "id int, amount int", options={"header": True})
    return ts.table(log, "id", name="headed")


def half(spark):
    halved = orders(spark).with_columns(half="cast(raise_error(concat('no half of ', amount)) as int)")
    return halved.to(ts.to_files(f"{HERE}/out/half"))
"""


class Pipeline:
    """The directory: its log gets a record with each `add`, and is read a file a micro-batch."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        self.log = ChangeLog(directory / "log", "id int, sku string, amount int, at timestamp")
        (directory / f"{name}.py").write_text(MODULE, encoding="utf-8")

    def add(self, number: int | None, sku: str) -> None:
        """Add a file with one order."""
        record = {"id": number, "sku": sku, "amount": number, "at": f"2024-01-02T09:00:{number or 0:02d}Z"}
        self.log.add([record])

    def named(self, thing: str) -> str:
        """Return the target of an object in the module."""
        return f"{self.name}:{thing}"
