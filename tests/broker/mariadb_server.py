"""A MariaDB server of one's own, on the loopback address, with a binary log that Debezium reads.

Only `scripts/record_mariadb.py` starts one. Install it first: ``sudo apt-get install mariadb-server``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.broker.kept import HOST, BrokerError, Server, free_port

_USER = "mysql"
#: Not UTC, as most servers: a TIMESTAMP must not depend on it.
_ZONE = "+02:00"


class MariadbServer(Server):
    """A server that ends with the process that started it.

    Parameters
    ----------
    directory
        Where data and log are kept. Default: a temporary directory, removed by `close`.

    Attributes
    ----------
    port, user, password
        How to connect, at the loopback address.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        super().__init__("MariaDB", "mariadb", directory)
        self.port, self.user, self.password = free_port(), "recorder", secrets.token_hex(16)

    def start(self) -> None:
        """Start, and wait until clients are served; does nothing if it has been started.

        Raises
        ------
        BrokerError
            MariaDB is not installed, or does not start.
        """
        if self._kept.started:
            return
        server = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
        if server is None:
            raise BrokerError("There is no mariadbd.", hint="sudo apt-get install mariadb-server")
        self._directory.mkdir(parents=True, exist_ok=True)
        data = self._directory.resolve() / "data"
        if not data.exists():
            self._make(data)
        self._kept.start([server, *self._settings(data)])
        self._kept.wait(lambda: "ready for connections" in self._kept.said())

    def connect(self, **options: Any) -> Any:
        """Return a connection of PyMySQL to the database ``shop``, in UTC."""
        connection = import_module("pymysql").connect(
            host=HOST, port=self.port, user=self.user, password=self.password, charset="utf8mb4", **options
        )
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
        return connection

    def _make(self, data: Path) -> None:
        """Make the data directory, with the role that may do everything."""
        root = os.geteuid() == 0
        if root:
            self._directory.chmod(0o711)
        data.mkdir()
        if root:
            shutil.chown(data, _USER, _USER)
        user = [f"--user={_USER}"] if root else []
        made = subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", *user, "--skip-test-db"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise BrokerError("MariaDB's directory cannot be made ready.", hint=made.stderr)
        script = self._directory / "start.sql"
        script.write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'{HOST}' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'{HOST}' WITH GRANT OPTION;\nCREATE DATABASE IF NOT EXISTS shop;\n",
            encoding="utf-8",
        )
        if root:
            shutil.chown(script, _USER, _USER)
        script.chmod(0o600)

    def _settings(self, data: Path) -> list[str]:
        user = [f"--user={_USER}"] if os.geteuid() == 0 else []
        return [
            "--no-defaults",
            *user,
            f"--datadir={data}",
            f"--socket={data / 'socket'}",
            f"--init-file={self._directory.resolve() / 'start.sql'}",
            f"--bind-address={HOST}",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--server-id=4242",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_bin",
            f"--default-time-zone={_ZONE}",
            "--innodb-buffer-pool-size=64M",
        ]
