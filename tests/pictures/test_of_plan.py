"""What the picture of a plan shows: all of the plan, and the figures of a query at the place where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import OperatorMetrics
from tablestream.pictures.figures import Figures
from tablestream.pictures.of_plan import picture_of
from tablestream.pictures.picture import Arrow, Kind, Picture, Role
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Output, PhysicalPlan, PlanOptions
from tests.pictures.plans import DRAWN, metrics, operator_metrics, plan
from tests.plans.tables import filtered, foreign_key_join, key_join, materialized, source
from tests.plans.test_explain import _types


def has_a(value: str) -> bool:
    return "a" in value


def texts(picture: Picture, title: str, role: Role) -> list[str]:
    """The lines of a role in the source or the operator with a title."""
    (box,) = [one for one in picture.boxes.values() if one.title == title and one.kind is not Kind.OUTPUT]
    return [line.text for line in box.lines if line.role is role]


def ends(picture: Picture) -> set[tuple[str, str, str]]:
    """Every arrow by the titles of its boxes, and what arrives."""
    boxes = picture.boxes

    def label(one: Arrow) -> str:
        if one.dropped:
            return "dropped"
        return "" if one.input is None else boxes[one.end].inputs[one.input]

    return {(boxes[one.start].title, boxes[one.end].title, label(one)) for one in picture.arrows}


@pytest.mark.parametrize(("name", "mode"), DRAWN)
def test_every_source_operator_and_output_has_a_box_in_its_lane(name: str, mode: str) -> None:
    drawn = plan(name, mode)
    picture = picture_of(drawn)
    titles = [[box.title for box in lane.boxes] for lane in picture.lanes]
    assert titles[0] == [drawn.names[one] for one in sorted(drawn.sources, key=lambda one: one.serial)]
    for work, shown in zip(drawn.rounds, titles[1:-1], strict=True):
        operators = [placed.name for placed in work.operators]
        assert shown == (["(align)"] if work.alignment is not None else []) + operators
        for placed in work.operators:
            remembered = [f"remembers {spec.name}" for spec in placed.operator.traces]
            assert texts(picture, placed.name, Role.STATE) == remembered
    assert titles[-1] == [drawn.names[ending.node] for ending in drawn.endings]


@pytest.mark.parametrize(("name", "mode"), DRAWN)
def test_every_box_is_reached_and_arrows_lead_to_later_lanes(name: str, mode: str) -> None:
    picture = picture_of(plan(name, mode))
    lane_of = {box.name: at for at, lane in enumerate(picture.lanes) for box in lane.boxes}
    assert [one for one in picture.arrows if lane_of[one.start] >= lane_of[one.end]] == []
    reached = {one.end for one in picture.arrows}
    assert {box.name for box in picture.boxes.values() if box.kind is not Kind.SOURCE} == reached
    inputs = {(one.end, one.input) for one in picture.arrows if one.input is not None}
    assert inputs == {(box.name, at) for box in picture.boxes.values() for at in range(len(box.inputs))}


def test_a_foreign_key_join() -> None:
    picture = picture_of(plan("left_join"))
    assert picture.captions == ("2 rounds, 16 shards",)
    assert [(lane.title, lane.shuffle) for lane in picture.lanes] == [
        ("Sources", ""),
        ("Round 1", "shuffle"),
        ("Round 2", "shuffle"),
        ("Outputs", "last shuffle"),
    ]
    assert ends(picture) == {
        ("positions", "positions_tickers/subscribe", "subscribe"),
        ("tickers", "positions_tickers/answer", "right"),
        ("positions_tickers/subscribe", "positions_tickers/answer", "subscriptions"),
        ("positions_tickers/subscribe", "positions_tickers", ""),
        ("positions_tickers/answer", "positions_tickers", ""),
    }


def test_records_that_wait_go_through_the_alignment_only() -> None:
    found = ends(picture_of(plan("left_join", "align")))
    assert {one for one in found if one[0] in {"positions", "tickers"}} == {
        ("positions", "(align)", ""),
        ("tickers", "(align)", ""),
    }
    assert {one for one in found if one[0] == "(align)"} == {
        ("(align)", "positions_tickers/subscribe", "subscribe"),
        ("(align)", "positions_tickers/answer", "right"),
    }


def test_rejected_records_have_arrows_of_their_own() -> None:
    picture = picture_of(plan("two_outputs"))
    assert {(start, end) for start, end, label in ends(picture) if label == "dropped"} == {
        (start, "positions_tickers")
        for start in ("positions", "tickers", "positions_tickers/subscribe", "positions_tickers/answer")
    }


def test_views_are_named_where_they_are_read() -> None:
    a, b = filtered(source("a"), has_a), source("b")
    picture = picture_of(lower([Output(key_join(a, b, "inner"))], _types, PlanOptions(shards=1)))
    (box,) = [one for one in picture.boxes.values() if one.kind is Kind.OPERATOR]
    assert box.inputs == ("input 0: a_filter", "input 1")
    assert picture.captions == ("1 round, 1 shard",)


def test_a_plan_without_rounds_has_sources_and_outputs() -> None:
    picture = picture_of(lower([Output(source("a"))], _types, PlanOptions()))
    assert [lane.title for lane in picture.lanes] == ["Sources", "Outputs"]
    assert ends(picture) == {("a", "a", "")}


# Figures


def joined() -> PhysicalPlan:
    return plan("left_join")


def test_figures_are_added_up_and_the_size_of_the_state_is_the_last() -> None:
    drawn = joined()
    first = metrics(drawn, {("positions", "null-key"): 2, ("tickers", "null-key"): 0})
    answer = {"positions_tickers/answer": OperatorMetrics(1, 2, 30, 999_960, 0, 0, 0)}
    second = replace(
        metrics(drawn, {("positions", "null-key"): 3}, 1), operators={**first.operators, **answer}
    )
    picture = picture_of(drawn, Figures.of(iter([first, second])))
    assert (
        picture.captions[1] == "sold, 2 micro-batches: 2,468 records in, 154 changes out, 3.0 s, 1.5 s each"
    )
    assert texts(picture, "positions_tickers/subscribe", Role.FIGURES) == [
        "200 rows in, 20 out",
        "state: 1,000 rows, 12.3 kB",
    ]
    assert texts(picture, "positions_tickers/answer", Role.FIGURES) == [
        "201 rows in, 22 out",
        "state: 30 rows, 1.0 MB",
    ]
    assert texts(picture, "positions", Role.DROPS) == ["5 dropped: null-key"]
    assert texts(picture, "tickers", Role.DROPS) == []


def test_one_micro_batch_is_named_by_its_number() -> None:
    picture = picture_of(joined(), Figures.of(metrics(joined(), micro_batch=7)))
    assert picture.captions[1] == "sold, micro-batch 7: 1,234 records in, 77 changes out, 1.5 s"


def test_a_state_of_unknown_size_is_said_to_be_unknown() -> None:
    known = metrics(joined())
    operators = {name: operator_metrics(1, known=False) for name in known.operators}
    picture = picture_of(joined(), Figures.of(replace(known, operators=operators, query_name=None)))
    assert (
        texts(picture, "positions_tickers/answer", Role.FIGURES)[1] == "state: not all shards have reported"
    )
    assert picture.captions[1].startswith("1, micro-batch 0: ")


def test_an_operator_without_state_shows_no_size() -> None:
    drawn = plan("streams")
    picture = picture_of(drawn, Figures.of(metrics(drawn)))
    (shown,) = texts(picture, "trades_prices_key_corrections_flat", Role.FIGURES)
    assert shown.endswith(" out")


def test_every_drop_is_shown_at_its_box() -> None:
    right = materialized(source("prices"), 8)
    drawn = lower([Output(foreign_key_join(source("orders"), right, "left"))], _types, PlanOptions())
    counted = {reader.counted_by for between in drawn.between for reader in between.readers}
    (join,) = counted - {None}
    assert join not in {placed.name for work in drawn.rounds for placed in work.operators}
    dropped = {(str(join), "out-of-order"): 4, ("prices_kept", "expired"): 1_000, ("orders", "malformed"): 2}
    picture = picture_of(drawn, Figures.of(metrics(drawn, dropped)))
    shown = {
        box.title: [line.text for line in box.lines if line.role is Role.DROPS]
        for box in picture.boxes.values()
    }
    assert {title: lines for title, lines in shown.items() if lines} == {
        f"{join}/answer": ["4 dropped: out-of-order"],
        "prices_kept": ["1,000 dropped: expired"],
        "orders": ["2 dropped: malformed"],
    }


def test_metrics_of_another_plan_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"another plan: only one of both has .*positions_n/aggregate"):
        picture_of(joined(), Figures.of(metrics(plan("suppress"))))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no micro-batch"),
        (7, "has a int"),
        (["metrics"], "has a str"),
        ([metrics(plan("left_join")), replace(metrics(plan("left_join")), query_id="2")], "several queries"),
    ],
)
def test_what_is_no_metrics_is_refused(given: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refused:
        Figures.of(given)  # type: ignore[arg-type]
    assert "heard.append" in refused.value.hint
