"""What the environment says of the workers' cache and of messages."""

from __future__ import annotations

import getpass
import os

import pytest

from tablestream.errors import ArgumentError
from tablestream.spark.plan import drop_rules, worker_settings


def test_a_user_without_a_name_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number."""
    monkeypatch.delenv("TABLESTREAM_CACHE_DIR", raising=False)

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert worker_settings().cache_directory.endswith(f"/tablestream-{os.getuid()}")


@pytest.mark.parametrize("size", ["8G", "", "-1", "1.5"])
def test_a_size_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("TABLESTREAM_CACHE_BYTES", "1000")
    assert worker_settings().cache_bytes == 1000
    monkeypatch.setenv("TABLESTREAM_CACHE_BYTES", size)
    with pytest.raises(ArgumentError, match=f"TABLESTREAM_CACHE_BYTES is {size!r}"):
        worker_settings()


def test_the_environment_leaves_data_out_of_the_messages_of_every_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TABLESTREAM_REDACT", raising=False)
    assert not drop_rules().redact
    for given, redacted in (("no", False), ("yes", True)):
        monkeypatch.setenv("TABLESTREAM_REDACT", given)
        assert drop_rules().redact is redacted
        assert drop_rules(redact=True).redact
    monkeypatch.setenv("TABLESTREAM_REDACT", "true")
    with pytest.raises(ArgumentError, match="TABLESTREAM_REDACT"):
        drop_rules()
