"""``--on-error`` of ``tablestream run``, as `start` takes it."""

from __future__ import annotations

import pytest

from tablestream.cli.run import _command, _on_error
from tablestream.errors import ArgumentError


def test_on_error_is_for_all_tables_or_by_name() -> None:
    assert _on_error([]) == "fail"
    assert _on_error(["reject"]) == "reject"
    assert _on_error(["a=b=null", "c=reject"]) == {"a=b": "null", "c": "reject"}
    with pytest.raises(ArgumentError, match="for all tables, and for some"):
        _on_error(["reject", "c=null"])


def test_the_command_that_goes_on_has_it() -> None:
    said = _command("a:b", {"--checkpoint": None}, {"--to": [], "--on-error": ["t=null"]})
    assert said == "tablestream run a:b --on-error t=null"
