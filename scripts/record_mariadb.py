"""Record what Debezium writes for a MariaDB under load: ``python -m scripts.record_mariadb --plugins DIRECTORY``.

It starts MariaDB, a broker and a worker of Kafka Connect for each form on the loopback address, runs the load of
`scripts.mariadb_load`, kills the workers in the middle of it, and writes ``tests/golden/cdc/mariadb_*.jsonl.xz``, which
`tests.cdc.recording` reads. It needs what ``make test`` does not:

=====================  ===========================================================================================
MariaDB                ``sudo apt-get install mariadb-server``
PyMySQL                ``pip install pymysql``
Debezium's connector   ``mvn dependency:unpack -DoutputDirectory=DIRECTORY
                       -Dartifact=io.debezium:debezium-connector-mariadb:3.5.0.Final:tar.gz:plugin``
the broker's jars      ``make jars``
=====================  ===========================================================================================
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from scripts.mariadb_load import BESIDE, PRELOAD, SCHEMA, Load
from tests.broker.connect_worker import ConnectWorker
from tests.broker.kafka_broker import KafkaBroker
from tests.broker.kept import HOST, BrokerError
from tests.broker.mariadb_server import MariadbServer

_ROOT = Path(__file__).parent.parent
_GOLDEN = _ROOT / "tests" / "golden" / "cdc"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_WAIT_S = 180.0
_FIELDS = (
    "op,source.ts_ms,source.file,source.pos,source.snapshot,source.connector,"
    "transaction.id,transaction.total_order"
)
#: Each capture: the number of partitions, and what its connector has beside the settings of all.
FORMS: dict[str, tuple[int, dict[str, str]]] = {
    "plain3": (3, {}),
    "schema1": (1, {f"{one}.converter.schemas.enable": "true" for one in ("key", "value")}),
    "flat3": (
        3,
        {
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
            "transforms.unwrap.add.fields": _FIELDS,
        },
    ),
}


class Recorder:
    """The topics of all captures, read as far as they are."""

    def __init__(self, brokers: str) -> None:
        self._settings = {
            "bootstrap.servers": brokers,
            "group.id": "recorder",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }

    def ends(self, prefix: str) -> dict[str, list[int]]:
        """The end offsets of a capture's topics, by partition."""
        consumer = Consumer(self._settings)
        try:
            return {
                name: [
                    consumer.get_watermark_offsets(TopicPartition(name, one), timeout=10)[1]
                    for one in sorted(topic.partitions)
                ]
                for name, topic in consumer.list_topics(timeout=10).topics.items()
                if name.startswith(f"{prefix}.")
            }
        finally:
            consumer.close()

    def records(self, ends: Mapping[str, list[int]]) -> Iterator[list[Any]]:
        """The records below the ends, partition by partition."""
        consumer = Consumer(self._settings)
        try:
            for topic, partitions in sorted(ends.items()):
                for partition, end in enumerate(partitions):
                    yield from _partition(consumer, topic, partition, end)
        finally:
            consumer.close()


def _partition(consumer: Consumer, topic: str, partition: int, end: int) -> Iterator[list[Any]]:
    offset = 0
    consumer.assign([TopicPartition(topic, partition, 0)])
    while offset < end:
        message = consumer.poll(20)
        if message is None or message.error():
            raise BrokerError(f"{topic} {partition} cannot be read: {message and message.error()}")
        offset = message.offset() + 1
        headers = [
            [name, _text(value)]
            for name, value in message.headers() or []
            if not name.startswith("__debezium.context.")
        ]
        said = [topic, partition, message.offset(), message.timestamp()[1]]
        yield [*said, _text(message.key()), _text(message.value()), headers]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8")


def _worker(
    given: argparse.Namespace, broker: KafkaBroker, server: MariadbServer, form: str, directory: Path
) -> ConnectWorker:
    partitions, further = FORMS[form]
    settings = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": HOST,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.server.id": str(9000 + list(FORMS).index(form)),
        "database.include.list": "shop",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(directory / f"history-{form}"),
        "key.converter": _JSON,
        "value.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "value.converter.replace.null.with.default": "false",
        "header.converter": _JSON,
        "header.converter.schemas.enable": "false",
    }
    return ConnectWorker(
        given.jars / "broker",
        given.plugins,
        broker.bootstrap_servers,
        form,
        settings | further,
        partitions=partitions,
        directory=directory / form,
    )


def _quiet(load: Load, recorder: Recorder) -> dict[str, Any]:
    """Wait until every capture has the last commit; return the point."""
    last = load.mark()
    ends: dict[str, list[int]] = {}
    for form in FORMS:
        until = time.monotonic() + _WAIT_S
        while not _ended(recorder, form, last):
            if time.monotonic() > until:
                raise BrokerError(f"{form} does not get to {last}.")
            time.sleep(0.5)
        ends |= recorder.ends(form)
    return {"after_commit": len(load.commits), "ends": ends, "tables": load.tables()}


def _ended(recorder: Recorder, form: str, gtid: str) -> bool:
    """Whether the end of a transaction has been written."""
    topic = f"{form}.transaction"
    ends = {name: one for name, one in recorder.ends(form).items() if name == topic}
    last = [json.loads(value) for *_, value, _ in recorder.records(ends)][-1:]
    found = [one.get("payload", one) for one in last]
    return any(one["id"] == gtid and one["status"] == "END" for one in found)


def _write(name: str, rows: list[Any]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    (_GOLDEN / f"mariadb_{name}.jsonl.xz").write_bytes(packed)
    print(name, len(rows), len(packed))


def record(given: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
    """Run all, and write the recording."""
    server = stack.enter_context(MariadbServer(directory / "mariadb"))
    broker = stack.enter_context(KafkaBroker(given.jars / "broker", directory / "kafka"))
    load = Load(server, given.seed)
    load.run(*SCHEMA, *PRELOAD)
    workers = [_worker(given, broker, server, form, directory) for form in FORMS]
    for worker in workers:
        stack.callback(worker.close)
        worker.start()
    recorder = Recorder(broker.bootstrap_servers)
    points = [_quiet(load, recorder)]
    for part in range(1, 6):
        load.some(given.transactions // 10)
        if part == 2:
            load.finish()
            load.run("ALTER TABLE clients ADD COLUMN country VARCHAR(2)")
            load.run(*BESIDE)
        if part == 3:
            for worker in workers:
                worker.kill()
        load.some(given.transactions // 10)
        if part == 3:
            for worker in workers:
                worker.start()
        load.finish()
        points.append(_quiet(load, recorder))
        print(f"point {part} after commit {len(load.commits)}", flush=True)
    for form in FORMS:
        _write(form, list(recorder.records(recorder.ends(form))))
    _write("database", [*points, *load.commits])
    print(dict(load.done))


def main() -> None:
    """Read the command line, and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plugins", type=Path, required=True, help="the directory with Debezium's connector")
    parser.add_argument("--jars", type=Path, default=_ROOT / ".jars", help="where `make jars` put the jars")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--transactions", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tablestream-mariadb-") as directory, ExitStack() as stack:
        Path(directory).chmod(0o711)
        record(given, Path(directory), stack)


if __name__ == "__main__":
    main()
