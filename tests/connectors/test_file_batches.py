"""Directories of micro-batches: each appears in one act, of one writer, and proves what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tablestream.connectors.files import batches as module
from tablestream.connectors.files.batches import MARK, TRIES, FileBatches
from tablestream.connectors.files.sink import to_files
from tablestream.connectors.marks import Mark, Moment
from tablestream.errors import TargetError
from tests.connectors.changes import changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.files.sink import FileSink

NOTHING: Any = None


class Writer:
    """Writes a file as one of Spark's jobs does; `meanwhile` happens before it is done."""

    def __init__(self, log: Path, job: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.log, self.job, self.meanwhile = log, job, meanwhile

    def mode(self, mode: str) -> Writer:
        del mode
        return self

    def save(self, path: str) -> None:
        place = self.log / path.removeprefix(f"{self.log}/")
        place.mkdir(parents=True, exist_ok=True)
        (
            place
            / f"part-00000-{self.job * 8}-{self.job * 4}-{self.job * 4}-{self.job * 4}-{self.job * 12}.json"
        ).touch()
        self.meanwhile()


def names(log: Path) -> list[str]:
    """The files that readers see, by the first letter of their job."""
    return sorted(path.name[11] for path in log.glob("micro_batch=*/part-*"))


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileBatches:
    monkeypatch.setattr(module, "on_this_machine", lambda *_: tmp_path)
    return FileBatches(NOTHING, str(tmp_path))


def test_of_two_processes_at_one_micro_batch_one_is_seen(batches: FileBatches, tmp_path: Path) -> None:
    """Also if the other one is done while the first still writes; its attempt goes."""
    mark: Any = Mark(3, "proof")
    other: Any = Writer(tmp_path, "b")
    first: Any = Writer(tmp_path, "a", lambda: batches.write(other, mark))
    batches.write(first, mark)
    assert names(tmp_path) == ["b"]
    assert list((tmp_path / TRIES).iterdir()) == []
    assert batches.mark(3) == mark


def test_an_attempt_is_hidden_until_it_is_complete_and_what_was_left_is_replaced(
    batches: FileBatches, tmp_path: Path
) -> None:
    def died() -> None:
        raise ConnectionError("the process dies")

    dying: Any = Writer(tmp_path, "a", died)
    with pytest.raises(ConnectionError):
        batches.write(dying, Mark(0, "p"))
    assert names(tmp_path) == []
    assert len(list((tmp_path / TRIES).iterdir())) == 1
    (tmp_path / TRIES / "gone-1").mkdir()  # of a process that was killed while it removed a micro-batch
    old = tmp_path / "micro_batch=1"
    old.mkdir()
    (old / "part-00000-old.json").touch()  # of an older version, which was killed
    again: Any = Writer(tmp_path, "c")
    batches.write(again, Mark(1, "p"))
    assert names(tmp_path) == ["c"]
    assert list((tmp_path / TRIES).iterdir()) == []


def test_where_there_is_no_rename_two_jobs_in_one_directory_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch then has no mark, so that it is written again."""
    monkeypatch.setattr(module, "on_this_machine", lambda *_: None)
    batches, one, two = FileBatches(spark, str(tmp_path)), Writer(tmp_path, "a"), Writer(tmp_path, "b")
    alone: Any = one
    batches.write(alone, Mark(0, "p"))
    both: Any = Writer(tmp_path, "a", lambda: two.save(f"{tmp_path}/micro_batch=1"))
    with pytest.raises(TargetError, match="Two processes wrote micro-batch 1"):
        batches.write(both, Mark(1, "p"))
    assert not (tmp_path / "micro_batch=1" / MARK).exists()
    with pytest.raises(TargetError, match="has the micro-batches 1 to 1, which the checkpoint does not"):
        batches.remove([1])


def log_of(directory: Path, moments: list[Moment], spark: SparkSession) -> FileSink:
    sink = to_files(directory / "log", "json")
    for moment in moments:
        sink.at(moment).write(
            changes(spark, moment.number, (moment.number, "a", "x")), moment.number, "q", "out"
        )
    return sink


def test_a_log_says_where_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A start looks at all directories, and a micro-batch at its own and at the one before."""
    sink = log_of(
        tmp_path, [Moment(0, "q", "p0"), Moment(1, "q", "p1", "p0"), Moment(1, "q", "p1", "p0")], spark
    )
    rows = spark.read.json(sink.path).select("micro_batch", "k1").collect()
    assert sorted(map(tuple, rows)) == [(0, 0), (1, 1)]
    for fitting in (Moment(2, "q", "", "p1"), Moment(1, "q", "p1", "p0")):
        sink.at(fitting).settle(spark, NOTHING, NOTHING)
    refused = {
        Moment(
            1, "q", "", "p0"
        ): "has the micro-batches up to 1, and the checkpoint the micro-batches up to 0",
        Moment(0, "q"): "has the micro-batches up to 1, and the checkpoint no micro-batch",
        Moment(2, "q", "", "other"): "has another micro-batch 1 than the checkpoint",
        Moment(1, "q", "other", "p0"): "has another micro-batch 1 than the checkpoint",
        Moment(4, "q", "", "p3"): "those between are missing",
    }
    for moment, said in refused.items():
        with pytest.raises(TargetError, match=said):
            sink.at(moment).settle(spark, NOTHING, NOTHING)
        if moment.proof:
            with pytest.raises(TargetError, match=said):
                sink.at(moment).write(changes(spark, 1), moment.number, "q", "out")
    assert sorted(path.name for path in (tmp_path / "log").glob("micro*")) == [
        "micro_batch=0",
        "micro_batch=1",
    ]


def test_a_log_of_an_older_version_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Its last directory may be incomplete, and is written again if its micro-batch is repeated."""
    sink = to_files(tmp_path / "log", "json")
    for number in (0, 1):
        place = tmp_path / "log" / f"micro_batch={number}"
        place.mkdir(parents=True)
        (place / "part-0.json").write_text('{"k1": 9}\n')
    for fitting in (Moment(2, "q", "", "p1"), Moment(1, "q", "p1", "p0")):
        sink.at(fitting).settle(spark, NOTHING, NOTHING)
    for wrong in (Moment(1, "q", "", "p0"), Moment(0, "q", "p0")):
        with pytest.raises(TargetError, match="has the micro-batches up to 1"):
            sink.at(wrong).settle(spark, NOTHING, NOTHING)
    again = sink.at(Moment(1, "q", "p1", "p0"))
    again.write(changes(spark, 1, (1, "a", "x")), 1, "q", "out")
    assert sorted(row.k1 for row in spark.read.json(sink.path).collect()) == [1, 9]
