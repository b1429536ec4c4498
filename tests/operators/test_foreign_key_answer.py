"""The rule tables of `operators.foreign_key_answer`, row by row."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tablestream.operators.reasons import STALE
from tests.operators.bench import Bench, answer, results

HERE = "f ANSWER_IF_FOUND k=a|f@1 new"
LEFT_HERE = "f ANSWER_ALWAYS k=a|f@1 new"


@pytest.mark.parametrize(
    ("messages", "inner", "left"),
    [
        (f"f=X@5\n{HERE}\nf UNSUBSCRIBE k=~@2", [], []),
        (f"{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", ["k=~@2"], ["k=~@2"]),
        (f"f=X@5\n{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", ["k=~@5"], ["k=~@5"]),
        (f"f=X@1\n{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", ["k=~@2"], ["k=~@2"]),
        ("f ANSWER_ALWAYS k=a@3 new", ["k=~@3"], ["k=(a,~)@3"]),
        ("f=X@5\nf ANSWER_ALWAYS k=a@3 new", ["k=(a,X)@5"], ["k=(a,X)@5"]),
        ("f=X@5\nf=~@6\nf ANSWER_ALWAYS k=a@3 new", ["k=~@3"], ["k=(a,~)@3"]),
        ("f ANSWER_IF_FOUND k=a@3 new", [], []),
        ("f=X@1\nf ANSWER_IF_FOUND k=a@3 new", ["k=(a,X)@3"], ["k=(a,X)@3"]),
        ("f=X@5/9\nf ANSWER_IF_FOUND k=a@3 new", ["k=(a,X)@9"], ["k=(a,X)@9"]),
    ],
)
def test_left_messages(messages: str, inner: list[str], left: list[str]) -> None:
    for atomic in (True, False):
        assert results(answer(atomic=atomic), messages) == inner
        assert results(answer(keep_left=True, atomic=atomic), messages) == left
        whole = Bench(answer(atomic=atomic)).run(messages)
        assert whole[len(whole) - len(inner) :] == inner


@pytest.mark.parametrize(
    ("messages", "inner", "left"),
    [
        ("f=X@1", [], []),
        (f"{HERE}\nf=X@1", ["k=(a|f,X)@1"], ["k=(a|f,X)@1"]),
        (f"f=X@1\n{HERE}\nf=X@0", ["k=(a|f,X)@0"], ["k=(a|f,X)@0"]),
        (f"f=X@1\n{HERE}\nf=~@0", ["k=~@0"], ["k=(a|f,~)@0"]),
        (f"{HERE}\nf=~@7", ["k=~@7"], ["k=(a|f,~)@7"]),
        (f"{HERE}\nf UNSUBSCRIBE k=~@2\nf=X@3", [], []),
        (f"{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2\nf=X@3", [], []),
        (f"{HERE}\ng=X@3", [], []),
        (f"{HERE}\nf ANSWER_ALWAYS k=b@2\nf=X@3", ["k=(b,X)@3"], ["k=(b,X)@3"]),
    ],
)
def test_right_changes_have_their_own_time(messages: str, inner: list[str], left: list[str]) -> None:
    for atomic in (True, False):
        assert results(answer(atomic=atomic), messages) == inner
        assert results(answer(keep_left=True, atomic=atomic), messages) == left
        whole = Bench(answer(atomic=atomic)).run(messages)
        assert whole[len(whole) - len(inner) :] == inner


def test_a_right_change_answers_in_the_order_of_the_left_keys() -> None:
    keys = ["l2", "l10", "l1", "l\U0001f600", "l\uff5e"]
    lines = "\n".join(f"f ANSWER_ALWAYS {key}=a@1 new" for key in keys)
    assert results(answer(), f"{lines}\nf=X@2") == [
        f"{key}=(a,X)@2" for key in ("l1", "l10", "l2", "l\uff5e", "l\U0001f600")
    ]


def test_answers_are_in_the_order_of_left_keys_that_are_integers() -> None:
    operator = replace(answer(keep_left=True), keys=pl.Schema({"_k0": pl.Int64()}))
    bench = Bench(operator)
    bench.run("f ANSWER_ALWAYS 10=a@1 new\ng ANSWER_ALWAYS 7=b@1 new\nf ANSWER_ALWAYS -3=c@1 new")
    moved = (
        "f ANSWER_ALWAYS 2=d@2 new\nf UNSUBSCRIBE -3=~@2\nf ANSWER_ALWAYS -20=e@2 new\nf ANSWER_ALWAYS 2=h@2"
    )
    found = bench.run(f"{moved}\ng=Y@3\nf=X@4")
    assert found[-4:] == ["7=(b,Y)@3", "-20=(e,X)@4", "2=(h,X)@4", "10=(a,X)@4"]


# Steps.


def test_atomic_the_right_change_of_a_step_comes_first() -> None:
    assert Bench(answer()).run("f ANSWER_IF_FOUND k=a@3 new\n+ f=X@1") == ["k=(a,X)@3"]
    assert Bench(answer(atomic=False)).run("f ANSWER_IF_FOUND k=a@3 new\n+ f=X@1") == ["k=(a,X)@1"]


def test_atomic_a_left_row_that_changed_itself_is_answered_once() -> None:
    bench = Bench(answer())
    bench.run(f"f=X@1\n{HERE}\nf ANSWER_IF_FOUND other=o@1 new")
    assert bench.run("f=Y@9\n+ f ANSWER_IF_FOUND k=b@3") == ["other=(o,Y)@9", "k=(b,Y)@9"]
    # the left change has no answer of its own, so the right one's counts
    assert bench.run("f=~@5\n+ f ANSWER_IF_FOUND k=c@6") == ["k=~@5", "other=~@5"]
    assert bench.run("f=Z@5\n+ f UNSUBSCRIBE k=~@6") == ["other=(o,Z)@5"]


def test_stale_answers_are_those_of_a_row_that_points_at_itself() -> None:
    bench = Bench(answer(atomic=False, stale=True))
    bench.run("k=a|k@1\n+ k ANSWER_IF_FOUND k=a|k@1 new\nk ANSWER_IF_FOUND j=b|k@1 new")
    assert bench.run("k=c|k@2\n+ k ANSWER_IF_FOUND k=c|k@2") == ["j=(b|k,c|k)@2", "k=(c|k,c|k)@2"]
    assert bench.dropped[STALE] == 1
    # unchanged: both answers are as good
    assert bench.run("k=c|k@3\n+ k ANSWER_IF_FOUND k=c|k@3 same") == [
        "j=(b|k,c|k)@3",
        "k=(c|k,c|k)@3",
        "k=(c|k,c|k)@3",
    ]
    # a row that points elsewhere is not yet what it will be
    assert bench.run("k=d|k@4\n+ k ANSWER_IF_FOUND j=e|k@4") == [
        "j=(b|k,d|k)@4",
        "k=(c|k,d|k)@4",
        "j=(e|k,d|k)@4",
    ]
    assert bench.dropped[STALE] == 1
    assert STALE in bench.operator.reasons
    assert not answer().reasons
    assert not answer(atomic=False).reasons


# One to many.


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ("f ANSWER_IF_FOUND k=a@3 new", []),
        ("f=X@1\nf ANSWER_IF_FOUND k=a@3 new", ["k,f=(a,X)@3"]),
        (f"f=X@1\n{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", ["k,f=~@2"]),
        (f"f=X@5\n{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", ["k,f=~@5"]),
        (f"{HERE}\nf UNSUBSCRIBE_ANSWER k=~@2", []),
        (f"f=X@1\n{HERE}\nf=~@2\nf UNSUBSCRIBE_ANSWER k=~@3", []),
        (f"{HERE}\nf=X@3", ["k,f=(a|f,X)@3"]),
        (f"f=X@1\n{HERE}\nf=Y@0", ["k,f=(a|f,Y)@0"]),
        (f"f=X@1\n{HERE}\nf=~@0", ["k,f=~@0"]),
        (f"{HERE}\nf=~@0", []),
        (f"f=X@1\n{HERE}\nf=~@0\nf=~@1", []),
    ],
)
def test_pair_has_no_tombstone_for_what_never_was(messages: str, wanted: list[str]) -> None:
    for atomic in (True, False):
        assert results(answer(pair=True, atomic=atomic), messages) == wanted


def test_pair_compares_before_and_after_an_atomic_step() -> None:
    was = Bench(answer(pair=True))
    was.run(f"f=X@1\n{HERE}")
    assert was.run("f=~@4\n+ f UNSUBSCRIBE_ANSWER k=~@5") == ["k,f=~@4"]
    came = Bench(answer(pair=True))
    came.run(HERE)
    assert came.run("f=X@4\n+ f UNSUBSCRIBE_ANSWER k=~@5") == []
    changed = Bench(answer(pair=True))
    changed.run(f"f=X@1\n{HERE}")
    assert changed.run("f=Y@4\n+ f UNSUBSCRIBE_ANSWER k=~@3") == ["k,f=~@4"]
    renewed = Bench(answer(pair=True))
    renewed.run(f"f=X@1\n{HERE}")
    assert renewed.run("f=~@4\n+ f ANSWER_IF_FOUND k=b@5") == ["k,f=~@4"]


# Options.


def test_minimal_right_has_no_tombstones_for_absent_rows() -> None:
    assert results(answer(keep_left=True), f"{LEFT_HERE}\nf=~@2") == ["k=(a|f,~)@2"]
    assert results(answer(keep_left=True, minimal_right=True), f"{LEFT_HERE}\nf=~@2") == []
    minimal = Bench(answer(keep_left=True, minimal_right=True))
    assert minimal.run(f"{LEFT_HERE}\nf=X@2\nf=~@3\nf=~@4") == [
        "k=(a|f,~)@1",
        "k=(a|f,X)@2",
        "k=(a|f,~)@3",
    ]


def test_final_is_the_last_answer_of_each_left_key() -> None:
    bench = Bench(answer(keep_left=True, final=True))
    assert bench.run(f"{LEFT_HERE}\nf=X@2\nf=Y@3\nf ANSWER_ALWAYS j=b@4 new") == ["k=(a|f,Y)@3", "j=(b,Y)@4"]
    assert bench.run("f=Z@5\nf ANSWER_ALWAYS j=c@6") == ["k=(a|f,Z)@5", "j=(c,Z)@6"]
    assert bench.run("f=~@7\nf UNSUBSCRIBE j=~@8") == ["k=(a|f,~)@7"]


def test_it_remembers_subscriptions_and_right_rows() -> None:
    bench = Bench(answer(keep_left=True))
    bench.run(f"{LEFT_HERE}\nf ANSWER_ALWAYS j=b@1 new\ng ANSWER_ALWAYS j=b@1 new\nf=X@2\ng=Y@2")
    assert (bench.remembered("subscriptions"), bench.remembered("right rows")) == (3, 2)
    bench.run("f UNSUBSCRIBE j=~@3\ng=~@3")
    assert (bench.remembered("subscriptions"), bench.remembered("right rows")) == (2, 1)
