"""PostgreSQL, Kafka and Debezium on this machine, on the loopback address, until the ``with`` ends."""

from __future__ import annotations

import importlib.util
import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.database.shop import PREFIX
from tablestream.errors import TablestreamError
from tablestream.spark.local_spark import check_java
from tests.broker.connect_worker import ConnectWorker
from tests.broker.kafka_broker import BrokerError, KafkaBroker
from tests.broker.kept import HOST, free_ports
from tests.broker.postgres_server import PostgresServer, programs

SHOP, REPORTS = "shop", "reports"
_SLOT_TIMEOUT_S = 120.0
_LOGICAL = {"wal_level": "logical", "max_replication_slots": "4", "max_wal_senders": "4"}
_CONNECT = "connect"


class MissingError(TablestreamError):
    """Something that must be installed or fetched first is missing."""

    code = "TABLESTREAM_DEMO"


def check_requirements(jars: Path) -> None:
    """Say what is missing.

    Parameters
    ----------
    jars
        Where ``make jars`` and ``make connector`` put what they fetch.

    Raises
    ------
    MissingError
        PostgreSQL, a package or jars are missing; the message says which command brings them.
    JavaError
        There is no Java that Spark can use.
    """
    check_java()
    if programs() is None:
        raise MissingError(
            "PostgreSQL's server programs (initdb, postgres) are missing.",
            hint="`make postgres` installs them, or says how.",
        )
    for package in ("psycopg", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingError(
                f"The package {package} is missing.",
                hint="`make env` installs it.",
            )
    wanted = {
        "spark-sql-kafka-*.jar": "make jars",
        "broker/kafka_*.jar": "make jars",
        "broker/connect-runtime-*.jar": "make jars",
        f"{_CONNECT}/*/debezium-connector-postgres-*.jar": "make connector",
    }
    for pattern, command in wanted.items():
        if not any(jars.glob(pattern)):
            raise MissingError(f"There is no {pattern} in {jars}.", hint=f"`{command}` fetches it.")


class Servers:
    """A PostgreSQL server with the databases ``shop`` and ``reports``, a broker, and a worker with the connector.

    Parameters
    ----------
    jars
        Where ``make jars`` and ``make connector`` put what they fetch.
    directory
        For the logs of broker and worker, their data and their settings.

    Attributes
    ----------
    shop, reports : str
        How to connect to the two databases.
    broker : KafkaBroker
        Not started yet.
    connector : ConnectWorker
        Not started yet; reads all tables of ``shop``.
    """

    def __init__(self, jars: Path, directory: Path) -> None:
        self._stack = ExitStack()
        self._port, broker_port = free_ports(2)
        self._server = PostgresServer(self._port, _LOGICAL)
        self.shop, self.reports = (
            self._server.conninfo.replace("dbname=postgres", f"dbname={name}") for name in (SHOP, REPORTS)
        )
        self.broker = KafkaBroker(jars / "broker", directory.resolve() / "kafka", port=broker_port)
        self.connector = ConnectWorker(
            jars / "broker",
            jars / _CONNECT,
            self.broker.bootstrap_servers,
            PREFIX,
            self._database(),
            directory=directory.resolve() / _CONNECT,
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._server)
            stack.callback(self.broker.close)
            stack.callback(self.connector.close)
            for name in (SHOP, REPORTS):
                self._run(f"CREATE DATABASE {name}")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_connector(self) -> None:
        """Start the worker, and wait until its connector reads the log of the database.

        Raises
        ------
        BrokerError
            It does not, within two minutes.
        """
        self.connector.start()
        end = time.monotonic() + _SLOT_TIMEOUT_S
        while not self._run("SELECT 1 FROM pg_replication_slots WHERE active"):
            if time.monotonic() > end or self.connector.state == "FAILED":
                raise BrokerError(f"The connector does not read the database; see {self.connector.log}.")
            time.sleep(0.2)

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def _database(self) -> dict[str, str]:
        """The connector's settings of the database."""
        return {
            "database.hostname": HOST,
            "database.port": str(self._port),
            "database.user": self._server.user,
            "database.password": self._server.password,
            "database.dbname": SHOP,
            "schema.include.list": "public",
            # Tables that are made later are read too.
            "publication.autocreate.mode": "all_tables",
        }


def jars_for_spark(jars: Path) -> None:
    """Let the session that this process starts have Spark's Kafka connector."""
    found = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {found} pyspark-shell"
