"""What a query needs of its session, told without Spark; `test_bare_session` runs it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tablestream as ts
from tablestream.errors import SessionSettingError
from tablestream.spark.session import (
    CHANGELOG,
    PARTITIONS,
    RETAINED,
    ROCKSDB,
    STORE,
    check_configured,
    configured,
    missing_settings,
)

#: What a bare session on two cores gets.
NEEDED = {STORE: ROCKSDB, CHANGELOG: "true", PARTITIONS: "2", RETAINED: "10"}
HDFS = ROCKSDB.replace("RocksDBState", "HDFSBackedState")


class Session:
    """As much of a session as is asked: its settings, and how many tasks it runs at a time."""

    readStream = None  # noqa: N815 - a session is known by it

    def __init__(self, master: str = "local[2]", cores: int = 2, **settings: str) -> None:
        self.settings = {"spark.master": master, **settings}
        self.conf = SimpleNamespace(
            get=lambda name, default="200": self.settings.get(name, default),
            set=self.settings.__setitem__,
            unset=self.settings.__delitem__,
        )
        self.sparkContext = SimpleNamespace(defaultParallelism=cores, pythonExec="python3")


def session(settings: dict[str, str] | None = None, **options: Any) -> Any:
    made = Session(**options)
    made.settings |= settings or {}
    return made


def test_a_bare_session_lacks_four_settings() -> None:
    assert missing_settings(session(), 16) == NEEDED


@pytest.mark.parametrize(
    ("master", "cores", "shards", "partitions"),
    [
        ("local[2]", 2, 16, "2"),
        ("local[*]", 64, 16, "16"),
        ("local[4]", 4, 1, "1"),
        ("spark://somewhere:7077", 2, 16, "16"),  # executors may still come, and the number stays
        ("yarn", 500, 16, "16"),
    ],
)
def test_there_are_as_many_partitions_as_shards_and_cores_warrant(
    master: str, cores: int, shards: int, partitions: str
) -> None:
    assert missing_settings(session(master=master, cores=cores), shards)[PARTITIONS] == partitions


def test_what_the_user_chose_stays() -> None:
    chosen = {STORE: "com.example.Store", CHANGELOG: "false", PARTITIONS: "8", RETAINED: "100"}
    assert missing_settings(session(chosen), 16) == {}


def test_a_number_of_partitions_above_the_shards_is_cut() -> None:
    assert missing_settings(session({PARTITIONS: "200"}), 16)[PARTITIONS] == "16"
    assert missing_settings(session({PARTITIONS: "16"}), 16).get(PARTITIONS) is None


def test_the_store_that_cannot_hold_the_state_is_replaced() -> None:
    assert missing_settings(session({STORE: HDFS}), 16)[STORE] == ROCKSDB


def test_a_session_is_restored_whatever_happens() -> None:
    spark = session({STORE: HDFS, PARTITIONS: "200"})
    before = dict(spark.settings)
    with configured(spark, 4):
        assert spark.settings == before | NEEDED | {PARTITIONS: "4"}
    assert spark.settings == before
    with pytest.raises(RuntimeError), configured(spark, 4):
        raise RuntimeError
    assert spark.settings == before


def test_queries_that_start_at_the_same_time_take_turns() -> None:
    """Otherwise the second would take the settings of the first for the user's: lack none, and lose them."""
    spark = session()
    before = dict(spark.settings)
    started = threading.Event()
    found: list[dict[str, str]] = []

    def start() -> None:
        started.set()
        with configured(spark, 1):
            found.append(dict(spark.settings))

    with configured(spark, 16):
        other = threading.Thread(target=start)
        other.start()
        started.wait()
        other.join(0.2)
        assert spark.settings == before | NEEDED
    other.join()
    assert found == [before | NEEDED | {PARTITIONS: "1"}]
    assert spark.settings == before


def test_a_session_is_not_configured_while_a_query_starts() -> None:
    """Otherwise the settings that are only the query's would count as the session's."""
    spark = session()
    started = threading.Event()

    def configure() -> None:
        started.set()
        ts.configure(spark)

    with configured(spark, 16):
        other = threading.Thread(target=configure)
        other.start()
        started.wait()
        other.join(0.2)
    other.join()
    assert spark.settings == {"spark.master": "local[2]", **NEEDED}


def test_configure_sets_what_is_missing_once() -> None:
    spark = session({"spark.app.name": "mine"})
    same: Any = ts.configure(spark)
    assert same is spark
    first = dict(spark.settings)
    assert first == {"spark.master": "local[2]", "spark.app.name": "mine", **NEEDED}
    ts.configure(spark)
    assert spark.settings == first


@pytest.mark.parametrize(("store", "shown"), [(None, "its default store"), (HDFS, HDFS)])
def test_changes_say_what_the_session_lacks_and_which_call_sets_it(store: str | None, shown: str) -> None:
    spark = session({} if store is None else {STORE: store})
    with pytest.raises(SessionSettingError, match="needs RocksDB") as caught:
        check_configured(spark, 16, rounds=2)
    assert shown in str(caught.value)
    assert "tablestream.configure(spark)" in caught.value.hint
    with pytest.warns(UserWarning, match=r"shuffle\.partitions is 200.* 16 shards.*2 rounds.*Set it to 16"):
        check_configured(session({STORE: ROCKSDB}), 16, rounds=2)
    ts.configure(spark)
    check_configured(spark, 16, rounds=2)
