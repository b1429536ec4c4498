"""A PostgreSQL server of one's own, on a socket in a directory of its own: it needs no port.

The server refuses to run as root. A root process starts it as the user ``postgres``, or ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_DIRECTORIES = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin")
_USERS = ("postgres", "nobody")
_ROLE = "tester"
_START_TIMEOUT_S = 120.0
_GRACE_S = 20.0


def programs() -> Path | None:
    """The directory with ``initdb`` and ``postgres``, the newest version first. None if they are not installed."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    on_path = shutil.which("postgres")
    places = [*debian, *([Path(on_path).parent] if on_path else []), *map(Path, _DIRECTORIES)]
    return next((one for one in places if (one / "initdb").exists() and (one / "postgres").exists()), None)


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in directory.parent.name.split(".") if part.isdigit())


class PostgresServer:
    """A server while the ``with`` lasts; it ends with this process, too.

    Parameters
    ----------
    port
        Where it listens on the loopback address as well, for clients that know no sockets. They need `password`.
    settings
        Further settings of the server, such as ``{"wal_level": "logical"}``.

    Attributes
    ----------
    conninfo : str
        Of its database, for a role that may do everything.
    user, password : str
        That role's name and password. The socket asks for no password: only its owner and root reach it.
    """

    def __init__(self, port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="tablestream-pg-"))
        self._user = self._other_user() if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.user, self.password = _ROLE, secrets.token_hex(16)
        self._settings = dict(settings or {})
        self.conninfo = f"host={self._directory} dbname=postgres user={_ROLE}"
        if port is not None:
            self._settings |= {"listen_addresses": "127.0.0.1", "port": str(port)}
            self.conninfo += f" port={port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def crash(self) -> None:
        """Kill the server's processes at once, and start it again: it recovers what was committed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # its immediate shutdown, without a checkpoint
        self._process.wait()
        self._run()

    @staticmethod
    def _other_user() -> pwd.struct_passwd:
        for name in _USERS:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise RuntimeError(f"no user of {_USERS} to run PostgreSQL as")

    def _as_user(self, *command: str) -> list[str]:
        """A command as the server's user, which ends when this process does."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return list(command)
        user = self._user
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
        return [setpriv, *ids, "--pdeathsig=QUIT", *command]

    def _start(self) -> None:
        bin_ = programs()
        assert bin_ is not None, "PostgreSQL is not installed"
        if self._user is not None:
            os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
        make = [str(bin_ / "initdb"), "--auth-local=trust", "--auth-host=scram-sha-256"]
        make += ["-U", _ROLE, "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(
            self._as_user(*make, "-D", str(self._directory / "data")),
            check=True,
            capture_output=True,
            cwd="/",
        )
        self._run()
        self._set_password()

    def _set_password(self) -> None:
        import psycopg

        with psycopg.connect(self.conninfo) as connection:
            connection.execute(f"ALTER ROLE {self.user} PASSWORD '{self.password}'")

    def _run(self) -> None:
        bin_ = programs()
        # Without fsync what is committed survives a crash of the server, but not of the machine.
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._directory),
            "fsync": "off",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [f"{bin_}/postgres", "-D", str(self._directory / "data"), *options]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user(*command), stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self._await()

    def _await(self) -> None:
        import psycopg

        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.conninfo).close()
            except psycopg.OperationalError:
                said = (self._directory / "log").read_text(errors="replace")[-2000:]
                assert self._process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.05)
            else:
                return

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # its fast shutdown
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
