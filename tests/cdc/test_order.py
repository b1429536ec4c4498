"""The order across tables without whole transactions: in the recordings it is that of the commits."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from tablestream.operators.captured.capture import is_known
from tests.cdc.operators import PLACE, Captured
from tests.cdc.recording import TABLES, records
from tests.marks import quick_first

CAPTURES = ("plain3", "flat3", "schema3", "plain1", "flat1", "schema1", "interrupted_plain3")


def merged(capture: str) -> pl.DataFrame:
    """The changes of all tables in the order of one micro-batch: by the running maximum of their partition's times."""
    frames = []
    for name, (key, columns) in TABLES.items():
        of_table = [one for one in records(capture) if one.topic.endswith(f".shop.{name}")]
        decoded = Captured([key], columns).decoded(of_table)
        frames.append(decoded.select("op", "position", PLACE, "partition", "offset", topic=pl.lit(name)))
    rows = pl.concat(frames).sort(PLACE, "topic", "partition", "offset")
    return rows.filter(is_known(pl.col("position")) & (pl.col("op") != "read"))


@pytest.mark.parametrize("capture", quick_first(CAPTURES))
def test_changes_of_several_tables_are_in_the_order_of_their_commits(capture: str) -> None:
    """The first part of a position is the same for all changes of a transaction, and rises from commit to commit."""
    commits = merged(capture)["position"].str.split(":").list.first().to_list()
    assert all(one <= other for one, other in pairwise(commits))
    assert len(set(commits)) > 100


def test_changes_within_a_transaction_go_by_topic() -> None:
    """Their order across topics is known with whole transactions only."""
    rows = merged("plain3").with_columns(
        pl.col("position").str.split(":").list.to_struct(fields=["commit", "change"])
    )
    within = [
        (one, other)
        for one, other in pairwise(rows.unnest("position").select("commit", "change", "topic").rows())
        if one[0] == other[0]
    ]
    assert all(one[2] <= other[2] for one, other in within)
    assert any(one[1] > other[1] for one, other in within)
