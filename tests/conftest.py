"""What all tests share: one local Spark session, marks that follow from fixtures, and Hypothesis' profiles.

Only a test that asks for the fixture ``spark`` starts the session. Tests with Spark or servers run last in one process,
and first when several processes share the tests: what is left at the end is then short, and no process waits for
another.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
JARS = sorted(str(jar) for jar in (ROOT / ".jars").glob("*.jar"))

#: In a run of minutes the second compiler costs more than it wins: it took 27 of the JVM's first 67 CPU seconds.
#: Without its native library Hadoop starts `chmod` and `readlink` for files of checkpoints, dozens in a micro-batch:
#: VFORK leaves out the helper through which Java starts each of them.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
#: The shared session lives for many minutes, and with the second compiler its later tests take two thirds of the time:
#: of two sessions side by side, the one with it had done 48 tests of SQL when the other had done 37. Java keeps 48 MB
#: of compiled code with one compiler. A session of hundreds of queries fills them, and sweeping took a sixth of its
#: CPU time. Larger room for young objects and for classes saves most collections.
LONG_SESSION = (
    f"{QUICK_JAVA} -XX:TieredStopAtLevel=4"
    " -XX:ReservedCodeCacheSize=240m -XX:NewSize=512m -XX:MetaspaceSize=256m"
)
#: Maps the classes that `make test` keeps, if they fit this Java: Spark starts in half the time.
KEPT_CLASSES = f"-XX:SharedArchiveFile={ROOT / 'build' / 'spark-classes.jsa'} -Xlog:disable"
#: PySpark without its zips, which `make test` keeps: Python keeps no compiled code of a zip's modules, and compiling
#: them anew takes most of the processor time of a Python that Spark starts on the driver, one a stateful stage.
SPARK_HOME = ROOT / "build" / "spark-home"


def has_spark_home() -> bool:
    """Say whether what is kept belongs to the PySpark of this Python."""
    spec = find_spec("pyspark")
    jars = SPARK_HOME / "jars"
    if spec is None or spec.origin is None:
        return False
    return jars.resolve() == Path(spec.origin).resolve().parent / "jars"


#: An environment without the clients of servers has no tests with servers (`make newest`).
pytest_plugins = ["tests.broker.fixtures"] if find_spec("psycopg") and find_spec("confluent_kafka") else []

# Before anything imports Polars or starts a JVM: workers are many, so one thread each; they run this Python.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK_JAVA} {KEPT_CLASSES}")
if has_spark_home():
    os.environ.setdefault("SPARK_HOME", str(SPARK_HOME.resolve()))
os.environ.setdefault("POLARS_MAX_THREADS", "1")
# Where this is set, each of the many Pythons that Spark starts compiles all modules anew, and pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["TZ"] = "UTC"  # collect() turns timestamps into this process's local time
time.tzset()

import pytest
from hypothesis import HealthCheck, settings
from py4j.java_gateway import JavaPackage, JVMView
from pyspark.sql import SparkSession

from tests import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPARK_SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    # Spark gives a Python worker 15 s to call back, which a loaded machine exceeds.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.ui.enabled": "false",
    # What the user interface would show of old queries fills the heap.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    # PySpark asks the JVM a dozen times for each method of a Column, to say in an error in which line it was called.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

DELTA_SETTINGS = {
    "spark.jars": ",".join(JARS),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}

#: For the shared session. Spark's default asks the program `readlink` four times for each file that it renames. The
#: sessions of processes that are killed, and those of users' programs, have the default.
FEWER_PROCESSES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

#: For the shared session, whose queries are small: Spark compiles Java for each expression of each query, and plans a
#: query anew behind each shuffle. A test has both as users do if it asks for `as_users_have_it`, as those of smoke, all
#: types and rows that fail do; and so have the sessions of other processes: bare ones, clusters, kills, programs.
LESS_WORK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

PARTITIONS = "spark.sql.shuffle.partitions"
#: For the shared session. Each further partition is a task in each stage, and a state store in each round of a
#: micro-batch. There are as many shards as ever. What several tasks do side by side is tested by what asks for
#: `several_partitions` or `in_partitions` (plans of all operators, order, a repeated micro-batch, evolving, bootstraps,
#: counts, damage, a key's state, Kafka, PostgreSQL), and in other processes (bare sessions, clusters, kills).
ONE_TASK = {PARTITIONS: "1"}


def remember_classes() -> None:
    """Let PySpark ask the JVM for each package and class once.

    It asks anew whenever it uses one, and Java then looks for the name in a dozen packages of three hundred jars. The
    metrics of a micro-batch did so for each of their rows: it was a tenth of the JVM's processor time.
    """
    for kind in (JVMView, JavaPackage):

        def once(this: Any, name: str, ask: Callable[[Any, str], Any] = kind.__getattr__) -> Any:
            found = vars(this)[name] = ask(this, name)
            return found

        kind.__getattr__ = once


settings.register_profile(
    "ci",
    max_examples=50,
    deadline=None,  # a loaded machine is no failure
    derandomize=True,  # the same change gives the same verdict
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("check", settings.get_profile("ci"), max_examples=10)
settings.register_profile("once", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: The fixtures from which a mark follows: `site` builds the documentation. Tests that start Spark or a broker
#: themselves carry the mark in their file.
FIXTURES = {"spark": {"spark"}, "broker": {"broker", "secured", "postgres"}, "slow": {"site"}}
#: The folders from which a mark follows. Nothing of the library depends on the examples' own data and displays.
FOLDERS = {"tests/faults/": "faults", "tests/demo/": "slow"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Say how many processes ``--numprocesses auto`` starts."""
    return machine.processes(machine.cores(), machine.memory())


def needs_spark(item: pytest.Item) -> bool:
    """Say whether a test asks for Spark, itself or by a fixture of its own."""
    return "spark" in getattr(item, "fixturenames", ())


def marks(item: pytest.Item) -> Iterator[str]:
    """Yield the marks that follow from a test's fixtures and from its folder."""
    asked = set(getattr(item, "fixturenames", ()))
    yield from (mark for mark, fixtures in FIXTURES.items() if asked & fixtures)
    if item.get_closest_marker("exhaustive") is not None:  # so `make check` leaves it out
        yield "slow"
    yield from (mark for folder, mark in FOLDERS.items() if item.nodeid.startswith(folder))


def place(item: pytest.Item) -> int:
    """Give a test's place in the order of one process, the longest last.

    Plain tests, what is slow without Spark, tests with Spark or servers, and of these the longest. Marks decide, so
    that a test whose programs start Spark or servers themselves is among those.
    """
    marked = {mark.name for mark in item.iter_markers()}
    if marked & {"spark", "broker", "faults"}:
        return 3 if marked & {"faults", "slow"} else 2
    return int("slow" in marked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and put them in order."""
    for item in items:
        for mark in marks(item):
            item.add_marker(mark)
    items.sort(key=place, reverse="PYTEST_XDIST_WORKER" in os.environ)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Stop the streaming queries that a test left running, whether it passed or not."""
    session = SparkSession.getActiveSession() if needs_spark(item) else None
    if session is not None:
        for query in session.streams.active:
            query.stop()


def long_session(warehouse: Path) -> SparkSession:
    """Start a session for hundreds of small queries."""
    remember_classes()
    builder = SparkSession.builder.master("local[2]").appName("tablestream tests")
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
    long = {"spark.driver.extraJavaOptions": LONG_SESSION} | FEWER_PROCESSES | LESS_WORK | ONE_TASK
    for name, value in (SPARK_SETTINGS | long | (DELTA_SETTINGS if JARS else {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with two cores for the whole run; Delta is there when ``.jars`` is filled."""
    if SparkSession.getActiveSession() is not None:
        pytest.fail("a test started a Spark session without asking for the fixture `spark`")
    session = long_session(tmp_path_factory.mktemp("warehouse"))
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def in_partitions(spark: SparkSession, number: int) -> Iterator[None]:
    """Let queries that start meanwhile have this many partitions."""
    spark.conf.set(PARTITIONS, number)
    try:
        yield
    finally:
        spark.conf.set(PARTITIONS, ONE_TASK[PARTITIONS])


@pytest.fixture
def several_partitions(spark: SparkSession) -> Iterator[None]:
    """Let a test's queries have several partitions, so that tasks work off shards side by side."""
    with in_partitions(spark, 2):
        yield


@pytest.fixture
def as_users_have_it(spark: SparkSession) -> Iterator[None]:
    """Let the shared session compile expressions and adapt plans, as Spark does by default."""
    for name in LESS_WORK:
        spark.conf.unset(name)
    yield
    for name, value in LESS_WORK.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def delta_spark(spark: SparkSession) -> SparkSession:
    """Give the shared session with Delta Lake, or skip where its jars are not (`make jars` fetches them)."""
    if not JARS:
        pytest.skip("Delta Lake's jars are not in .jars/; fetch them with `make jars`")
    return spark
