"""A load of random transactions for a MariaDB: three connections, interleaved by one thread, which also commits.

So the order of the commits is known, and after each the join is compared with what it was before.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

from tests.broker.mariadb_server import MariadbServer

SCHEMA = (
    (
        "CREATE TABLE clients (client_id INT PRIMARY KEY, name VARCHAR(60) NOT NULL, email VARCHAR(80),"
        " tier ENUM('gold','silver','iron'))"
    ),
    (
        "CREATE TABLE tickers (ticker VARCHAR(8) PRIMARY KEY, exchange VARCHAR(8), price DECIMAL(12,4),"
        " at TIMESTAMP(6) NULL, note TEXT)"
    ),
    (
        "CREATE TABLE positions (position_id BIGINT PRIMARY KEY, client_id INT, ticker VARCHAR(8), amount INT UNSIGNED,"
        " opened DATETIME(6), tags SET('new','hot','old'), FOREIGN KEY (client_id) REFERENCES clients (client_id))"
    ),
    "CREATE TABLE quiet (id INT PRIMARY KEY)",
    # What a cascade changes is not in the binary log.
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    (
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT,"
        " FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE)"
    ),
    # The other recording has no UUID. The connector cannot read the definition of a table with INET6.
    "CREATE TABLE others (id INT PRIMARY KEY, u UUID)",
)
PRELOAD = (
    "INSERT INTO clients SELECT seq, CONCAT('client ', seq, ' é🦆'), NULL, 'iron' FROM seq_1_to_12",
    (
        "INSERT INTO tickers SELECT CONCAT('T', seq), 'XETR', seq / 7, '2024-03-31 01:30:00.5', REPEAT(MD5(seq), 20)"
        " FROM seq_1_to_8"
    ),
    (
        "INSERT INTO positions SELECT seq, 1 + seq % 12, CONCAT('T', seq % 10), seq * 1000,"
        " '2024-02-29 13:14:15.123456', 'new,old' FROM seq_1_to_30"
    ),
    "INSERT INTO parents VALUES (1), (2)",
    "INSERT INTO children VALUES (1, 1), (2, 2)",
    ("INSERT INTO others VALUES (1, '123e4567-e89b-12d3-a456-426655440000'), (2, NULL)"),
)
#: Run once, in the middle of the load.
BESIDE = (
    "DELETE FROM parents WHERE id = 1",
    ("INSERT INTO others VALUES (3, 'ffffffff-ffff-ffff-ffff-fffffffffffe'), (4, NULL)"),
)
_JOIN = (
    "SELECT p.position_id, p.client_id, p.ticker, p.amount, p.opened, p.tags, t.ticker AS t_ticker, t.exchange,"
    " t.price, t.at, MD5(t.note) AS note_md5, c.client_id AS c_client_id, c.name, c.email, c.tier FROM positions p"
    " LEFT JOIN tickers t ON t.ticker = p.ticker LEFT JOIN clients c ON c.client_id = p.client_id"
)
TABLES = ("clients", "tickers", "positions", "parents", "children", "others")
#: A row is locked, a key is there already, a row is referred to, or a row to refer to is missing.
_REFUSED = {1205, 1062, 1451, 1452}
_DEADLOCK = 1213
_CONNECTIONS = 3
Statement = tuple[str, tuple[Any, ...]]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode()
    return value.isoformat() if isinstance(value, datetime) else value


class Load:
    """The load; `commits` has a line for each commit that changed something.

    Parameters
    ----------
    server
        The database.
    seed
        Says which statements.
    """

    def __init__(self, server: MariadbServer, seed: int) -> None:
        server.start()
        self._random = random.Random(seed)  # noqa: S311 - a seed says which statements
        self._admin = server.connect(database="shop", autocommit=True)
        self._all = [server.connect(database="shop", autocommit=False) for _ in range(_CONNECTIONS)]
        for one in self._all:
            with one.cursor() as cursor:
                cursor.execute("SET innodb_lock_wait_timeout = 0, tx_isolation = 'READ-COMMITTED'")
        self._left = [0] * _CONNECTIONS
        self.done: Counter[str] = Counter()
        self.commits: list[dict[str, Any]] = []
        self._join: Counter[tuple[Any, ...]] = Counter()
        self._names: list[str] = []

    def run(self, *statements: str) -> None:
        """Run statements that commit themselves."""
        for one in statements:
            self._rows(one)
        if self._rows("SHOW TABLES LIKE 'positions'"):
            self._join = self._joined()

    def mark(self) -> str:
        """Commit something that is not in the join; return its GTID."""
        with self._admin.cursor() as cursor:
            cursor.execute("INSERT INTO quiet SELECT COUNT(*) + 1 FROM quiet")
            cursor.execute("SELECT @@last_gtid")
            return str(cursor.fetchone()[0])

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """All rows, and those of the join."""
        said = {name: self._dicts(f"SELECT * FROM {name}") for name in TABLES}
        return said | {"join": self._dicts(_JOIN)}

    def some(self, transactions: int) -> None:
        """Run about as many transactions; some of them are open in the end."""
        until = sum(self.done[name] for name in ("commits", "rollbacks")) + transactions
        while sum(self.done[name] for name in ("commits", "rollbacks")) < until:
            self._step(self._random.randrange(_CONNECTIONS))

    def finish(self) -> None:
        """Commit what is open."""
        for n, left in enumerate(self._left):
            if left:
                self._left[n] = 0
                self._commit(n)

    def _step(self, n: int) -> None:
        if self._left[n] == 0:
            self._left[n] = self._random.randint(1, 5)
        self._statements(n)
        self._left[n] -= 1
        if self._left[n] > 0:
            return
        if self._random.random() < 0.12:
            self._all[n].rollback()
            self.done["rollbacks"] += 1
        else:
            self._commit(n)

    def _commit(self, n: int) -> None:
        connection = self._all[n]
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@gtid_binlog_pos")
            before = cursor.fetchone()[0]
            connection.commit()
            cursor.execute("SELECT @@gtid_binlog_pos")
            after = cursor.fetchone()[0]
            connection.commit()
        self.done["commits"] += 1
        if before == after:
            return
        join = self._joined()
        self.commits.append(
            {
                "commit": len(self.commits) + 1,
                "xid": after,
                "removed": self._named(self._join - join),
                "added": self._named(join - self._join),
            }
        )
        self._join = join

    def _statements(self, n: int) -> None:
        failure = import_module("pymysql").MySQLError
        kind = self._random.choice([one for one in dir(self) if one.startswith("_do_")])
        for text, values in getattr(self, kind)():
            try:
                with self._all[n].cursor() as cursor:
                    cursor.execute(text, values)
                self.done[kind.removeprefix("_do_")] += 1
            except failure as error:
                if error.args[0] not in {*_REFUSED, _DEADLOCK}:
                    raise
                self.done["refused"] += 1

    def _client(self) -> int:
        return self._random.randint(1, 16)

    def _ticker(self) -> str:
        return f"T{self._random.randint(0, 10)}"

    def _position(self) -> int:
        return self._random.randint(1, 40)

    def _do_insert_position(self) -> list[Statement]:
        tags = self._random.choice(["", "hot", "new,hot,old", None])
        values = (self._position(), self._client(), self._ticker(), self._random.choice([0, 2**31 - 1, None]))
        text = "INSERT INTO positions VALUES (%s, %s, %s, %s, NULL, %s)"
        return [(text, (*values, tags))]

    def _do_insert_several(self) -> list[Statement]:
        first = self._random.randint(100, 10**6)
        text = "INSERT INTO positions SELECT %s + seq, 3, 'T3', seq, '1970-01-01', 'old' FROM seq_1_to_3"
        return [(text, (first,))]

    def _do_update_position(self) -> list[Statement]:
        text = (
            "UPDATE positions SET amount = %s, opened = '9999-12-31 23:59:59.999999' WHERE position_id = %s"
        )
        return [(text, (self._random.randint(0, 1000), self._position()))]

    def _do_move_position(self) -> list[Statement]:
        text = "UPDATE positions SET client_id = %s, ticker = %s WHERE position_id = %s"
        return [(text, (self._client(), self._ticker(), self._position()))]

    def _do_rename_position(self) -> list[Statement]:
        return [
            (
                "UPDATE positions SET position_id = %s WHERE position_id = %s",
                (self._position(), self._position()),
            )
        ]

    def _do_delete_position(self) -> list[Statement]:
        return [("DELETE FROM positions WHERE position_id = %s", (self._position(),))]

    def _do_replace_position(self) -> list[Statement]:
        key = self._position()
        text = "INSERT INTO positions VALUES (%s, NULL, %s, 7, '2000-01-01', 'hot')"
        return [("DELETE FROM positions WHERE position_id = %s", (key,)), (text, (key, self._ticker()))]

    def _do_upsert_client(self) -> list[Statement]:
        text = (
            "INSERT INTO clients (client_id, name, tier) VALUES (%s, %s, 'gold')"
            " ON DUPLICATE KEY UPDATE tier = 'silver', email = %s"
        )
        return [(text, (self._client(), f"new {self._random.random()}", f"{self._random.random()}@x"))]

    def _do_rename_client(self) -> list[Statement]:
        return [("UPDATE clients SET client_id = %s WHERE client_id = %s", (self._client(), self._client()))]

    def _do_delete_client(self) -> list[Statement]:
        key = self._client()
        return [
            ("UPDATE positions SET client_id = NULL WHERE client_id = %s", (key,)),
            ("DELETE FROM clients WHERE client_id = %s", (key,)),
        ]

    def _do_price(self) -> list[Statement]:
        text = "UPDATE tickers SET price = %s, at = '2038-01-19 03:14:07.999999' WHERE ticker = %s"
        return [(text, (Decimal(self._random.randint(-(10**11), 10**11)) / 10000, self._ticker()))]

    def _do_replace_ticker(self) -> list[Statement]:
        text = "REPLACE INTO tickers VALUES (%s, 'NYSE', 1.5, NULL, %s)"
        return [(text, (self._ticker(), self._random.choice([None, "", "long " * 100])))]

    def _do_swap_tickers(self) -> list[Statement]:
        one, other = self._random.sample(range(1, 9), 2)
        text = "UPDATE tickers SET ticker = %s WHERE ticker = %s"
        return [(text, ("TX", f"T{one}")), (text, (f"T{one}", f"T{other}")), (text, (f"T{other}", "TX"))]

    def _do_nothing(self) -> list[Statement]:
        return [("UPDATE tickers SET exchange = exchange WHERE ticker = %s", (self._ticker(),))]

    def _joined(self) -> Counter[tuple[Any, ...]]:
        rows = self._dicts(_JOIN)
        self._names = list(rows[0]) if rows else self._names
        return Counter(tuple(row.values()) for row in rows)

    def _named(self, rows: Counter[tuple[Any, ...]]) -> list[dict[str, Any]]:
        return [dict(zip(self._names, row, strict=True)) for row in rows.elements()]

    def _dicts(self, text: str) -> list[dict[str, Any]]:
        with self._admin.cursor() as cursor:
            cursor.execute(text)
            names = [one[0] for one in cursor.description]
            return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]

    def _rows(self, text: str) -> Any:
        with self._admin.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()
