"""Plans of versioned tables: each against its twin of reference operators, in both modes, whole and cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.topology.streams import Grace
from tests.marks import quick_each, quick_first
from tests.plans.catalogue import HOWS, KEPT, Plan, by_key, by_letter, has_a, marked, without_b
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    DELETING,
    REDUCED,
    Record,
    counted,
    filtered,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    mapped,
    materialized,
    merged,
    one_to_many,
    points,
    source,
    stream,
    suppressed,
    to_stream,
    to_table,
)

if TYPE_CHECKING:
    from tablestream.topology.nodes import How, Node
    from tests.plans.tables import Key

#: What Kafka Streams recorded of versions is compat mode already, and runs in `make check`.
both_modes = pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])
SIZE = 150


def own_key(value: str, key: Key) -> str | None:
    """Point at the record's own key."""
    del value
    return key[0]


def versions(name: str = "A", history: int = 3) -> Node:
    return materialized(source(name), history)


PLANS: dict[str, Plan] = {
    "versions": lambda: (versions(),),
    "versions of no history": lambda: (versions(history=0),),
    "versions filtered": lambda: (filtered(versions(), has_a),),
    "versions filtered, mapped and filtered": lambda: (
        filtered(mapped(filtered(versions(), has_a), marked, total=True), has_a, negate=True),
    ),
    "versions mapped": lambda: (mapped(versions(), without_b),),
    "versions as a stream as a table": lambda: (to_table(to_stream(versions())),),
    "filtered versions as a stream": lambda: (to_stream(filtered(versions(), has_a)),),
    "versions of a mapped table": lambda: (materialized(mapped(source("A"), without_b), 3),),
    "versions of a filtered table": lambda: (materialized(filtered(source("A"), has_a), 3),),
    "versions of versions": lambda: (materialized(versions(history=5), 1),),
    "versions kept without a history, joined": lambda: (
        key_join(materialized(versions()), source("B"), "outer"),
    ),
    "versions of groups": lambda: (materialized(grouped(source("A"), by_letter), 3),),
    "versions of a join": lambda: (materialized(foreign_key_join(source("A"), source("B"), "left"), 3),),
    "versions of a stream": lambda: (key_join(materialized(to_table(stream("S")), 3), source("B"), "left"),),
    "groups of versions": lambda: (grouped(versions()), counted(filtered(versions("B"), has_a), by_key)),
    "groups of versions that delete": lambda: (grouped(versions(), by_letter, DELETING),),
    "groups of versions, reduced": lambda: (grouped(versions(), by_letter, REDUCED),),
    "a join of versions, suppressed": lambda: (suppressed(key_join(versions(), versions("B"), "outer"), 5),),
}


def _twice(how: How) -> tuple[Node, ...]:
    table = versions()
    return (key_join(table, filtered(table, has_a), how), foreign_key_join(table, table, how))


def _joins(how: How) -> None:
    PLANS[f"versions key {how} versions"] = lambda: (key_join(versions(), versions("B", 0), how),)
    PLANS[f"versions key {how} a table, filtered"] = lambda: (
        key_join(filtered(versions(), has_a), mapped(source("B"), without_b), how),
    )
    PLANS[f"versions foreign key {how} versions"] = lambda: (
        foreign_key_join(versions(), versions("B", 8), how),
    )
    PLANS[f"filtered versions foreign key {how} filtered versions"] = lambda: (
        foreign_key_join(filtered(versions(), has_a), filtered(versions("B"), has_a), how),
    )
    PLANS[f"a table foreign key {how} versions key outer a table"] = lambda: (
        foreign_key_join(source("A"), key_join(versions("B"), source("C"), "outer"), how),
    )
    PLANS[f"versions joined with themselves {how}"] = lambda: _twice(how)


def _records(how: How, *, copied: bool) -> None:
    where = f"{how}, {'every shard has the versions' if copied else 'at the versions'}"
    for grace in (None, Grace(0), Grace(2), Grace(6), Grace(3, table_advances=True)):
        PLANS[f"records look up {where}, {grace}"] = lambda grace=grace: (  # type: ignore[misc]
            looked_up(stream("S"), versions(history=8), how, copied=copied, grace=grace),
        )
        PLANS[f"records look up by their key, as a table, {where}, {grace}"] = lambda grace=grace: (  # type: ignore[misc]
            grouped(
                to_table(
                    looked_up(stream("S"), versions(history=8), how, own_key, copied=copied, grace=grace)
                ),
                points(1),
            ),
        )
    PLANS[f"records look up views {where}"] = lambda: (
        looked_up(stream("S"), mapped(filtered(versions(history=8), has_a), marked, total=True), how, copied=copied,
                  grace=Grace(2)),
    )  # fmt: skip
    PLANS[f"what waited looks up {where}"] = lambda: (
        looked_up(
            looked_up(stream("S"), versions(history=8), "left", grace=Grace(2)),
            versions("B", 6),
            how,
            points(1),
            copied=copied,
            grace=Grace(3),
        ),
    )
    PLANS[f"merged records look up {where}"] = lambda: (
        looked_up(merged(stream("S"), stream("T")), versions(history=5), how, copied=copied, grace=Grace(5)),
    )


def _self_lookup(how: How) -> tuple[Node, ...]:
    table = versions(history=8)
    return (
        looked_up(to_stream(table), table, how, own_key),
        looked_up(to_stream(table), table, how, grace=Grace(3)),
    )


def _with_own_versions(how: How) -> tuple[Node, ...]:
    """The versions are told before the join that was declared after them, in compat."""
    rows = filtered(foreign_key_join(source("A"), source("B"), "left"), has_a)
    return (key_join(rows, materialized(rows, 8), how),)


for one_how in HOWS:
    _joins(one_how)
    PLANS[f"a filtered join key {one_how} its versions"] = lambda how=one_how: _with_own_versions(how)  # type: ignore[misc]
for one_how in KEPT:
    PLANS[f"one to many of versions {one_how}"] = lambda how=one_how: (  # type: ignore[misc]
        one_to_many(versions(), versions("B"), how),
    )
    PLANS[f"the changes of versions look up {one_how}"] = lambda how=one_how: _self_lookup(how)  # type: ignore[misc]
    for one_copied in (False, True):
        _records(one_how, copied=one_copied)


@both_modes
@pytest.mark.parametrize("cut", quick_first([True, False]), ids=["cut", "whole"])
@pytest.mark.parametrize("name", quick_each(PLANS))
def test_a_plan_of_versions_gives_what_its_reference_operators_give(
    name: str, *, cut: bool, compat: bool
) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), 2 if cut else 1, SIZE, worlds=2)
    pieces = random_cuts(log, 2, 4) if cut else [log]
    # What a version of a copied table releases has no order among the shards.
    one_shard = not cut or ("table_advances=True" in name and "every shard" in name)
    assert_like_twin(nodes, pieces, compat=compat, shards=1 if one_shard else 2, restarts=True)


@pytest.mark.parametrize("how", KEPT)
def test_what_waited_does_not_divide_the_step_of_other_joins(how: How) -> None:
    nodes = beside_what_waits(how)
    log = [Record(sources_of(nodes)[0], ("k",), "a", 6)] * 2
    assert_like_twin(nodes, [log], shards=1)


def beside_what_waits(how: How = "left") -> tuple[Node, ...]:
    """What waited leaves between the two messages by which a record reaches the other joins."""
    table = source("A")
    kept = materialized(table, 8)
    pairs = key_join(kept, kept)
    # A record that points at nothing does not wait.
    waited = to_table(looked_up(to_stream(kept), kept, "left", points(0), grace=Grace(3)))
    pointing = foreign_key_join(pairs, table, "inner", own_key, copied=True)
    return (waited, one_to_many(pointing, pointing, how, own_key))


def test_a_record_leaves_after_what_the_version_of_its_step_releases() -> None:
    """Both come from one record, and the way of the version is declared after that of the record."""
    table = source("A")
    told = to_stream(materialized(materialized(table, 0), 2))
    joined = looked_up(told, materialized(table, 4), "left", points(0), grace=Grace(3, table_advances=True))
    log = [Record(table, ("k",), "a|k", 22), Record(table, ("k",), "b", 27)]
    assert_like_twin([to_table(joined)], [log], shards=1, ordered=True)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_records_that_one_record_releases_are_steps_of_their_own_in_every_shard(shards: int) -> None:
    """One right row makes four records. They wait, and the next ones release them, before the way of the versions."""
    right, left = source("A"), source("B")
    told = to_stream(foreign_key_join(left, right, "inner", points(0), lambda one, two: f"{one};{two}"))
    kept = materialized(materialized(materialized(right, 0), 0), 4)
    joined = looked_up(told, kept, "left", points(0), copied=True, grace=Grace(3))
    log = [Record(right, ("k",), "x", 10), *(Record(left, (key,), "|k", 10) for key in "pqrs")]
    log += [Record(right, ("z",), "zz", 40), Record(left, ("t",), "|z", 40), Record(right, ("k",), "y", 20)]
    assert_like_twin([counted(to_table(joined), lambda *_: "g")], [log], shards=shards)
