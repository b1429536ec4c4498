"""What a query says about dropped records, and the table of the reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tablestream.base.data_text import leave_out_data
from tablestream.errors import DroppedRecordError
from tablestream.operators.reasons import LATE, MALFORMED, NULL_KEY, REASONS, STALE, SUPERSEDED
from tablestream.runtime.drops import (
    ACCEPTED,
    DropReport,
    DropRules,
    Drops,
    Notice,
    OnDrop,
    example_text,
    place_text,
    unread_text,
)

PAGE = (Path(__file__).parents[2] / "docs" / "semantics" / "dropped-records.md").read_text(encoding="utf-8")


def drops(on_drop: OnDrop) -> Drops:
    return Drops(DropRules(on_drop))


def test_the_page_has_the_table_of_the_reasons() -> None:
    rows = [
        f"| `{one.name}` | {one.kind} | {one.meaning} | {one.remedy} |"
        for one in REASONS.values()
        if one.kind != "counted"
    ]
    assert re.findall(r"^\| `[a-z-]+` \| (?:lost|rule) \|.*$", PAGE, re.MULTILINE) == rows
    assert all(
        one.meaning.endswith(".") and one.remedy.endswith(".") for one in REASONS.values() if one.remedy
    )


def test_a_reason_is_told_first_and_at_powers_of_ten() -> None:
    report = DropReport()
    said = [report.hear(batch, [Notice("orders/versions", LATE, 3, f"row {batch}")]) for batch in range(40)]
    assert {
        batch: text for batch, (text, *_) in enumerate(said[batch] or [""] for batch in range(40)) if text
    } == {
        0: "orders/versions: late, 3 records so far in this run. Passed on at once: it came too late to wait. Example:"
        " row 0. Give a longer grace or bound if such records should wait.",
        3: "orders/versions: late, 12 records so far in this run. Passed on at once: it came too late to wait. Example:"
        " row 3. Give a longer grace or bound if such records should wait.",
        33: "orders/versions: late, 102 records so far in this run. Passed on at once: it came too late to wait."
        " Example: row 33. Give a longer grace or bound if such records should wait.",
    }


@pytest.mark.parametrize(
    ("notices", "told"),
    [
        ([Notice("a", NULL_KEY, 2), Notice("a", MALFORMED, 1), Notice("a", ACCEPTED, 0)], "2 null-key"),
        ([Notice("a", NULL_KEY, 2), Notice("a", ACCEPTED, 0), Notice("a", ACCEPTED, 1)], ""),
        ([Notice("a/sequenced", "null-sequence", 2), Notice("a", ACCEPTED, 2)], "2 null-sequence"),
        ([Notice("a/sequenced", "null-sequence", 2), Notice("a", ACCEPTED, 3)], ""),
        ([Notice("a/sequenced", SUPERSEDED, 2), Notice("a", ACCEPTED, 2)], ""),
        ([Notice("a", ACCEPTED, 0)], ""),
        ([Notice("b", NULL_KEY, 2)], ""),
    ],
)
def test_a_source_that_loses_every_record_is_told_once(notices: list[Notice], told: str) -> None:
    report = DropReport()
    first, second = (report.hear(batch, notices) for batch in (4, 5))
    every = [text for text in first if "EVERY" in text]
    assert [text.startswith("a: EVERY record of micro-batch 4 was lost (") for text in every] == [
        True
    ] * bool(told)
    assert not told or told in every[0]
    assert not any("EVERY" in text for text in second)


def test_only_what_means_lost_input_fails() -> None:
    lost = {name for name, one in REASONS.items() if one.kind == "lost"}
    assert lost == {"malformed", "null-key", "null-timestamp", "null-sequence", "unknown-value"}
    for name in REASONS.keys() - lost:
        drops("fail").add("orders", name, 1, lambda: "row 1")
    for name in lost:
        with pytest.raises(
            DroppedRecordError, match=rf"lost \({name}\).*Example: row 1\. \(orders, built at a.py:3\)"
        ):
            drops("fail").add("orders", name, 1, lambda: "row 1", "a.py:3")


def test_an_example_is_made_once_and_only_for_what_is_told() -> None:
    made: list[str] = []

    def example() -> str:
        made.append("one")
        return "row 1"

    told = drops("warn")
    for reason, count in ((NULL_KEY, 0), (NULL_KEY, 2), (NULL_KEY, 3), (STALE, 1)):
        told.add("orders", reason, count, example)
    told.accept("orders", 7)
    assert list(told.notices()) == [("orders", NULL_KEY, 5, "row 1"), ("orders", ACCEPTED, 7, "")]
    ignored = drops("ignore")
    ignored.add("orders", NULL_KEY, 2, example)
    ignored.accept("orders", 7)
    assert (list(ignored.notices()), ignored.counts) == ([], {("orders", NULL_KEY): 2})
    assert made == ["one"]


def test_an_example_is_cut_shows_control_characters_and_can_leave_data_out() -> None:
    partition = "0000\tor\x1bders\t00000000000000000002"
    key = '{"id":"\x1b[2J' + "x" * 1000 + '"}'
    shown = example_text(partition, 7, key)
    assert shown.startswith(r'key {"id":"\x1b[2Jxxx')
    assert shown.endswith(r"x..., topic or\x1bders, partition 2, offset 7")
    assert len(shown) < 300
    leave_out_data(True)
    try:
        assert example_text(partition, 7, key) == r"key (left out), topic or\x1bders, partition 2, offset 7"
        assert unread_text("secret", explained=False) == "(left out)"
        explained = unread_text('{"error":"no number","key":"secret"}', explained=True)
        assert explained == "no number: (left out)"
    finally:
        leave_out_data(False)


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        ("0000\t00001795631533161000\tfile:/a/1.csv\t00000000000000000000", "file:/a/1.csv, row 7"),
        (
            "0000\t00001795631533161000\tfile:/a/1.csv\t00000000000134217728",
            "file:/a/1.csv, row 7 of the block from byte 134217728",
        ),
        ("0003\tquotes\t00000000000000000012", "topic quotes, partition 12, offset 7"),
        ("0000\t00000003", "source partition 00000003, row 7"),
        ("!bootstrap", "a row of bootstrap="),
    ],
)
def test_a_place_is_said_for_people(partition: str, said: str) -> None:
    assert place_text(partition, 7) == said
