"""A Kafka broker of one's own: for tests, tutorials and trying things out.

One node in KRaft mode on the loopback address, with nothing to install but Java and the broker's jars.
"""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.broker.kept import HOST, BrokerError, Server, free_ports, java, with_log

__all__ = ["BrokerError", "KafkaBroker"]

_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"
_ATTEMPTS = 3
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


class KafkaBroker(Server):
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
        super().__init__("The Kafka broker", "broker", directory)
        self._jars = Path(jars)
        self._port = port
        self._settings, self._protocol = dict(settings or {}), protocol

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self._port or 0}"

    def start(self) -> None:
        """Start, and wait until clients are served; does nothing where it runs already.

        Raises
        ------
        BrokerError
            There is no Java, there are no jars, or the broker ended or did not start in time; the message has the
            last lines of its log.
        """
        if self._kept.started:
            return
        command = [java("A Kafka broker"), *_JAVA_OPTIONS, "-cp", f"{self._checked_jars()}/*"]
        self._directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            taken = [] if self._port is None else [self._port]  # nobody listens on it now
            clients, controller = [*taken, *free_ports(2 - len(taken), *taken)]
            self._prepare(command, clients, controller)
            try:
                self._run(command)
            except BrokerError as error:
                # Someone else may take a free port before the broker does.
                fixed = f"{HOST}:{self._port}:" in error.reason
                if fixed or attempt + 1 == _ATTEMPTS or _PORT_TAKEN not in error.reason:
                    raise
            else:
                self._port = clients
                return

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
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"{protocol}://{HOST}:{clients},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{protocol}://{HOST}:{clients}",
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
                raise BrokerError(with_log("The broker's directory cannot be made ready", done.stderr))

    def _run(self, command: list[str]) -> None:
        self._kept.start([*command, "kafka.Kafka", "server.properties"])
        self._kept.wait(lambda: _STARTED in self._kept.said())
