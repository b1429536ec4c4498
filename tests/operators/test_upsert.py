"""The rule table of `operators.upsert`, row by row."""

from __future__ import annotations

import pytest

from tests.operators.bench import Bench, results, upsert


@pytest.mark.parametrize(
    ("messages", "wanted", "kept"),
    [
        ("k a@1", ["k=a@1"], ["k=~→a@1"]),
        ("k a@1\nk b@0", ["k=b@0"], ["k=a→b@0"]),
        ("k a@1\nk a@2", ["k=a@2"], ["k=a→a@2"]),
        ("k a@1\nk ~@2", ["k=~@2"], ["k=a→~@2"]),
        ("k a@1\nk ~@2\nk b@3", ["k=b@3"], ["k=~→b@3"]),
        ("j a@1\nk b@2", ["k=b@2"], ["k=~→b@2"]),
    ],
)
def test_rule_table(messages: str, wanted: list[str], kept: list[str]) -> None:
    for minimal in (True, False):
        assert results(upsert(minimal=minimal), messages) == wanted
        assert results(upsert(minimal=minimal, keep_old=True), messages) == kept
        assert Bench(upsert(minimal=minimal, keep_old=True)).run(messages)[-1:] == kept


def test_a_tombstone_for_nothing_is_a_change_unless_minimal() -> None:
    for messages in ("k ~@1", "k a@1\nk ~@2\nk ~@3"):
        assert len(results(upsert(), messages)) == 1
        assert results(upsert(minimal=True), messages) == []


def test_final_compares_the_micro_batch_before_and_after() -> None:
    bench = Bench(upsert(final=True, keep_old=True))
    assert bench.run("k a@1\nk b@2\nvisits a@3\nvisits ~@4\nj c@5") == ["k=~→b@2", "j=~→c@5"]
    assert bench.run("k c@6\nk d@3\nj ~@7\nj ~@8") == ["k=b→d@3", "j=c→~@8"]
    assert bench.run("j ~@9") == []


def test_final_and_minimal_ends_with_the_last_change_that_is_one() -> None:
    bench = Bench(upsert(final=True, minimal=True))
    bench.run("k a@1")
    assert bench.run("k b@2\nk ~@3\nk ~@4") == ["k=~@3"]


def test_values_are_remembered_only_where_they_are_asked_for() -> None:
    assert "v" not in upsert().traces[0].schema
    assert "v" in upsert(keep_old=True).traces[0].schema
    bench = Bench(upsert())
    bench.run("k a@1\nj b@1\nk ~@2")
    assert bench.remembered("rows") == 1
