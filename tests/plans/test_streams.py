"""Plans of streams and of tables kept: each against its twin of reference operators, in both modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_each
from tests.plans.catalogue import KEPT, Plan, by_letter, has_a, marked, without_b
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    DELETING,
    HISTORY,
    REDUCED,
    counted,
    filtered,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    mapped,
    materialized,
    merged,
    rekeyed,
    source,
    stream,
    to_stream,
    to_table,
    unfolded,
)

if TYPE_CHECKING:
    from tablestream.topology.nodes import How, Node
    from tests.plans.tables import Key

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
SIZE = 150


def halves(value: str) -> list[str | None] | None:
    """Unfold a value into one per pointer, some of them null, or into nothing."""
    parts = [f"{value[0]}|{part}" for part in value.split("|")[1:]]
    if not parts:
        return None if value.startswith("a") else []
    return [None if number == 1 and value.startswith("b") else part for number, part in enumerate(parts)]


def own_key(value: str, key: Key) -> str | None:
    """Point at the record's own key."""
    del value
    return key[0]


def _both_halves(records: Node) -> tuple[Node, ...]:
    return filtered(records, has_a), filtered(records, has_a, negate=True)


def _merged_with_itself() -> tuple[Node, ...]:
    records = stream("S")
    return merged(records, filtered(records, has_a)), merged(records, records)


def _kept_and_joined() -> tuple[Node, ...]:
    table = materialized(filtered(source("A"), has_a))
    return key_join(table, source("B"), "outer"), foreign_key_join(table, filtered(table, has_a), "left")


def _groups_of_groups() -> tuple[Node, ...]:
    groups = counted(stream("S"))
    return (looked_up(to_stream(groups), source("A"), "left", own_key),)


def _two_tables_of_one_stream() -> tuple[Node, ...]:
    records = stream("S")
    return (key_join(to_table(records), to_table(rekeyed(records)), "outer"),)


def _itself(how: How, *, copied: bool) -> tuple[Node, ...]:
    table = source("A")
    return (looked_up(to_stream(table), table, how, copied=copied),)


PLANS: dict[str, Plan] = {
    "records": lambda: (stream("S"),),
    "records filtered, and the others": lambda: _both_halves(stream("S")),
    "records mapped": lambda: (mapped(stream("S"), without_b),),
    "records filtered, mapped and filtered": lambda: (
        filtered(mapped(filtered(stream("S"), has_a), marked), has_a),
    ),
    "records with another key": lambda: (rekeyed(stream("S")),),
    "records unfolded": lambda: (unfolded(stream("S"), halves),),
    "records unfolded twice": lambda: (unfolded(mapped(unfolded(stream("S"), halves), marked), halves),),
    "records merged": lambda: (merged(stream("S"), stream("T")),),
    "records merged with themselves": _merged_with_itself,
    "records merged thrice": lambda: (
        filtered(merged(merged(stream("S"), mapped(stream("T"), marked)), stream("U")), has_a),
    ),
    "a stream as a table": lambda: (to_table(stream("S")),),
    "a stream with another key as a table": lambda: (to_table(rekeyed(stream("S"))),),
    "unfolded records as a table": lambda: (to_table(unfolded(stream("S"), halves)),),
    "a table as a stream": lambda: (to_stream(source("A")),),
    "a filtered table as a stream": lambda: (to_stream(filtered(source("A"), has_a)),),
    "a filtered table as a stream, filtered": lambda: (
        filtered(to_stream(filtered(source("A"), has_a)), has_a, negate=True),
    ),
    "a mapped table as a stream as a table": lambda: (to_table(to_stream(mapped(source("A"), without_b))),),
    "groups of records": lambda: (grouped(stream("S"), functions=HISTORY),),
    "groups of records by letter, reduced": lambda: (grouped(stream("S"), by_letter, REDUCED),),
    "groups of records that delete": lambda: (grouped(stream("S"), by_letter, DELETING),),
    "groups of records, counted": lambda: (counted(stream("S")),),
    "groups of records by their key": lambda: (counted(stream("S"), own_key),),
    "groups of unfolded records": lambda: (grouped(unfolded(stream("S"), halves), by_letter),),
    "groups of merged records, counted": lambda: (counted(merged(stream("S"), stream("T"))),),
    "a table kept": lambda: (materialized(source("A")),),
    "a filtered table kept, and joined": _kept_and_joined,
    "groups as a stream, looked up in them": _groups_of_groups,
    "a stream as a table, joined with a table": lambda: (
        key_join(to_table(stream("S")), source("B"), "outer"),
    ),
    "a stream as two tables that are joined": _two_tables_of_one_stream,
}
for _how in KEPT:
    for _copied in (False, True):
        _name = f"{_how}, {'every shard has the table' if _copied else 'at the table'}"
        PLANS[f"records look up {_name}"] = lambda how=_how, copied=_copied: (  # type: ignore[misc]
            looked_up(stream("S"), source("A"), how, copied=copied),
        )
        PLANS[f"the changes of a table look up {_name}"] = lambda how=_how, copied=_copied: _itself(  # type: ignore[misc]
            how, copied=copied
        )
        PLANS[f"merged and unfolded records look up a join {_name}"] = lambda how=_how, copied=_copied: (  # type: ignore[misc]
            looked_up(
                merged(unfolded(stream("S"), halves), rekeyed(stream("T"))),
                foreign_key_join(source("A"), source("B"), "left"),
                how,
                copied=copied,
            ),
        )


@both_modes
@pytest.mark.parametrize("name", quick_each(PLANS))
def test_a_plan_with_streams_gives_what_its_reference_operators_give(name: str, *, compat: bool) -> None:
    for seed in (1, 2):
        nodes = PLANS[name]()
        log = random_log(sources_of(nodes), seed, SIZE)
        pieces = [log] if seed == 1 else random_cuts(log, seed, 4)
        assert_like_twin(nodes, pieces, compat=compat, shards=seed, restarts=True)
