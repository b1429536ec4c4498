"""What a mark says about a target and a checkpoint."""

from __future__ import annotations

import pytest

from tablestream import to_delta, to_files, to_postgres
from tablestream.connectors.marks import Found, Mark, Moment, OnMismatch, Verdict, judged, proof_of
from tablestream.errors import ArgumentError, TargetError


def said(
    mark: Mark | None,
    moment: Moment | None,
    *,
    empty: bool = True,
    follows: bool = True,
    number: int = 3,
    on_mismatch: OnMismatch = "refuse",
    starting: bool = False,
) -> Verdict:
    return judged(Found("It", mark, empty, follows), number, moment, on_mismatch, starting=starting)


NEXT, REPEATED = Moment(3, "q", "", "p2"), Moment(3, "q", "p3", "p2")


@pytest.mark.parametrize(
    ("mark", "moment", "verdict"),
    [
        (Mark(2, "p2"), NEXT, Verdict.WRITE),
        (Mark(2, "p2"), REPEATED, Verdict.WRITE),
        (Mark(3, "p3"), REPEATED, Verdict.DONE),
        (Mark(3), REPEATED, Verdict.DONE),  # an older version's
        (Mark(2), NEXT, Verdict.WRITE),
        (Mark(0), NEXT, Verdict.WRITE),
        (Mark(3), None, Verdict.DONE),
        (Mark(2), None, Verdict.WRITE),
        (None, None, Verdict.WRITE),
    ],
)
def test_a_target_of_the_moment_goes_on(mark: Mark | None, moment: Moment | None, verdict: Verdict) -> None:
    assert said(mark, moment, empty=False) is verdict


@pytest.mark.parametrize(
    ("mark", "moment", "why"),
    [
        (Mark(3, "p3"), NEXT, "has the micro-batches up to 3, and the checkpoint the micro-batches up to 2"),
        (Mark(4, "p4"), REPEATED, "has the micro-batches up to 4"),
        (Mark(4), REPEATED, "has the micro-batches up to 4"),
        (Mark(3), NEXT, "has the micro-batches up to 3"),
        (Mark(3, "else"), REPEATED, "has another micro-batch 3 than the checkpoint"),
        (Mark(2, "else"), REPEATED, "has another micro-batch 2 than the checkpoint"),
        (Mark(1, "p1"), NEXT, "those between are missing"),
        (None, NEXT, "has rows that are not this query's"),
    ],
)
def test_another_moment_or_history_is_refused(mark: Mark | None, moment: Moment, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        said(mark, moment, empty=False)


def test_a_maintained_table_begins_with_the_query_and_a_log_at_any_time() -> None:
    with pytest.raises(TargetError, match="it would get the later changes only"):
        said(None, NEXT)
    assert said(None, NEXT, follows=False) is Verdict.WRITE
    assert said(None, Moment(0, ""), number=0) is Verdict.WRITE


def test_a_start_settles_what_does_not_fit_and_the_first_micro_batch_that_of_a_new_query() -> None:
    ahead = Mark(3, "p3")
    assert said(ahead, NEXT, on_mismatch="rebuild", starting=True) is Verdict.SETTLE
    with pytest.raises(TargetError):  # somebody has changed the target since the start
        said(ahead, NEXT, on_mismatch="rebuild")
    new = Moment(0, "")
    assert said(None, new, empty=False, number=0, on_mismatch="accept", starting=True) is Verdict.WRITE
    assert said(None, new, empty=False, number=0, on_mismatch="accept") is Verdict.SETTLE


def test_a_proof_is_that_of_what_was_planned() -> None:
    planned = ["v1", '{"batchTimestampMs":1}', '{"logOffset":0}']
    assert proof_of(planned) == proof_of(list(planned))
    assert proof_of(planned) != proof_of(["v1", '{"batchTimestampMs":2}', '{"logOffset":0}'])
    assert proof_of([]) == ""


def test_other_words_for_a_mismatch_are_refused() -> None:
    with pytest.raises(ArgumentError, match="on_mismatch='replace' is not known"):
        to_delta("out", on_mismatch="replace")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="on_mismatch='replace' is not known"):
        to_files("out", on_mismatch="replace")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="on_mismatch=None is not known"):
        to_postgres("out", "host=x", on_mismatch=None)  # type: ignore[arg-type]


TOLD = Moment(3, "q", "attempt", "p2", frozenset(["earlier"]), "told anew")


@pytest.mark.parametrize(
    ("mark", "verdict"),
    [
        (Mark(2, "p2"), Verdict.WRITE),
        (Mark(1, "p2"), Verdict.WRITE),  # passed over before
        (Mark(2, "earlier"), Verdict.WRITE),
        (Mark(3, "failed"), Verdict.SETTLE),
        (None, Verdict.WRITE),
    ],
)
def test_a_log_that_is_told_anew_keeps_what_the_old_plan_wrote(mark: Mark | None, verdict: Verdict) -> None:
    assert said(mark, TOLD) is verdict
    with pytest.raises(TargetError, match=r"by another output or name.* delete what is there"):
        said(Mark(2, "else"), TOLD)


def test_a_target_that_was_passed_over_goes_on() -> None:
    following = Moment(4, "q", "p4", "p2", frozenset(["attempt", "earlier"]))
    for mark in (Mark(2, "p2"), Mark(2, "earlier"), Mark(3, "attempt")):
        assert said(mark, following, number=4) is Verdict.WRITE
    with pytest.raises(TargetError, match="those between are missing"):
        said(Mark(2, "else"), following, number=4)
