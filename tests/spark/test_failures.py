"""A query that has failed says first what failed: the library's code, or what Python or Spark said."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

import tablestream as ts
from tablestream.errors import QueryFailedError
from tablestream.spark.failures import failed, failure_of, saying_what_failed
from tests.marks import quick_first

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ENDED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
TRACED = 'Traceback (most recent call last):\n  File "/x/site-packages/pyspark/worker.py", line 9, in main\n'


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[TABLESTREAM_ORDER] A record is late.\n\tat x", "TABLESTREAM_ORDER", "A record is late."),
        ("[USER] [TABLESTREAM_X] It is 'a'. SQLSTATE: P0001\n==", "TABLESTREAM_X", "It is 'a'."),
        (
            f"{TRACED}pyarrow.lib.ArrowInvalid: tried to convert to boolean\n SQLSTATE: 38000\n\tat org.x(y.scala:1)",
            "ArrowInvalid",
            "tried to convert to boolean",
        ),
        (f"{TRACED}    raise Odd\nodd.Odd\n\tat org.apache.spark.x(y.scala:1)", "Odd", ""),
        (
            f'{TRACED}  File "/home/me/model.py", line 7, in rate\nZeroDivisionError: division by zero\n',
            "ZeroDivisionError",
            "division by zero (rate, model.py:7)",
        ),
        (f"{TRACED}ValueError: no\n", "ValueError", "no"),
        ("Out of disk\n\tat org.apache", "STREAM_FAILED", "Out of disk"),
        ("No worker\n=== Streaming Query ===\nraise_error([TABLESTREAM_X] x)", "STREAM_FAILED", "No worker"),
    ],
)
def test_the_text_of_a_failed_query_begins_with_what_failed(text: str, code: str, message: str) -> None:
    found = failure_of(ENDED + text)
    assert (found.code, found.message) == (code, message)
    error = failed(StreamingQueryException(message=ENDED + text))
    said = f"[{code}] {message}" if found.is_ours else f"[TABLESTREAM_QUERY_FAILED] {code}: {message}"
    assert str(error) == f"{said}\n\n{ENDED}{text}"
    assert isinstance(error, StreamingQueryException)
    assert (error.code, error.found) == (code if found.is_ours else QueryFailedError.code, code)
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 - made a line above
    assert (str(twin), twin.code) == (str(error), error.code)
    assert failed(error) is error


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            "CSV header does not conform to the schema. Header: id, w Schema: id, v Expected: v but found: w CSV: x",
            "the columns of its header are id, w, and those of the schema id, v. Give from_files",
        ),
        (
            "Number of column in CSV header is not equal to number of fields: Header length: 3, schema size: 2 ",
            "its header has 3 columns, and the schema 2. Give from_files",
        ),
        ("x is not a Parquet file.", "SomeException: x is not a Parquet file. Write the file again"),
    ],
)
def test_a_query_says_first_which_file_cannot_be_read_and_why(cause: str, said: str) -> None:
    spark = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/1%20%5Bb%5D.csv. SQLSTATE: KD001"
    plan = "\n=== Streaming Query ===\nLogical Plan:\nraise_error([TABLESTREAM_X] It was not raised.)"
    found = failure_of(f"{ENDED}{spark}{plan}\nCaused by: org.apache.SomeException: {cause}")
    assert found.code == "STREAM_FAILED"
    assert found.message.startswith("The file /a/1 [b].csv cannot be read: ")
    assert said in found.message
    assert "[FAILED_READ_FILE.NO_HINT]" in found.message


@pytest.mark.parametrize("header", quick_first(["id,n,more", "id", "id,m", "n,id"]))
def test_a_file_with_other_columns_is_named_with_what_is_wrong_and_what_to_do(
    spark: SparkSession, tmp_path: Path, header: str
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1.csv").write_text(f"{header}\n")
    rows = ts.table(
        ts.from_files(spark, tmp_path / "log", "csv", "id int, n int", options={"header": True}),
        "id",
        name="rows",
    )
    query = ts.start(rows.to(ts.to_memory("rows")), checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(
        QueryFailedError, match=r"The file \S*/log/1\.csv cannot be read: .*header.*Give from_"
    ):
        query.awaitTermination()


def test_a_query_says_first_which_row_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "1.csv").write_text("1,2\nx,y\n")
    rows = ts.table(ts.from_files(spark, str(log), "csv", "id int, n int"), "id", name="rows")
    query = ts.start(rows.to(ts.to_memory("rows")), checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="A row cannot be read") as raised:
        query.awaitTermination()
    assert str(raised.value).startswith("[TABLESTREAM_MALFORMED_RECORD] A row cannot be read: 'x,y' (file:")
    assert str(query.exception()).startswith("[TABLESTREAM_MALFORMED_RECORD] A row cannot be read: 'x,y' (")


class Busy(StreamingQuery):
    """A query that ends after a few looks, and does not let anybody wait for it before that."""

    looks = 0

    def __init__(self) -> None:
        """There is no query of Java behind it."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it has not ended."""
        self.looks += 1
        return self.looks < 4

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Say how long it took."""
        assert timeout is not None or self.looks == 4
        return None if timeout is None else False


def test_a_wait_is_python_s_and_no_call_of_java_that_ctrl_c_would_break() -> None:
    query = saying_what_failed(Busy())
    assert query.awaitTermination(1) is False
    query.awaitTermination()
    assert cast("Busy", query).looks == 4
