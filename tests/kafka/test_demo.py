"""The holdings demo through topics."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from examples.demo.display import TextDisplay
from examples.demo.holdings_kafka import run
from examples.demo.run import DemoOptions, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.topics import Topics


@pytest.mark.exhaustive
def test_the_table_read_from_the_topic_is_the_batch_computation(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    for name in ("positions", "tickers", "clients", "mailing"):
        topics.make(name, 2)
    options = DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.016)
    prepare(options)
    said = io.StringIO()
    assert run(spark, topics.servers, options, TextDisplay(said), topics.prefix), said.getvalue()
    assert " 0 differ, 0 are only in one of them." in said.getvalue()
