"""What tests do with a database."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import psycopg
import pytest

from tests.broker.postgres_server import PostgresServer, programs


def needs_server() -> None:
    """Skip a test where a user has no server; an error where `make postgres` installs one."""
    if programs() is None and os.geteuid() != 0:
        pytest.skip("PostgreSQL's server programs are not installed; `make postgres` says how")


@dataclass(frozen=True)
class Database:
    """A database of a server."""

    conninfo: str

    @classmethod
    def make(cls, server: PostgresServer, name: str) -> Self:
        """Create a database."""
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return cls(server.conninfo.replace("dbname=postgres", f"dbname={name}"))

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with psycopg.connect(self.conninfo) as connection:
            for one in statements:
                connection.execute(one)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, sorted by how they print."""
        with psycopg.connect(self.conninfo) as connection:
            return sorted(connection.execute(query).fetchall(), key=repr)

    def stages(self) -> list[str]:
        """The names of staging tables that are there."""
        return [
            name
            for (name,) in self.rows("SELECT relname FROM pg_class WHERE relname LIKE 'tablestream_stage%'")
        ]
