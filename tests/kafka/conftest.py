"""One broker for the whole run, started when the first test asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablestream.testing.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = Path(__file__).parent.parent.parent / ".jars" / "broker"


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """A broker that makes no topics by itself."""
    with KafkaBroker(JARS, settings={"auto.create.topics.enable": "false"}) as running:
        yield running
