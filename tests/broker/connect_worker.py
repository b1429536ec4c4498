"""A worker of Kafka Connect with Debezium's PostgreSQL connector, on the loopback address.

One process that reads the log of a database, and writes a topic for each table and one for the transactions.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.broker.kept import HOST, BrokerError, Server, free_port, java, with_log

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
_JAVA_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_REST_TIMEOUT_S = 5.0
_META = "meta"
_FETCH = "Fetch it: in a clone of tablestream, `make connector` puts it into .jars/connect."


class ConnectWorker(Server):
    """A worker with one connector, which ends with the process that started it, however that ends.

    Parameters
    ----------
    jars
        The directory with the broker's jars, which have Kafka Connect too.
    plugins
        The directory with Debezium's connector; ``scripts/fetch_connector.py`` fills it.
    brokers
        Kafka's addresses.
    name
        The connector's name, its slot in the database, and the prefix of its topics.
    database
        The connector's settings of the database: ``database.hostname`` and the like, ``table.include.list``.
    partitions
        Of the topics of tables.
    directory
        Where settings, offsets and ``connect.log`` are kept. Default: a temporary directory, removed by `close`.

    Notes
    -----
    `kill` ends it as a crash does, and `start` goes on from the offsets that it had noted: it writes again what it
    wrote since.

    Examples
    --------
    >>> with ConnectWorker(jars, plugins, servers, "shop", {"database.dbname": "shop"}) as worker:  # doctest: +SKIP
    ...     worker.kill()
    ...     worker.start()
    """

    def __init__(
        self,
        jars: str | os.PathLike[str],
        plugins: str | os.PathLike[str],
        brokers: str,
        name: str,
        database: Mapping[str, str],
        *,
        partitions: int = 2,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._jars, self._plugins = Path(jars), Path(plugins)
        super().__init__("The worker of Kafka Connect", "connect", directory)
        self._brokers, self._name, self._port = brokers, name, free_port()
        self._connector = _connector(name, partitions) | dict(database)

    @property
    def state(self) -> str:
        """What the worker says of its connector: ``RUNNING``, ``FAILED``, or ``DOWN`` if nothing answers."""
        url = f"http://{HOST}:{self._port}/connectors/{self._name}/status"
        try:
            with urllib.request.urlopen(url, timeout=_REST_TIMEOUT_S) as answer:
                told: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return "DOWN"
        states = {told["connector"]["state"], *(task["state"] for task in told["tasks"])}
        if "FAILED" in states:
            return "FAILED"
        return "RUNNING" if told["tasks"] and states == {"RUNNING"} else "STARTING"

    def start(self) -> None:
        """Start, and wait until the connector runs; does nothing where it runs already.

        Raises
        ------
        BrokerError
            There is no Java, jars or connector are missing, or the connector failed or did not start in time; the
            message has lines of its log.
        """
        if self._kept.started:
            return
        command = [
            java("A worker of Kafka Connect"),
            *_JAVA_OPTIONS,
            "-cp",
            f"{self._checked_jars()}/*",
            _MAIN,
        ]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write("worker.properties", self._worker())
        self._write("connector.properties", self._connector)
        self._kept.start([*command, "worker.properties", "connector.properties"])
        self._kept.wait(self._runs)

    def _runs(self) -> bool:
        """Whether the connector runs; raises if it failed, which no waiting mends."""
        state = self.state
        if state == "FAILED":
            raise BrokerError(with_log("The connector failed", self._kept.said()))
        return state == "RUNNING"

    def _checked_jars(self) -> Path:
        if not any(self._jars.glob("connect-runtime-*.jar")):
            raise BrokerError(
                f"There are no jars of Kafka Connect in {self._jars}.",
                hint="Fetch them: in a clone of tablestream, `make jars` puts them into .jars/broker.",
            )
        if not any(self._plugins.glob("*/debezium-connector-*.jar")):
            raise BrokerError(f"Debezium's connector is not in {self._plugins}.", hint=_FETCH)
        return self._jars.resolve()

    def _worker(self) -> dict[str, str]:
        """The settings of the worker."""
        plain = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._brokers,
            "listeners": f"http://{HOST}:{self._port}",
            "plugin.path": str(self._plugins.resolve()),
            "plugin.discovery": "service_load",  # reads manifests, where a scan would load every class
            "offset.storage.file.filename": str(self._directory / "offsets"),
            "offset.flush.interval.ms": "2000",
            **{f"{part}.converter": plain for part in ("key", "value")},
            **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
        }

    def _write(self, file: str, settings: Mapping[str, str]) -> None:
        path = self._directory / file
        path.touch(mode=0o600)  # there is a password in it
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")


def _connector(name: str, partitions: int) -> dict[str, str]:
    """The settings of a connector that tells of whole transactions; topics that order all have one partition."""
    return {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "topic.prefix": name,
        "provide.transaction.metadata": "true",
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.default.replication.factor": "1",
        "topic.creation.groups": _META,
        f"topic.creation.{_META}.include": ".*[.]transaction",
        f"topic.creation.{_META}.partitions": "1",
        f"topic.creation.{_META}.replication.factor": "1",
    }
