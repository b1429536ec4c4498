"""`make demo-cdc` and the tutorial about databases, with real servers that are killed on the way."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.database import shop
from examples.database.__main__ import INTERRUPTED
from examples.database.driver import Driver
from examples.database.query import start
from examples.database.run import KILLS, Demo, Options
from examples.database.servers import MissingError, Servers, check_requirements
from examples.demo.display import TextDisplay
from tests.faults.processes import below
from tests.pages import BLOCK
from tests.postgres.database import needs_server
from tests.test_readme import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = ROOT / ".jars"
TUTORIAL = ROOT / "docs" / "tutorial-database.md"
PATIENCE_S = 400.0
FULL = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.slow]


@pytest.fixture
def connector() -> None:
    """Skip where a user has not fetched what the servers need; `make test` fetches all of it."""
    needs_server()
    if not any(JARS.glob("connect/*/debezium-connector-postgres-*.jar")):
        pytest.skip("Debezium's connector is not in .jars/connect; fetch it with `make connector`")


class TestDemo:
    pytestmark = FULL

    @pytest.mark.usefixtures("connector")
    def test_after_kills_the_join_is_the_databases_and_so_was_every_state(self, tmp_path: Path) -> None:
        said = io.StringIO()
        options = Options(tmp_path, JARS, commits=80, per_s=4, seed=11, patience_s=PATIENCE_S)
        assert Demo(options, TextDisplay(said)).run(), said.getvalue()
        told = " ".join(said.getvalue().split())
        for _, part in KILLS:
            assert f"Started again: the {part}." in told
        assert "rows are equal." in told
        assert "Every state was one of the database's, in their order." in told
        assert max(map(len, said.getvalue().splitlines())) <= 80

    @pytest.mark.exhaustive
    @pytest.mark.usefixtures("connector")
    def test_ctrl_c_ends_all_that_was_started(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "examples.database", "--output", str(tmp_path), "--jars", str(JARS)]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if "Starting the streaming query" in line:
                    break
            children = below(demo.pid)
            for program in ("postgres", "kafka.Kafka", "ConnectStandalone"):
                assert any(program in one for one in children.values()), children
            demo.send_signal(signal.SIGINT)
            assert "all that was started has ended" in demo.stdout.read()
        assert demo.returncode == INTERRUPTED
        assert [one for pid, one in children.items() if Path(f"/proc/{pid}").exists()] == []


class TestTutorial:
    pytestmark = FULL

    @pytest.mark.exhaustive
    @pytest.mark.usefixtures("connector")
    def test_the_blocks_run_and_show_what_the_page_shows(self, tmp_path: Path) -> None:
        """Statements go to the shop, and what the page shows of the report appears in it."""
        with Servers(JARS, tmp_path / "servers") as servers:
            servers.broker.start()
            servers.start_connector()
            driver = Driver(servers, JARS, tmp_path / "query")
            try:
                for language, text in blocks():
                    follow(language, text, servers, driver)
            finally:
                driver.stop()


def blocks() -> Iterator[tuple[str, str]]:
    """The blocks of the tutorial, in their order."""
    yield from BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))


def follow(language: str, text: str, servers: Servers, driver: Driver) -> None:
    """Do what a block says, or wait for what it shows."""
    if language == "sql":
        run_sql(servers.shop, text)
    elif text.startswith("SELECT "):
        query, shown = text.split("\n\n", 1)
        await_rows(servers.reports, query, shown.strip(), driver)
    elif text == "kill connector\n":
        servers.connector.kill()
        servers.start_connector()
    elif text == "kill broker\n":
        servers.broker.kill()
        servers.broker.start()
    elif text.startswith("python -m examples.database.query"):
        driver.start()
    elif text.startswith("kill -9 "):
        driver.kill()


def psql(conninfo: str, query: str) -> str:
    """What ``psql`` prints."""
    done = subprocess.run(["psql", "-X", conninfo, "-c", query], capture_output=True, text=True, check=False)
    return "\n".join(line.rstrip() for line in (done.stdout or done.stderr).strip().splitlines())


def run_sql(conninfo: str, text: str) -> None:
    done = subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", conninfo], input=text, text=True, check=False
    )
    assert done.returncode == 0, text


def await_rows(conninfo: str, query: str, shown: str, driver: Driver) -> None:
    deadline = time.monotonic() + PATIENCE_S
    wanted = "\n".join(line.rstrip() for line in shown.splitlines())
    while (found := psql(conninfo, query)) != wanted:
        assert not driver.ended, driver.last_words()
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def test_the_tutorial_shows_the_query_of_the_program() -> None:
    import inspect

    shown = [text for language, text in blocks() if language == "python"]
    assert shown == [inspect.getsource(shop.order_details), inspect.getsource(start)]


def test_the_tutorial_kills_all_parts() -> None:
    """So that a block that is written in another way is not passed over."""
    texts = [text for _, text in blocks()]
    assert [text for text in texts if text.startswith(("kill c", "kill b"))] == [
        "kill connector\n",
        "kill broker\n",
    ]
    assert sum(text.startswith("kill -9 ") for text in texts) == 1
    assert sum(text.startswith("SELECT ") for text in texts) >= 4


@pytest.mark.parametrize(
    ("present", "command"),
    [
        ([], "make jars"),
        (["spark-sql-kafka-1.jar", "broker/kafka_1.jar", "broker/connect-runtime-1.jar"], "make connector"),
    ],
)
def test_what_is_missing_is_said_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], command: str
) -> None:
    monkeypatch.setattr("examples.database.servers.check_java", lambda: 17)
    monkeypatch.setattr("examples.database.servers.programs", lambda: tmp_path)
    for name in present:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(MissingError, match=command):
        check_requirements(tmp_path)
    monkeypatch.setattr("examples.database.servers.programs", lambda: None)
    with pytest.raises(MissingError, match="make postgres"):
        check_requirements(tmp_path)
