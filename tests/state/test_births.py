"""The list of births: which shards must have state, and which may be new."""

from __future__ import annotations

import pytest

from tablestream.errors import DamagedStateError
from tablestream.state.births import BirthRecord, Births, NewShard, decode, encode

QUERY = "one"
NAMES = {1: "subscribe", 2: "answer, totals"}


def new(*places: tuple[int, int], is_born: bool = True) -> list[NewShard]:
    return [NewShard(*place, is_born) for place in places]


def births(*entries: tuple[int, list[NewShard]]) -> Births:
    """Let micro-batches happen; each entry goes through its text."""
    known = Births(QUERY)
    for micro_batch, found in entries:
        known.check(micro_batch, found, NAMES)
        record = known.record(micro_batch, found)
        known = known.after(None if record is None else decode(encode(record)))
    return known


def test_a_shard_that_was_born_before_is_missed() -> None:
    known = births((0, new((1, 0), (2, 5))), (1, new((2, 6))))
    known.check(2, new((1, 1)), NAMES)
    with pytest.raises(
        DamagedStateError, match=r"whole state of shard 5 of round 2 is gone.*micro-batch 0"
    ) as caught:
        known.check(1, new((2, 6), (2, 5)), NAMES)
    assert caught.value.operator == "answer, totals"
    assert "Restart from a complete checkpoint" in caught.value.hint
    with pytest.raises(DamagedStateError, match="shard 6 of round 2"):
        known.check(2, new((2, 6), is_born=False), NAMES)


def test_a_micro_batch_that_is_done_again_has_the_same_births() -> None:
    once = births((0, new((1, 0))), (1, new((1, 1))))
    again = births((0, new((1, 0))), (1, new((1, 1))), (1, new((1, 1))))
    assert again.born == once.born == {(1, 0): 0, (1, 1): 1}


def test_a_shard_that_wrote_nothing_is_not_born() -> None:
    known = births((0, new((1, 0), is_born=False)), (3, new((1, 0), is_born=False)), (4, new((1, 0))))
    assert known.born == {(1, 0): 4}
    assert known.number == 1


def test_a_query_that_was_set_back_forgets_later_births_and_stores_that() -> None:
    """Back to micro-batch 2, and another input since: shard 1 is born later now."""
    known = births((0, new((1, 0))), (5, new((1, 1))))
    record = known.record(2, [])
    assert record == BirthRecord(QUERY, 2, 2, ())
    known = known.after(record)
    assert known.record(3, []) is None
    known.check(9, new((1, 1)), NAMES)
    with pytest.raises(DamagedStateError):
        known.check(2, new((1, 0)), NAMES)


def test_entries_are_put_together_in_any_order_and_those_of_other_queries_are_left_out() -> None:
    entries = [
        BirthRecord(QUERY, 0, 0, ((1, 0),)),
        BirthRecord(QUERY, 1, 4, ((1, 1),)),
        BirthRecord(QUERY, 2, 3, ()),
    ]
    other = BirthRecord("other", 9, 0, ((1, 7),))
    for order in (entries, entries[::-1]):
        known = Births.of([other, *order], QUERY)
        assert (known.born, known.number) == ({(1, 0): 0}, 3)


def test_a_lost_entry_only_weakens_the_list() -> None:
    known = Births.of([BirthRecord(QUERY, 1, 4, ((1, 1),))], QUERY)
    known.check(5, new((1, 0)), NAMES)
    with pytest.raises(DamagedStateError):
        known.check(5, new((1, 1)), NAMES)


def test_an_altered_entry_is_refused() -> None:
    text = encode(BirthRecord(QUERY, 0, 3, ((1, 0),)))
    for altered in (text.replace("3", "4"), text[:-1], "", "[", text.splitlines()[1]):
        with pytest.raises(DamagedStateError, match="list of shards"):
            decode(altered)
