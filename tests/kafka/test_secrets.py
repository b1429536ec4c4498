"""Passwords: they open a broker and a registry, and are shown nowhere, whether they are right or wrong."""

from __future__ import annotations

import logging
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tablestream.errors import ArgumentError, PlanError
from tests.broker.fixtures import JARS
from tests.kafka.registry import schema_registry
from tests.kafka.secured import client_settings, options, secured_broker
from tests.kafka.topics import Topics, record
from tests.spark.change_logs import ALL, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.sink import Sink
    from tablestream.spark.requests import OutputRequest

CANARY = "CANARY-77f0"
RIGHT, WRONG, REGISTRY, TOKEN = (f"{CANARY}-{kind}" for kind in ("right", "wrong", "registry", "token"))
QUOTE = {"type": "record", "name": "Quote", "fields": [{"name": "ticker", "type": ["null", "string"]}]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where keys and certificates are."""
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def secured(directory: Path) -> Iterator[Topics]:
    """Topics of a broker that wants a password."""
    with secured_broker(JARS, directory, RIGHT) as broker:
        yield Topics(broker.bootstrap_servers, "", client_settings(directory, RIGHT))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workers' cache, to be looked at."""
    monkeypatch.setenv("TABLESTREAM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@contextmanager
def all_that_is_logged(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    spark.sparkContext.setLogLevel("INFO")  # Py4J's debug log has every call with its arguments
    try:
        with caplog.at_level(logging.INFO):
            yield
    finally:
        spark.sparkContext.setLogLevel("ERROR")


def files_with(secret: str, *directories: Path) -> list[Path]:
    """The files that have a secret in their bytes; there have to be some."""
    files = [file for one in directories for file in one.rglob("*") if file.is_file()]
    assert all(any(one in file.parents for file in files) for one in directories)
    return [file for file in files if secret.encode() in file.read_bytes()]


class Plan:
    """A topic joined with another, into a topic and into files: with all the secrets that there are."""

    def __init__(
        self, spark: SparkSession, topics: Topics, directory: Path, registry: str, password: str, target: Path
    ) -> None:
        known: dict[str, Any] = {
            "bootstrap_servers": topics.servers,
            "options": options(directory, password, RIGHT),
        }
        avro = ts.confluent_avro({"url": registry, "basic.auth.user.info": f"me:{REGISTRY}"}, schema=QUOTE)
        self.frame = ts.from_kafka(spark, "positions", key="string", value="ticker string", **known)
        positions = ts.table(self.frame, key="key", name="positions")
        quotes = ts.from_kafka(spark, "quotes", key="string", value=avro, **known)
        tickers = ts.table(quotes, key="key", columns="ticker", name="tickers")
        self.joined = positions.join(tickers, on="ticker", select=lambda _, t: [t.ticker])
        sinks: tuple[Sink, ...] = (
            ts.to_kafka("joined", key="string", value=avro, **known),
            ts.to_files(target, options={"fs.s3a.secret.key": TOKEN, "token": TOKEN, "path.sig": TOKEN}),
        )
        self.outputs: list[OutputRequest] = [
            self.joined.to(sink, name=f"out{number}") for number, sink in enumerate(sinks)
        ]

    def explained(self) -> str:
        """All that a user can look at before the query starts; Spark's own plan is printed."""
        self.frame.explain(True)
        self.joined.explain()
        return repr([self.frame, self.joined, self.outputs, [one.sink for one in self.outputs]])


def test_secrets_open_a_broker_and_are_in_no_plan_log_error_or_file(
    spark: SparkSession,
    secured: Topics,
    directory: Path,
    tmp_path: Path,
    cache: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SASL over TLS, in and out; then the same with a wrong password, which ends the query."""
    for topic in ("positions", "quotes", "joined"):
        secured.make(topic)
    secured.send("positions", [record("a", {"ticker": "ACME"})])
    with schema_registry(user=f"me:{REGISTRY}") as registry, all_that_is_logged(spark, caplog):
        number = registry.add("quotes-value", QUOTE)
        secured.send("quotes", [record("ACME", b"\x00" + number.to_bytes(4) + b"\x02\x02A")])
        good = Plan(spark, secured, directory, registry.url, RIGHT, tmp_path / "files")
        shown = good.explained()
        query = ts.start(*good.outputs, checkpoint=tmp_path / "checkpoint", trigger=ALL)
        query.awaitTermination()
        query.explain(True)
        assert [one.value for one in secured.read("joined")] == [b"\x00\x00\x00\x00\x01\x02\x02A"]
        with pytest.raises(PlanError, match="nosuch") as refused:
            ts.table(good.frame, key="nosuch")
        shown += chain(refused.value)

        bad = Plan(spark, secured, directory, registry.url, WRONG, tmp_path / "wrong_files")
        shown += bad.explained()
        with pytest.raises(
            StreamingQueryException, match=r"SaslAuthenticationException|Authentication failed"
        ) as ended:
            run(*bad.outputs, checkpoint=tmp_path / "wrong")
        shown += chain(ended.value)
    shown += caplog.text + "".join(capfd.readouterr())
    assert "Authentication failed" in shown
    assert len(shown) > 100_000  # plans and logs are there
    assert [line for line in shown.splitlines() if CANARY in line] == []
    assert files_with(CANARY, *(tmp_path / one for one in ("checkpoint", "files", "wrong")), cache) == []


def chain(error: BaseException) -> str:
    """An error as its user sees it, with all that caused it."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize("take", [ts.to_files, ts.to_delta])
def test_a_password_in_a_url_is_refused(take: Callable[[str], object]) -> None:
    """Hadoop would take it, and Spark writes paths into plans, logs and checkpoints."""
    with pytest.raises(ArgumentError, match=r"a URL that contains a secret.*fs\.s3a\.secret\.key") as refused:
        take(f"s3a://key:{CANARY}@bucket/log")
    assert CANARY not in chain(refused.value)
    for harmless in ("s3a://bucket/a:b@c", "hdfs://host:8020/u@corp", "abfss://box@acct.dfs/x", "log/a:b@c"):
        take(harmless)


def test_so_it_is_where_files_and_checkpoints_are_read(spark: SparkSession) -> None:
    url = f"s3a://key:{CANARY}@bucket/log"
    output = ts.table(spark.readStream.format("rate").load(), key="value", order_by="timestamp", name="t").to(
        ts.to_memory("url")
    )
    for use in (
        lambda: ts.from_files(spark, url, "json", "id int"),
        lambda: ts.start(output, checkpoint=url),
        lambda: ts.read_state(spark, url, "t"),
    ):
        with pytest.raises(ArgumentError, match="a URL that contains a secret") as refused:
            use()
        assert CANARY not in chain(refused.value)
