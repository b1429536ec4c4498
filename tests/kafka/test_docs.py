"""The example in docs/kafka.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kafka.topics import Topics, by_key, record

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "kafka.md"


def test_the_example_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    lines = lines.replace("localhost:9092", topics.servers)
    for name in ("positions", "tickers", "holdings"):
        lines = lines.replace(f'"{name}", ', f'"{topics.make(name)}", ')
    held = {"ticker": "ACME", "amount": 100}
    topics.send(
        f"{topics.prefix}positions", [record({"position_id": 1}, held), record({"position_id": 2}, held)]
    )
    topics.send(f"{topics.prefix}tickers", [record("ACME", {"price": 10.5})])
    topics.send(f"{topics.prefix}positions", [record({"position_id": 2}, None)])
    names: dict[str, Any] = {"spark": spark}
    exec(lines, names)  # noqa: S102 - our own page
    names["query"].processAllAvailable()
    names["query"].stop()
    written = by_key(topics.read(f"{topics.prefix}holdings"))
    assert {key: values[-1] for key, values in written.items()} == {
        b'{"position_id":1}': {**held, "price": 10.5},
        b'{"position_id":2}': None,
    }
