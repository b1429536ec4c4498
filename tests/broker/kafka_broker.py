"""A Kafka broker of one's own: for tests, tutorials and trying things out.

One node in KRaft mode on the loopback address, with nothing to install but Java and the broker's jars.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tablestream.errors import TablestreamError

_HOST = "127.0.0.1"
_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"
_ATTEMPTS = 3
_START_TIMEOUT_S = 120.0
#: How long a broker may take to close its logs before it is killed.
_GRACE_S = 20.0
_LOG_LINES = 20
#: The second compiler costs a start more than a test wins back.
_JAVA_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Records with old timestamps would be deleted otherwise.
    "log.retention.ms": "-1",
}


class BrokerError(TablestreamError):
    """The Kafka broker does not start."""

    code = "TABLESTREAM_BROKER"


class KafkaBroker:
    """One Kafka node, which ends with the process that started it, however that ends.

    Parameters
    ----------
    jars
        The directory with the broker's jars; ``scripts/fetch_jars.py`` fills one.
    directory
        Where data, settings and ``broker.log`` are kept. Default: a temporary directory, removed by `close`.
    port
        Where it listens; default a free port, the same for all starts.
    settings
        Further broker settings, such as ``{"num.partitions": "3"}``.
    protocol
        How clients talk to it: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``. All but the first
        need `settings`: a keystore, logins. The broker is a client of its own, with the same protocol.

    Attributes
    ----------
    bootstrap_servers : str
        The address for clients, once it has been started.

    Notes
    -----
    `stop` keeps the data and `start` goes on with it, at the same address.

    Examples
    --------
    >>> with KafkaBroker(".jars/broker") as broker:  # doctest: +SKIP
    ...     print(broker.bootstrap_servers)
    127.0.0.1:37411
    """

    def __init__(
        self,
        jars: str | os.PathLike[str],
        directory: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self._jars = Path(jars)
        self._temporary = tempfile.TemporaryDirectory(prefix="kafka-") if directory is None else None
        self._directory = Path(self._temporary.name if self._temporary is not None else str(directory))
        self._port = port
        self._settings, self._protocol = dict(settings or {}), protocol
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{_HOST}:{self._port or 0}"

    @property
    def log(self) -> Path:
        """What the broker says."""
        return self._directory / "broker.log"

    def start(self) -> None:
        """Start, and wait until clients are served; does nothing where it runs already.

        Raises
        ------
        BrokerError
            There is no Java, there are no jars, or the broker ended or did not start in time; the message has the
            last lines of its log.
        """
        if self._keeper is not None:
            return
        command = [_java(), *_JAVA_OPTIONS, "-cp", f"{self._checked_jars()}/*"]
        self._directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            clients, controller = self._port or _free_port(), _free_port()
            self._prepare(command, clients, controller)
            try:
                self._run(command)
            except BrokerError as error:
                # Someone else may take a free port before the broker does.
                fixed = f"{_HOST}:{self._port}:" in error.reason
                if fixed or attempt + 1 == _ATTEMPTS or _PORT_TAKEN not in error.reason:
                    raise
            else:
                self._port = clients
                return

    def stop(self) -> None:
        """End the broker and keep its data; does nothing where it does not run."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()

    def close(self) -> None:
        """End the broker; data in a temporary directory goes."""
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

    def _checked_jars(self) -> Path:
        if not any(self._jars.glob("kafka_*.jar")):
            raise BrokerError(
                f"There are no jars of a Kafka broker in {self._jars}.",
                hint="Fetch them: in a clone of tablestream, `make jars` puts them into .jars/broker.",
            )
        return self._jars.resolve()

    def _prepare(self, command: list[str], clients: int, controller: int) -> None:
        """Write the settings, with two ports, and format the data directory if that was not done yet."""
        protocol = self._protocol
        settings = _ONE_NODE | {
            "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": protocol,
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "listeners": f"{protocol}://{_HOST}:{clients},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"{protocol}://{_HOST}:{clients}",
            "log.dirs": str(self._directory / "data"),
        }
        lines = [f"{name}={value}\n" for name, value in (settings | self._settings).items()]
        properties = self._directory / "server.properties"
        properties.touch(mode=0o600)  # there may be passwords in it
        properties.write_text("".join(lines), encoding="utf-8")
        if not (self._directory / "data" / "meta.properties").exists():
            name = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            # With =, since one name in 64 begins with a minus.
            tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", "server.properties"]
            done = subprocess.run(
                [*command, *tool], cwd=self._directory, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise BrokerError(_with_log("The broker's directory cannot be made ready", done.stderr))

    def _run(self, command: list[str]) -> None:
        keeper = [sys.executable, str(Path(__file__).with_name("keeper.py")), str(_GRACE_S)]
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [*keeper, *command, "kafka.Kafka", "server.properties"],
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for who started it, not for the broker.
                start_new_session=True,
            )
        try:
            self._wait(self._keeper)
        except BaseException:
            self.stop()
            raise

    def _wait(self, keeper: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _START_TIMEOUT_S
        while _STARTED not in (said := self.log.read_text(encoding="utf-8", errors="replace")):
            over = keeper.poll() is not None
            if over or time.monotonic() > end:
                what = "ended" if over else f"did not start in {_START_TIMEOUT_S:.0f} seconds"
                raise BrokerError(_with_log(f"The Kafka broker {what}", said))
            time.sleep(0.05)


def _with_log(message: str, said: str) -> str:
    """Add what the broker said last, from its first error on if there is one."""
    lines = said.splitlines()
    wrong = (number for number, line in enumerate(lines) if " ERROR " in line or "Exception" in line)
    first = next(wrong, max(len(lines) - _LOG_LINES, 0))
    return "\n".join([f"{message}:", *lines[first : first + _LOG_LINES]])


def _java() -> str:
    """Find the java that Spark would take."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        raise BrokerError(
            f"A Kafka broker needs Java 17 or newer, and there is none {f'in {home}' if home else 'on the PATH'}.",
            hint="Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at one.",
        )
    return java


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
