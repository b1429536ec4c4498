"""The load of `make demo-cdc`: the same seed makes the same states, and they are the database's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from examples.database.load import CONNECTIONS, LAST_ORDER, Load
from tests.postgres.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.postgres_server import PostgresServer

COMMITS = 150


@pytest.fixture
def loaded(postgres: PostgresServer) -> Callable[[str, int], Load]:
    """Run a load on a database of its own."""

    def run(name: str, seed: int) -> Load:
        with Load(Database.make(postgres, name).conninfo, seed) as load:
            load.fill()
            load.run(COMMITS // 2)
            load.run(COMMITS)
            load.finish()
            assert load.join() == load.history.last
        return load

    return run


def test_a_seed_decides_what_happens(loaded: Callable[[str, int], Load]) -> None:
    one, same, other = (loaded(f"load{number}", seed) for number, seed in enumerate((3, 3, 4)))
    assert one.history == same.history
    assert one.counts == same.counts
    assert one.history.steps != other.history.steps


def test_transactions_are_concurrent_have_several_statements_and_are_rolled_back(
    loaded: Callable[[str, int], Load],
) -> None:
    load = loaded("varied", 3)
    assert load.counts["committed"] == load.history.commits == COMMITS + 1
    for done in (
        *("rolled back", "rolled back to a savepoint", "rolled back: another transaction had the row"),
        *(
            "move order",
            "move customer",
            "move product",
            "delete customer",
            "delete product",
            "replace product",
        ),
    ):
        assert load.counts[done] > 0, done
    sizes = [len(made) for _, made in load.history.steps]
    assert max(sizes) > 3
    assert len(sizes) < COMMITS


def test_the_last_commit_makes_the_last_order(loaded: Callable[[str, int], Load]) -> None:
    commit, made = loaded("last", 5).history.steps[-1]
    assert commit == COMMITS + 1
    assert list(made) == [str(LAST_ORDER)]


def test_no_connection_is_left(database: Database) -> None:
    with Load(database.conninfo, 1) as load:
        load.fill()
        here = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert database.rows(here) == [(CONNECTIONS + 1,)]
    with psycopg.connect(database.conninfo) as connection:
        # Raises if a connection of the load still holds a lock.
        connection.execute("SET lock_timeout = '60s'")
        connection.execute("DROP TABLE orders, products, customers")
