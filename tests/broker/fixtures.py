"""Servers for the whole run, started when the first test asks for them; topics and databases of each test's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker.kafka_broker import KafkaBroker
from tests.broker.postgres_server import PostgresServer
from tests.kafka.topics import Topics
from tests.postgres.database import Database, needs_server

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = Path(__file__).parent.parent.parent / ".jars" / "broker"


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """A broker that makes no topics by itself."""
    with KafkaBroker(JARS, settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server without data; skipped where a user has none, and an error where `make postgres` installs one."""
    needs_server()
    with PostgresServer() as running:
        yield running


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topics(broker: KafkaBroker, _numbers: Iterator[int]) -> Topics:
    """Topics whose names no other test has."""
    return Topics(broker.bootstrap_servers, f"t{next(_numbers)}.")


@pytest.fixture
def database(postgres: PostgresServer, _numbers: Iterator[int]) -> Database:
    """A database that no other test has."""
    return Database.make(postgres, f"test{next(_numbers)}")
