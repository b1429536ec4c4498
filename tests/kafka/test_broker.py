"""The broker for tests: it keeps its data over a restart, says what it lacks, and outlives nobody."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pytest

from tests.broker import kafka_broker, keeper
from tests.broker.fixtures import JARS
from tests.broker.kafka_broker import BrokerError, KafkaBroker
from tests.broker.kept import Kept, free_port, free_ports
from tests.kafka.topics import Topics, record

pytestmark = pytest.mark.broker

#: Says its process id and never ends by itself; the second kind does not even when asked to.
SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def ends(process_id: int, seconds: float = 120) -> bool:
    """Wait until a process is gone; one that ended and that nobody has waited for counts as gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def told_id(output: IO[str] | None) -> int:
    assert output is not None
    return int(output.readline())


def test_data_and_address_outlive_a_restart() -> None:
    with KafkaBroker(JARS) as broker:
        address = broker.bootstrap_servers
        topic = Topics(address).make("kept")
        Topics(address).send(topic, [record("a", "one")])
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            connect(broker)
        broker.start()
        assert broker.bootstrap_servers == address
        connect(broker)
        assert [one.value for one in Topics(address).read(topic)] == [b"one"]


def connect(broker: KafkaBroker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port))).close()


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also with one that is killed, which can clean up nothing."""
    program = (
        "import os, sys, time\n"
        "from tests.broker.kafka_broker import KafkaBroker\n"
        f"broker = KafkaBroker({str(JARS)!r}, sys.argv[1])\n"
        "broker.start()\n"
        "print(broker._kept._keeper.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        keeper_id = told_id(other.stdout)
        other.kill()
    assert ends(keeper_id)
    said = (tmp_path / "broker.log").read_text(encoding="utf-8")
    assert said.index("Kafka Server started") < said.index("shut down completed")


@pytest.mark.parametrize("program", [SLEEPER, STUBBORN])
def test_the_keeper_ends_its_program_when_its_input_ends(program: str) -> None:
    command = [sys.executable, str(Path(keeper.__file__)), "0.2", sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kept:
        child = told_id(kept.stdout)
        assert kept.stdin is not None
        kept.stdin.close()
        assert ends(child)
        assert kept.wait() != 0


@pytest.mark.parametrize("program", [SLEEPER, STUBBORN])
def test_the_keeper_ends_its_program_when_it_is_asked_to_end(program: str) -> None:
    command = [sys.executable, str(Path(keeper.__file__)), "0.2", sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kept:
        child = told_id(kept.stdout)
        kept.terminate()
        assert kept.wait() != 0
        assert ends(child, 0.1)


def test_the_keeper_ends_with_its_program() -> None:
    command = [sys.executable, str(Path(keeper.__file__)), "5", sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kept:
        os.kill(told_id(kept.stdout), signal.SIGKILL)
        assert kept.wait() != 0


def test_a_program_that_ctrl_c_finds_starting_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process is there, and its object is not yet handed out."""
    made: list[subprocess.Popen[bytes]] = []
    before = signal.getsignal(signal.SIGINT)

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)
            signal.raise_signal(signal.SIGINT)

    kept = Kept("A sleeper", tmp_path, tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.start([sys.executable, "-c", SLEEPER])
    assert signal.getsignal(signal.SIGINT) is before
    kept.stop()
    assert made[0].poll() is not None


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BrokerError, match=r"needs Java 17 or newer.*none on the PATH.*apt-get install openjdk"
    ):
        KafkaBroker(JARS, tmp_path).start()


def test_no_jars(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"no jars of a Kafka broker in .*make jars"):
        KafkaBroker(tmp_path, tmp_path).start()


def test_settings_that_are_none(tmp_path: Path) -> None:
    broker = KafkaBroker(JARS, tmp_path, settings={"log.retention.bytes": "many"})
    with pytest.raises(BrokerError, match=r"(?s)cannot be made ready:.*log\.retention\.bytes"):
        broker.start()
    assert broker.bootstrap_servers == "127.0.0.1:0"  # the next start draws its ports


def test_a_controller_port_that_somebody_took_is_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Though the clients' port is given."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        drawn = iter([taken.getsockname()[1]])
        draw = free_ports
        monkeypatch.setattr(kafka_broker, "free_ports", lambda *given: list(islice(drawn, 1)) or draw(*given))
        with KafkaBroker(JARS, tmp_path, port=port) as broker:
            assert broker.bootstrap_servers == f"127.0.0.1:{port}"
            connect(broker)


def test_ports_that_are_drawn_together_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is given one port for both its listeners does not start."""
    used, one, other = free_ports(3)
    drawn = iter([one, one, used, other])
    monkeypatch.setattr(secrets, "choice", lambda _: next(drawn))
    assert free_ports(2, used) == [one, other]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = KafkaBroker(JARS, tmp_path, port=taken.getsockname()[1])
        with pytest.raises(BrokerError, match=r"(?s)The Kafka broker ended:.*Address already in use"):
            broker.start()
