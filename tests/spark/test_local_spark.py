"""Java: what is missing and what to install, and how Spark starts it. Spark itself is started once here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.spark.local_spark import JavaError, check_java, make_home, stderr_into
from tests.cli.programs import done

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, version: str, *, vector: bool = True) -> None:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuses = "false" if vector else '[ "$1" = --add-modules ]'
    binary.write_text(
        f"#!/bin/sh\nif {refuses}; then exit 1; fi\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"
    )
    binary.chmod(0o755)


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"no java on the PATH.*apt-get install openjdk-17-jre-headless"):
        check_java()


def test_a_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="JAVA_HOME is"):
        check_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.2", 11), ("16", 16)])
def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"needs Java 17 or newer.* is Java {major}"):
        check_java()


def test_a_java_that_lacks_the_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "21.0.1", vector=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"jdk\.incubator\.vector"):
        check_java()


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21.0.1", 21), ("25", 25)])
def test_a_good_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == major


def test_a_session_of_this_computer_is_refused_beside_another_and_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "a session")
    with pytest.raises(ArgumentError, match="A Spark session runs already"):
        ts.local_session()
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(ArgumentError, match="master='spark://h:7077' is not on this computer"):
        ts.local_session("spark://h:7077")


def test_a_home_has_links_and_no_zip(tmp_path: Path) -> None:
    """It is made again over an older one."""
    for _ in range(2):
        make_home(tmp_path / "home")
    assert {"bin", "jars"} <= {one.name for one in (tmp_path / "home").iterdir()}
    assert (tmp_path / "home" / "bin" / "spark-submit").exists()
    assert not list(tmp_path.glob("home/**/pyspark.zip"))


LOCAL_SESSION = """
import sys
from pathlib import Path
import tablestream as ts
spark = ts.local_session("local[1]", memory="700m", settings={"spark.ui.enabled": "false", "spark.app.name": "mine"})
(path,) = spark.sparkContext.range(1).map(lambda _: sys.path).collect()
java = spark.sparkContext._jvm.java.lang
print(any(one.endswith("pyspark.zip") and Path(one).exists() for one in path))
print(java.Runtime.getRuntime().maxMemory() >> 20)
print(spark.sparkContext.appName, spark.conf.get("spark.driver.host"))
spark.stop()
"""


@pytest.mark.spark
def test_a_session_of_this_computer_starts_pythons_without_the_zip(tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    ran = subprocess.run(
        [sys.executable, "-c", LOCAL_SESSION],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    zipped, memory, name, host = ran.stdout.split()
    assert (zipped, name, host) == ("False", "mine", "127.0.0.1")
    assert 600 < int(memory) <= 700


STARTS = """
import sys
from pathlib import Path
from tablestream.spark.local_spark import local_spark
with local_spark(Path("scratch"), Path("log"), is_long=sys.argv[1] == "long"):
    pass
"""


def arguments_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: str, variables: dict[str, str], defaults: str
) -> list[str]:
    """Start a session with a java that writes down how Spark is started, and does not start it."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"{defaults}\n")
    home = os.environ.get("JAVA_HOME")
    real = f"{home}/bin/java" if home else shutil.which("java")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f'*launcher.Main*|*-version*) exec {real} "$@" ;;\n'
        f'*) echo "$*" > {tmp_path}/started; exit 1 ;;\nesac\n'
    )
    java.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_DRIVER_MEMORY", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    ended = done("-c", STARTS, length, variables={"JAVA_HOME": str(tmp_path / "java"), **variables})
    assert "JAVA_GATEWAY_EXITED" in ended.stderr, ended.stderr
    return (tmp_path / "started").read_text().split()


@pytest.mark.parametrize(
    ("length", "variables", "heap"),
    [
        ("short", {}, "2g"),
        ("long", {}, "2g"),
        ("long", {"SPARK_DRIVER_MEMORY": "3g"}, "3g"),
        ("short", {"PYSPARK_SUBMIT_ARGS": "--driver-memory 4g pyspark-shell"}, "4g"),
        ("long", {"SPARK_CONF_DIR": "conf"}, "5g"),
    ],
)
def test_java_has_the_memory_that_the_user_says_and_both_compilers_for_long_runs(
    length: str, variables: dict[str, str], heap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = arguments_of_java(tmp_path, monkeypatch, length, variables, "spark.driver.memory 5g")
    assert [word for word in started if word.startswith("-Xmx")] == [f"-Xmx{heap}"]
    assert ("-XX:TieredStopAtLevel=1" in started) == (length == "short")
    assert any(word.startswith("-Dlog4j2.configurationFile=") for word in started)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"SPARK_CONF_DIR": "conf"}, "defaults"),
        ({"PYSPARK_SUBMIT_ARGS": "--driver-java-options -Dmine=arguments pyspark-shell"}, "arguments"),
        ({"SPARK_SUBMIT_OPTS": "-Dmine=environment"}, "environment"),
    ],
)
def test_the_user_s_options_of_java_come_after_those_of_the_command_line(
    variables: dict[str, str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = "spark.driver.extraJavaOptions -Dmine=defaults"
    started = arguments_of_java(tmp_path, monkeypatch, "short", variables, defaults)
    names = [word.partition("=")[0] for word in started]
    assert [word for word in started if word.startswith("-Dmine=")] == [f"-Dmine={place}"]
    for own in ("-XX:TieredStopAtLevel", "-Dlog4j2.configurationFile"):
        assert names.count(own) == 1
        assert names.index(own) < names.index("-Dmine")


def test_child_processes_write_to_the_log_and_this_one_does_not(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with stderr_into(log):
        subprocess.run(["sh", "-c", "echo from the child >&2"], check=True)
    assert log.read_text() == "from the child\n"
    assert os.fstat(2).st_ino != log.stat().st_ino
