"""The contestants with topics: both give the join's last values, and Kafka Streams is counted and cut honestly."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.contestants import kafka_streams, load
from benchmarks.contestants.kafka import final_join, last_values
from benchmarks.contestants.kafka_streams import Sample, compiled, javac, read_samples, run_of, run_program
from benchmarks.launch import Task
from benchmarks.nexmark.queries import differing_rows
from benchmarks.processes import is_running
from benchmarks.ratios import ratios_of
from benchmarks.results import MicroBatch, Run
from benchmarks.workload import Workload, prepare
from tests.broker.kept import BrokerError, Kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = Path(__file__).parent.parent.parent / ".jars"
WORKLOAD = Workload(1_200, 100, 120, 25, micro_batches=3)


@pytest.mark.exhaustive
@pytest.mark.broker
@pytest.mark.parametrize("name", ["kafka", "kafka-streams"])
def test_the_last_values_in_the_target_are_those_of_batch_sql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "kafka-streams" and (shutil.which("javac") is None or not (JARS / "streams").exists()):
        pytest.skip("there is no Java compiler, or no jars of Kafka Streams (`make streams` fetches them)")
    monkeypatch.setattr(kafka_streams, "COMMIT_MS", 500)
    task = Task(name, str(prepare(WORKLOAD, tmp_path)), str(tmp_path / "work"), str(JARS), 3, "1g")
    Path(task.work).mkdir()
    run = load(name)(spark, task)
    assert run.facts["last values equal to batch SQL"] == "yes"
    assert run.facts["keys in the target"] == 100
    assert run.rows_in == 1_320
    assert run.changes_out == run.facts["records in the target"] >= 100
    assert len(run.micro_batches) == 3


def test_the_last_record_of_a_key_counts_with_all_its_values(spark: SparkSession, tmp_path: Path) -> None:
    task = Task("kafka", str(prepare(WORKLOAD, tmp_path)), str(tmp_path), jars="", micro_batches=3)
    expected = final_join(spark, task)
    assert expected.count() == 100
    records = expected.selectExpr(
        "cast(cast(item_id as string) as binary) key",
        "cast(to_json(struct(customer_id, item, amount, customer, score)) as binary) value",
        "item_id + 1000 offset",
    )
    older = records.selectExpr("key", "cast('{}' as binary) value", "offset - 1000 offset")
    assert differing_rows(last_values(records.union(older)), expected) == 0
    newer = older.where("offset = 7").selectExpr("key", "value", "offset + 2000")
    assert differing_rows(last_values(records.union(newer)), expected) == 2


def test_a_run_is_cut_at_thirds_of_its_input_and_ends_with_its_last_record() -> None:
    samples = [
        Sample(100.0, 0, 0),
        Sample(104.0, 290, 0),
        Sample(105.0, 310, 10),
        Sample(106.0, 500, 20),
        Sample(107.0, 700, 400),
        Sample(108.0, 900, 500),
        Sample(109.5, 900, 600),
        Sample(139.5, 900, 600),
    ]
    run = run_of("kafka-streams", samples)
    assert run.wall_s == 9.5
    assert run.micro_batches == [
        MicroBatch(0, 100.0, 5.0, 310, 10),
        MicroBatch(1, 105.0, 2.0, 390, 390),
        MicroBatch(2, 107.0, 2.5, 200, 200),
    ]
    assert run.rate == pytest.approx(900 / 9.5)
    assert run.steady_rate == pytest.approx(590 / 4.5)
    assert run.output_rate == pytest.approx(600 / 9.5)
    assert run.steady_output_rate == pytest.approx(590 / 4.5)


def test_samples_are_read_as_the_program_prints_them(tmp_path: Path) -> None:
    (tmp_path / "samples.txt").write_text("1.795559747901E9 51095 7\n1.7955597481E9 51100 8\n")
    assert read_samples(tmp_path / "samples.txt") == [
        Sample(1_795_559_747.901, 51_095, 7),
        Sample(1_795_559_748.1, 51_100, 8),
    ]


def test_the_library_is_held_to_three_times_the_changes_and_twelve_times_the_outputs() -> None:
    runs = {
        "kafka": Run("kafka", 10.0, [MicroBatch(n, 0, 5, 600, 1_200) for n in range(2)]),
        "kafka-streams": Run("kafka-streams", 40.0, [MicroBatch(n, 0, 20, 600, 300) for n in range(2)]),
    }
    found = {ratio.name: (ratio.figure, ratio.target) for ratio in ratios_of(runs)}
    assert found == {
        "every change, Kafka / Kafka Streams: changes/s": (4.0, 3),
        "every change, Kafka / Kafka Streams: changes/s, steady": (4.0, 3),
        "every change, Kafka / Kafka Streams: outputs/s": (16.0, 12),
        "every change, Kafka / Kafka Streams: outputs/s, steady": (16.0, 12),
    }


def test_a_runtime_without_a_compiler_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=r"no javac in .*apt-get install openjdk-17-jdk") as raised:
        javac()
    assert "\n" not in str(raised.value)
    (tmp_path / "kafka-streams-4.3.0.jar").touch()
    with pytest.raises(BrokerError, match="no javac"):
        compiled(tmp_path, tmp_path / "classes")


def test_the_class_path_holds_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "javac").symlink_to(shutil.which("true") or "true")
    (tmp_path / "kafka-streams-4.3.0.jar").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = compiled(Path(), Path("classes")).split(os.pathsep)
    assert found == [str(tmp_path / "classes"), str(tmp_path / "kafka-streams-4.3.0.jar")]


def test_missing_jars_are_named_with_the_command_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"no jars of Kafka Streams in .*`make streams`"):
        compiled(tmp_path, tmp_path / "classes")


def program(tmp_path: Path, *lines: str) -> str:
    """Write a program that takes the place of Java."""
    file = tmp_path / "program"
    file.write_text("\n".join([f"#!{sys.executable}", *lines]))
    file.chmod(0o755)
    return str(file)


def test_a_program_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "java.io.IOException: tried again",
        "java.lang.IllegalStateException: stuck",
        "\tat Main.main(Main.java:1)",
    )
    failing = program(tmp_path, *(f"print({line!r})" for line in said), "raise SystemExit(3)")
    monkeypatch.setattr(kafka_streams, "java", lambda _: failing)
    with pytest.raises(BrokerError, match=r"ended with code 3: java\.lang\.IllegalStateException: stuck$"):
        run_program([], [], tmp_path)


def test_the_program_ends_when_the_benchmark_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = program(tmp_path, "import os, time", "print(os.getpid(), flush=True)", "time.sleep(3600)")
    monkeypatch.setattr(kafka_streams, "java", lambda _: endless)
    pids: list[int] = []

    def interrupted(self: Kept) -> int:
        while not self.said().endswith("\n"):
            time.sleep(0.05)
        pids.append(int(self.said()))
        raise KeyboardInterrupt

    monkeypatch.setattr(Kept, "ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_program([], [], tmp_path)
    assert not is_running(pids[0])
