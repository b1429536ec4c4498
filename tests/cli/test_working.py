"""What a terminal shows while Spark works for a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JNetworkError

from tablestream.cli.checkpoints import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ended:
    """A session whose Java has ended when its stages are asked for; it is its context and its tracker too."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @property
    def sparkContext(self) -> Ended:  # noqa: N802 - Spark's name
        return self

    def statusTracker(self) -> Ended:  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        raise self.error

    def getStageInfo(self, stage: int) -> None:  # noqa: N802 - Spark's name
        """Nothing is known of a stage."""


def fail(spark: Ended) -> None:
    with working(cast("SparkSession", spark), "Building"):
        raise ValueError("the first")


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError("gone")])
def test_java_that_has_ended_does_not_hide_the_error_of_the_work(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with pytest.raises(ValueError, match="the first"):
        fail(Ended(error))
    assert "0:00:0" in capsys.readouterr().err
