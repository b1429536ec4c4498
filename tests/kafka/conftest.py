"""One broker for the whole run, started when the first test asks for it; topics of each test's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker.kafka_broker import KafkaBroker
from tests.kafka.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = Path(__file__).parent.parent.parent / ".jars" / "broker"


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """A broker that makes no topics by itself."""
    with KafkaBroker(JARS, settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topics(broker: KafkaBroker, _numbers: Iterator[int]) -> Topics:
    """Topics whose names no other test has."""
    return Topics(broker.bootstrap_servers, f"t{next(_numbers)}.")
