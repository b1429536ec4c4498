"""The rule tables of `operators.foreign_key_subscribe`, row by row."""

from __future__ import annotations

import pytest

from tablestream.operators.joins.foreign_key_subscribe import Rules
from tablestream.operators.reasons import NULL_FOREIGN_KEY
from tests.operators.bench import Bench, results, subscribe


@pytest.mark.parametrize(
    ("messages", "wanted", "dropped"),
    [
        ("k a@1", [], 1),
        ("k a|f@1\nk b@2", ["f UNSUBSCRIBE_ANSWER k=~@2"], 1),
        ("k a|n@1", ["n ANSWER_IF_FOUND k=a|n@1 new"], 0),
        ("k a@1\nk b|n@2", ["n ANSWER_IF_FOUND k=b|n@2 new"], 1),
        ("k a|n@1\nk b|n@2", ["n ANSWER_IF_FOUND k=b|n@2"], 0),
        ("k a|f@1\nk b|n@2", ["f UNSUBSCRIBE k=~@2", "n ANSWER_ALWAYS k=b|n@2 new"], 0),
        ("k a|f@1\nk ~@2", ["f UNSUBSCRIBE_ANSWER k=~@2"], 0),
        ("k ~@1", [], 0),
        ("k a@1\nk ~@2", [], 1),
    ],
)
def test_inner_table(messages: str, wanted: list[str], dropped: int) -> None:
    bench = Bench(subscribe(Rules.INNER))
    found = bench.run(messages)
    assert found[len(found) - len(wanted) :] == wanted
    assert bench.dropped[NULL_FOREIGN_KEY] == dropped
    assert results(subscribe(Rules.INNER), messages) == wanted


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ("k ~@1", []),
        ("k a@1\nk ~@2\nk ~@3", []),
        ("k a|f@1\nk b|n@2", ["f UNSUBSCRIBE k=~@2", "n ANSWER_ALWAYS k=b|n@2 new"]),
        ("k a|f@1\nk b@2", ["f UNSUBSCRIBE k=~@2", "k=(b,~)@2"]),
        ("k a|f@1\nk ~@2", ["f UNSUBSCRIBE k=~@2", "k=~@2"]),
        ("k a|n@1", ["n ANSWER_ALWAYS k=a|n@1 new"]),
        ("k a|n@1\nk a|n@2", ["n ANSWER_ALWAYS k=a|n@2"]),
        ("k a@1\nk b|n@2", ["n ANSWER_ALWAYS k=b|n@2 new"]),
        ("k a@1", ["k=(a,~)@1"]),
        ("k a@1\nk b@2", ["k=(b,~)@2"]),
        ("k a@1\nk ~@2", ["k=~@2"]),
    ],
)
def test_left_table(messages: str, wanted: list[str]) -> None:
    bench = Bench(subscribe(Rules.LEFT))
    found = bench.run(messages)
    assert found[len(found) - len(wanted) :] == wanted
    assert not bench.dropped[NULL_FOREIGN_KEY]
    assert results(subscribe(Rules.LEFT), messages) == wanted


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ("k a|f@1\nk b|n@2", ["f UNSUBSCRIBE_ANSWER k=~@2", "n ANSWER_IF_FOUND k=b|n@2 new"]),
        ("k a|f@1\nk b@2", ["f UNSUBSCRIBE_ANSWER k=~@2"]),
        ("k a|n@1\nk b|n@2", ["n ANSWER_IF_FOUND k=b|n@2"]),
    ],
)
def test_pair_differs_from_inner_where_a_row_moves(messages: str, wanted: list[str]) -> None:
    assert results(subscribe(Rules.PAIR), messages) == wanted


@pytest.mark.parametrize("rules", Rules)
def test_prefixes_and_colliding_hashes_are_other_keys(rules: Rules) -> None:
    """Foreign keys are compared as a whole: the bench hashes a key by its length."""
    assert results(subscribe(rules), "k a|f@1\nj b|g@2\nk c|g@3")[-1].startswith("g ANSWER")
    assert len(results(subscribe(rules), "k a|f@1\nk c|g@3")) == 2
    assert len(results(subscribe(rules), "k a|f@1\nk c|ff@3")) == 2
    assert len(results(subscribe(rules), "k a|@1\nk c|@3")) == 1  # the empty string is a foreign key


def test_only_foreign_keys_are_remembered() -> None:
    operator = subscribe(Rules.LEFT)
    assert "v" not in operator.traces[0].schema
    bench = Bench(operator)
    bench.run("k a|f@1\nj b@2")
    assert bench.remembered("foreign keys") == 2
    bench.run("k ~@3")
    assert bench.remembered("foreign keys") == 1


def test_values_are_compared_where_the_join_asks_for_it() -> None:
    bench = Bench(subscribe(Rules.INNER, compare_values=True))
    assert bench.run("k a|n@1\nk a|n@2\nk b|n@3") == [
        "n ANSWER_IF_FOUND k=a|n@1 new",
        "n ANSWER_IF_FOUND k=a|n@2 same",
        "n ANSWER_IF_FOUND k=b|n@3",
    ]
    assert bench.run("k b|n@4\nk ~@5\nk b|n@6") == [
        "n ANSWER_IF_FOUND k=b|n@4 same",
        "n UNSUBSCRIBE_ANSWER k=~@5",
        "n ANSWER_IF_FOUND k=b|n@6 new",
    ]


def test_final_sends_the_last_change_beside_the_row_that_was_there_first() -> None:
    bench = Bench(subscribe(Rules.LEFT, final=True))
    assert bench.run("k a|f@1\nk b|g@2\nk c|h@3\nvisits a|f@4\nvisits ~@5\nj b@6\nj c@7") == [
        "h ANSWER_ALWAYS k=c|h@3 new",
        "j=(c,~)@7",
    ]
    assert bench.run("k a|f@1\nk b|h@2") == ["h ANSWER_ALWAYS k=b|h@2"]
    assert bench.run("k a|f@1\nk ~@2\nk ~@3") == ["h UNSUBSCRIBE k=~@2", "k=~@2"]
    assert bench.run("k ~@4") == []
