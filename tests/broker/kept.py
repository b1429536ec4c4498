"""A server program that ends with the process that started it, however that ends.

A small keeper stands between the two (`tests.broker.keeper`). They are a process group of their own: Ctrl-C is for who
started the server, and `Kept.kill` ends the whole group at once, as a crash does.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tablestream.errors import TablestreamError

HOST = "127.0.0.1"
_START_TIMEOUT_S = 120.0
#: How long a program may take to end before it is killed.
_GRACE_S = 20.0
_LOG_LINES = 20


class BrokerError(TablestreamError):
    """A Kafka broker, or a worker of Kafka Connect, does not start."""

    code = "TABLESTREAM_BROKER"


class Kept:
    """A program and its keeper; one at a time.

    Parameters
    ----------
    name
        What the program is, for messages: "The Kafka broker".
    directory
        Where it runs.
    log
        What it says, from its last start on.
    """

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.log = log
        self._name, self._directory = name, directory
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether the program has been started, and has not ended."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def started(self) -> bool:
        """Whether the program has been started, and neither stopped nor killed here."""
        return self._keeper is not None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the program; does nothing if it has been started."""
        if self._keeper is not None:
            return
        program = [sys.executable, str(Path(__file__).with_name("keeper.py")), str(_GRACE_S)]
        with self.log.open("wb") as log, _uninterrupted():
            self._keeper = subprocess.Popen(
                [*program, *command],
                cwd=self._directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until the program is ready; if it does not get there, end it.

        Raises
        ------
        BrokerError
            It ended, or was not ready in time; the message has the lines of its log that say why.
        """
        end = time.monotonic() + _START_TIMEOUT_S
        try:
            while not ready():
                self._check(end)
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise

    def _check(self, end: float) -> None:
        over = not self.runs
        if over or time.monotonic() > end:
            what = "ended" if over else f"did not start in {_START_TIMEOUT_S:.0f} seconds"
            raise BrokerError(with_log(f"{self._name} {what}", self.said()))

    def ended(self) -> int:
        """Wait until a program that was started ends by itself; return its exit code."""
        assert self._keeper is not None
        return self._keeper.wait()

    def said(self) -> str:
        """What the program has said since it was started."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Ask the program to end, and wait; does nothing if it does not run."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()

    def kill(self) -> None:
        """End the program at once, as a crash does; does nothing if it does not run."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block: an interrupted Popen forgets a process that it has started.

    Only the main thread is interrupted.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, lambda one, _: came.append(one))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


class Server(ABC):
    """A server of tests and tutorials: a program with a directory, for the time of a ``with``.

    Parameters
    ----------
    name
        What the program is, for messages: "The Kafka broker".
    short
        The same in a word, for its log and its directory: "broker".
    directory
        Where it keeps all that it has. Default: a temporary directory, removed by `close`.
    """

    def __init__(self, name: str, short: str, directory: str | os.PathLike[str] | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix=f"{short}-") if directory is None else None
        self._directory = Path(self._temporary.name if self._temporary is not None else str(directory))
        self._kept = Kept(name, self._directory, self._directory / f"{short}.log")

    @property
    def log(self) -> Path:
        """The file with what the server says."""
        return self._kept.log

    @abstractmethod
    def start(self) -> None:
        """Start, and wait until clients are served; does nothing if it has been started."""

    def stop(self) -> None:
        """End the server and keep its data; does nothing if it does not run."""
        self._kept.stop()

    def kill(self) -> None:
        """End the server at once, as a crash does, and keep its data; does nothing if it does not run."""
        self._kept.kill()

    def close(self) -> None:
        """End the server, and remove a temporary directory."""
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def with_log(message: str, said: str) -> str:
    """Add what a program said last, from its first error on if there is one."""
    lines = said.splitlines()
    wrong = (number for number, line in enumerate(lines) if " ERROR " in line or "Exception" in line)
    first = next(wrong, max(len(lines) - _LOG_LINES, 0))
    return "\n".join([f"{message}:", *lines[first : first + _LOG_LINES]])


def java(what: str) -> str:
    """Find the java that Spark would take.

    Raises
    ------
    BrokerError
        There is none; the message says what needs it.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise BrokerError(
            f"{what} needs Java 17 or newer, and there is none {f'in {home}' if home else 'on the PATH'}.",
            hint="Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at one.",
        )
    return found


#: Below the ports that systems give to those who ask for any. A client of a broker that has ended goes on connecting to
#: its port, and broke what had got that port since: Spark, which listens for its Python workers.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port of the loopback address that nobody listens on now, and that no other program is given by chance."""
    (port,) = free_ports(1)
    return port


def free_ports(number: int, *but: int) -> list[int]:
    """Different ports as `free_port` gives one, other than some; each is held until all are found."""
    found = list[int]()
    with ExitStack() as held:
        while len(found) < number:
            port, probe = secrets.choice(_PORTS), held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind((HOST, port))
                found += [port] * (port not in but)
    return found
