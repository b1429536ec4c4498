"""The worked examples of KIP-914 and KIP-923 on the real operators: whole plans without Spark.

KIP-914's examples of a "complete history", in which a late version corrects what was joined with others, are of results
that Kafka Streams does not give, and neither do the joins here: they drop what is late.
"""

from __future__ import annotations

import pytest

from tablestream.topology.streams import Grace
from tests.conformance.notation import both_modes
from tests.conformance.test_operators_groups import item_of, minus, plus, selected
from tests.conformance.test_operators_versions import LATEST, NOT_PUT, Store
from tests.conformance.test_worked_examples_groups import answers, one_by_one_and_at_once
from tests.plans.tables import (
    Change,
    Record,
    aggregated,
    filtered,
    grouped,
    key_join,
    looked_up,
    materialized,
    source,
    stream,
)

HISTORY = 10


@one_by_one_and_at_once
@both_modes
@pytest.mark.parametrize("versioned", [True, False])
def test_kip_914_a_late_row_is_not_joined_on_the_key(versioned: bool, *, compat: bool, at_once: bool) -> None:
    a, b = source("A"), source("B")
    node = key_join(materialized(a, HISTORY), materialized(b, HISTORY)) if versioned else key_join(a, b)
    records = [Record(a, "k", "a0", 0), Record(a, "k", "a4", 4), Record(b, "k", "b2", 2)]
    records.append(Record(b, "k", "b1", 1))
    late = [] if versioned else [(("k",), "(a4,b1)", 4)]
    assert answers(node, records, compat=compat, at_once=at_once) == [(("k",), "(a4,b2)", 4), *late]


def is_v(value: str) -> bool:
    return value.startswith("v")


@one_by_one_and_at_once
@both_modes
def test_kip_914_a_filter_of_versions_forwards_each_of_them(*, compat: bool, at_once: bool) -> None:
    table, records = source("T"), stream("S")
    view = filtered(materialized(table, HISTORY), is_v)
    changes = [Record(table, "k", value, ts) for value, ts in [("v1", 1), ("n", 2), ("n", 4), ("v2", 3)]]
    told = answers(view, changes, compat=compat, at_once=at_once)
    assert told == [(("k",), "v1", 1), (("k",), None, 2), (("k",), None, 4), (("k",), "v2", 3)]
    found = looked_up(records, view, "left", lambda _, key: key[0])
    asked = [*changes, *(Record(records, "k", "r", ts) for ts in (2, 3, 4, 9))]
    rows = [change.value for change in answers(found, asked, compat=compat, at_once=at_once)]
    assert rows == ["(r,null)", "(r,v2)", "(r,null)", "(r,null)"]
    other = source("O")
    latest = key_join(other, view, "left")
    joined = answers(latest, [*changes, Record(other, "k", "o", 9)], compat=compat, at_once=at_once)
    assert joined == [(("k",), "(o,null)", 9)]


@one_by_one_and_at_once
def test_kip_914_a_filter_that_knows_the_row_before_drops_the_second_tombstone(*, at_once: bool) -> None:
    table = source("T")
    changes = [Record(table, "k", value, ts) for value, ts in [("v1", 1), ("n", 2), ("n", 4), ("v2", 3)]]
    told = answers(filtered(table, is_v), changes, compat=False, at_once=at_once)
    assert told == [(("k",), "v1", 1), (("k",), None, 2), (("k",), "v2", 3)]


@one_by_one_and_at_once
@both_modes
def test_kip_914_a_group_of_versions_leaves_a_late_row_out(*, compat: bool, at_once: bool) -> None:
    table = source("T")
    versions = materialized(table, HISTORY)
    node = grouped(versions, selected, aggregated(lambda: "0", plus, minus), of=item_of)
    records = [Record(table, "k", f"g:{value}", ts) for value, ts in [("v1", 1), ("v2", 10), ("v3", 5)]]
    assert answers(node, records, compat=compat, at_once=at_once) == [
        (("g",), "0+v1", 1),
        (("g",), "0+v1-v1+v2", 10),
    ]


@both_modes
def test_kip_914_put_returns_the_end_of_the_version(*, compat: bool) -> None:
    store = Store(HISTORY, forgetful=compat)
    assert [store.put("k", "v", ts) for ts in (10, 20, 15, 9)] == [LATEST, LATEST, 20, NOT_PUT]


VERSIONS = [("1", "aaa"), ("2", "bxx"), ("3", "ccy")]
ARRIVED = [("1", "d", 4), ("2", "e", 1), ("3", "f", 2), ("2", "g", 2), ("3", "h", 3)]


def of_kip_923(grace: Grace | None, *, compat: bool, at_once: bool, late: bool) -> list[Change]:
    """Join the stream of the example; `late`: versions but the first of each key come behind its records."""
    table, records = source("T"), stream("S")
    node = looked_up(records, materialized(table, HISTORY), "inner", lambda _, key: key[0], grace=grace)
    versions = [
        Record(table, key, value, ts)
        for ts in (1, 2, 3)
        for key, value in [(k, v[ts - 1]) for k, v in VERSIONS]
    ]
    told = [Record(records, *one) for one in ARRIVED]
    first = len(VERSIONS) if late else len(versions)
    log = [*versions[:first], *told, *versions[first:], Record(records, "9", "end", 9)]
    return answers(node, log, compat=compat, at_once=at_once, shards=1)


@one_by_one_and_at_once
@both_modes
@pytest.mark.parametrize("late", [False, True])
def test_kip_923_with_grace_records_wait_for_their_versions(
    late: bool, *, compat: bool, at_once: bool
) -> None:
    assert of_kip_923(Grace(5), compat=compat, at_once=at_once, late=late) == [
        (("2",), "(e,b)", 1),
        (("2",), "(g,x)", 2),
        (("3",), "(f,c)", 2),
        (("3",), "(h,y)", 3),
        (("1",), "(d,a)", 4),
    ]


@one_by_one_and_at_once
@both_modes
@pytest.mark.parametrize("late", [False, True])
def test_kip_923_without_grace_they_meet_those_that_have_come(
    late: bool, *, compat: bool, at_once: bool
) -> None:
    assert of_kip_923(None, compat=compat, at_once=at_once, late=late) == [
        (("1",), "(d,a)", 4),
        (("2",), "(e,b)", 1),
        (("3",), "(f,c)", 2),
        (("2",), "(g,b)" if late else "(g,x)", 2),
        (("3",), "(h,c)" if late else "(h,y)", 3),
    ]
