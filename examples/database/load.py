"""Random concurrent transactions on the shop, from a seed, and the state of the join after each commit.

One thread drives several connections. Their transactions are open at the same time, and their statements interleave.
Since that one thread commits, the order of the commits is known. A statement that would wait for another transaction
gives up at once, and its transaction is rolled back. So the same seed makes the same transactions.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import errors

from examples.database.shop import JOIN, SCHEMA
from examples.database.statements import Connection, Statements
from examples.database.states import History, State, row_of

CONNECTIONS = 4
#: The order that the last commit makes, and nothing else.
LAST_ORDER = 0
_CUSTOMERS, _PRODUCTS, _ORDERS = 15, 12, 60
_MOST_STATEMENTS = 4
_ROLLED_BACK, _SAVEPOINT = 0.12, 0.1
_LOCK_TIMEOUT_MS = 10
_REFUSED = (errors.LockNotAvailable, errors.DeadlockDetected)


def read_join(connection: Connection) -> State:
    """The join, as the database computes it."""
    rows = (row_of(row) for row in connection.execute(JOIN).fetchall())
    return {str(row[0]): row for row in rows}


@dataclass
class _Session:
    """A connection, and how many statements its open transaction still makes; None: none is open."""

    statements: Statements
    left: int | None = None

    @property
    def connection(self) -> Connection:
        return self.statements.connection

    def roll_back(self) -> None:
        self.connection.rollback()
        self.left = None


class Load:
    """The load on a database.

    Parameters
    ----------
    conninfo
        Of a database without tables.
    seed
        Decides what happens.

    Attributes
    ----------
    history : History
        The states that the database had, from `fill` on.
    counts : Counter[str]
        How often what was done.
    """

    def __init__(self, conninfo: str, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._random, self._numbers = random.Random(seed), itertools.count(1)  # noqa: S311 - not a secret
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._sessions = [self._session(stack, conninfo) for _ in range(CONNECTIONS)]
            self._reader = stack.enter_context(psycopg.connect(conninfo, autocommit=True))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fill(self) -> None:
        """Make the tables and their first rows."""
        first = self._sessions[0].statements
        first.connection.execute(SCHEMA)
        for make, count in (
            (first.new_customer, _CUSTOMERS),
            (first.new_product, _PRODUCTS),
            (first.new_order, _ORDERS),
        ):
            for _ in range(count):
                make()
        first.connection.commit()
        self.history = History(read_join(self._reader))

    def run(self, commits: int, per_s: float | None = None, stop: threading.Event | None = None) -> None:
        """Go on until so many transactions were committed since `fill`, at most so many a second.

        Parameters
        ----------
        commits
            How many.
        per_s
            The rate; None: as fast as the database takes them.
        stop
            Ends the load early when it is set.
        """
        began, before = time.monotonic(), self.history.commits
        while self.history.commits < commits:
            if stop is not None and stop.is_set():
                return
            if self._step(self._random.choice(self._sessions)) and per_s is not None:
                due = began + (self.history.commits - before) / per_s
                time.sleep(max(0.0, due - time.monotonic()))

    def finish(self) -> None:
        """Roll back what is open, and commit the last order."""
        for session in self._sessions:
            session.roll_back()
        self._sessions[0].statements.last_order(LAST_ORDER)
        self._commit(self._sessions[0])

    def join(self) -> State:
        """The join as it is now."""
        return read_join(self._reader)

    def _step(self, session: _Session) -> bool:
        """Let a session do one thing; return whether it committed."""
        if session.left is None:
            session.connection.execute("SELECT 1")
            session.left = self._random.randint(1, _MOST_STATEMENTS)
        elif session.left:
            session.left -= 1
            self.counts[self._statement(session)] += 1
        elif self._random.random() < _ROLLED_BACK:
            session.roll_back()
            self.counts["rolled back"] += 1
        else:
            self._commit(session)
            return True
        return False

    def _statement(self, session: _Session) -> str:
        """Run a statement, or undo one and go on with the transaction; return what was done."""
        try:
            if self._random.random() >= _SAVEPOINT:
                return session.statements.any()
            session.connection.execute("SAVEPOINT before")
            session.statements.any()
            session.connection.execute("ROLLBACK TO before")
        except _REFUSED:
            session.roll_back()
            return "rolled back: another transaction had the row"
        return "rolled back to a savepoint"

    def _commit(self, session: _Session) -> None:
        session.connection.commit()
        session.left = None
        self.history.add(read_join(self._reader))
        self.counts["committed"] += 1

    def _session(self, stack: ExitStack, conninfo: str) -> _Session:
        settings: dict[str, Any] = {"options": f"-c lock_timeout={_LOCK_TIMEOUT_MS}"}
        connection = stack.enter_context(psycopg.connect(conninfo, **settings))
        return _Session(Statements(connection, self._random, self._numbers))
