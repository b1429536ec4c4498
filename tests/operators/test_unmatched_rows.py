"""The rule table of unmatched rows, row by row: right rows that no left row points at."""

from __future__ import annotations

import pytest

from tests.operators.bench import Bench, answer, results

HERE = "f ANSWER_IF_FOUND k=a@1 new"


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        # is unmatched, right row changed: the row, at the right change's time
        ("f=X@3", ["~,f=(~,X)@3"]),
        ("f=X@3\nf=Y@2", ["~,f=(~,Y)@2"]),
        ("f=X@3\nf=X@4", ["~,f=(~,X)@4"]),
        # was not unmatched, is unmatched, right row did not change: the row, at max(left change, right row)
        (f"f=X@3\n{HERE}\nf UNSUBSCRIBE k=~@5", ["~,f=(~,X)@5"]),
        (f"f=X@3\n{HERE}\nf UNSUBSCRIBE k=~@2", ["~,f=(~,X)@3"]),
        # was unmatched, is not, right row changed: a tombstone, at the right change's time
        ("f=X@3\nf=~@1", ["~,f=~@1"]),
        # was unmatched, is not, right row did not change: a tombstone, at max(left change, right row)
        (f"f=X@3\n{HERE}", ["~,f=~@3", "k,~=(a,X)@3"]),
        ("f=X@3\nf ANSWER_IF_FOUND k=a@5 new", ["~,f=~@5", "k,~=(a,X)@5"]),
        # otherwise nothing
        ("f=~@1", []),
        ("f=X@3\nf=~@1\nf=~@1", []),
        (HERE, []),
        (f"{HERE}\nf=X@3", ["k,~=(a,X)@3"]),
        (f"f=X@3\n{HERE}\nf=~@4", ["k,~=~@4"]),
        (f"f=X@3\n{HERE}\nf ANSWER_IF_FOUND j=b@4 new", ["j,~=(b,X)@4"]),
        (f"f=X@3\n{HERE}\nf ANSWER_IF_FOUND k=b@4", ["k,~=(b,X)@4"]),
        (f"f=X@3\n{HERE}\nf ANSWER_IF_FOUND j=b@4 new\nf UNSUBSCRIBE j=~@5", []),
    ],
)
def test_rule_table(messages: str, wanted: list[str]) -> None:
    for atomic in (True, False):
        assert results(answer(keep_right=True, atomic=atomic), messages) == wanted
        whole = Bench(answer(keep_right=True, atomic=atomic)).run(messages)
        assert whole[len(whole) - len(wanted) :] == wanted


def test_a_step_is_judged_as_a_whole() -> None:
    """One left row leaves as another comes: the right row was not unmatched, and is not."""
    bench = Bench(answer(keep_right=True))
    bench.run(f"f=X@3\n{HERE}")
    moves = "f UNSUBSCRIBE k=~@5\n+ f ANSWER_IF_FOUND j=b@6 new"
    assert bench.run(moves) == ["j,~=(b,X)@6"]
    by_message = Bench(answer(keep_right=True, atomic=False))
    by_message.run(f"f=X@3\n{HERE}")
    assert by_message.run(moves) == ["~,f=(~,X)@5", "~,f=~@6", "j,~=(b,X)@6"]


def test_the_time_of_a_right_change_counts_where_both_sides_changed() -> None:
    bench = Bench(answer(keep_right=True))
    assert bench.run("f=X@3\n+ f ANSWER_IF_FOUND k=a@5 new") == ["k,~=(a,X)@5"]
    assert bench.run("f=Y@7\n+ f UNSUBSCRIBE_ANSWER k=~@9") == ["~,f=(~,Y)@7", "k,~=~@9"]
    assert bench.run("f=Z@8\n+ f ANSWER_IF_FOUND k=a@9 new") == ["~,f=~@8", "k,~=(a,Z)@9"]
    assert bench.run("f=~@4\n+ f UNSUBSCRIBE_ANSWER k=~@9") == ["k,~=~@9"]


def test_of_several_left_changes_in_a_step_the_latest_time_counts() -> None:
    bench = Bench(answer(keep_right=True))
    bench.run(f"f=X@3\n{HERE}\nf ANSWER_IF_FOUND j=b@1 new")
    assert bench.run("f UNSUBSCRIBE k=~@8\n+ f UNSUBSCRIBE j=~@6") == ["~,f=(~,X)@8"]


def test_a_pair_join_has_its_unmatched_rows_too() -> None:
    bench = Bench(answer(pair=True, keep_right=True))
    assert bench.run("f=X@3") == ["~,f=(~,X)@3"]
    assert bench.run(HERE) == ["~,f=~@3", "k,f=(a,X)@3"]
    assert bench.run("f UNSUBSCRIBE_ANSWER k=~@4") == ["~,f=(~,X)@4", "k,f=~@4"]


def test_counts_are_remembered_only_where_there_are_subscriptions() -> None:
    bench = Bench(answer(keep_right=True))
    bench.run(f"f=X@3\ng=X@3\n{HERE}\nf ANSWER_IF_FOUND j=b@4 new")
    assert bench.remembered("subscription counts") == 1
    bench.run("f UNSUBSCRIBE k=~@5\nf UNSUBSCRIBE j=~@5")
    assert bench.remembered("subscription counts") == 0
