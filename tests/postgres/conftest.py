"""One server for the whole run, started when the first test asks for it; a database of each test's own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.broker.postgres_server import PostgresServer
from tests.postgres.database import Database, needs_server

if TYPE_CHECKING:
    from collections.abc import Iterator


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
def database(postgres: PostgresServer, _numbers: Iterator[int]) -> Database:
    """A database that no other test has."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return Database(postgres.conninfo.replace("dbname=postgres", f"dbname={name}"))
