"""Tables that are read from the state of a plan, against those that its changes leave."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.errors import PlanChangedError, StateError
from tablestream.planner.catalogue import decode, encode
from tablestream.planner.physical_plan import Align
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.topology.graph import base_of, named_as
from tablestream.topology.nodes import Aggregate, Materialize, Source
from tablestream.topology.streams import Grace
from tests.marks import quick_first
from tests.plans.catalogue import COMPOSED, SINGLE, marked, own_key, without_b
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output, StoredRow
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Change,
    Record,
    counts,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    mapped,
    materialized,
    merged,
    points,
    reordered,
    source,
    starred,
    stream,
    suppressed,
    to_table,
)
from tests.plans.test_versions import ByHand
from tests.state.tables import faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.planner.catalogue import StoredTables
    from tablestream.topology.nodes import Node

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])


def stored(engine: Engine) -> StoredTables:
    return decode(engine.plan.rounds[0].tables)


def left(changes: Sequence[Change]) -> dict[Any, tuple[Any, int]]:
    """The rows that changes leave, by key."""
    rows = {change.key: (change.value, change.ts) for change in changes}
    return {key: row for key, row in rows.items() if row[0] is not None}


def new_ones(changes: Sequence[Change]) -> list[bool]:
    """Which changes give their key another value."""
    rows: dict[Any, Any] = {}
    found = []
    for change in changes:
        found.append(rows.get(change.key) != change.value)
        rows[change.key] = change.value
    return found


def read(engine: Engine, name: str) -> dict[Any, tuple[Any, int]]:
    """The rows in the state, by key."""
    rows = engine.read(name)
    found = {row.key: (row.value, row.ts) for row in rows}
    assert len(found) == len(rows)
    return found


def check(nodes: Sequence[Node], *, compat: bool = False, seed: int = 0) -> int:
    """Run a plan, hold each table in its state to the changes of that table, and say how many there were."""
    names = Engine([Output(node) for node in nodes], compat).plan.names
    by_name = {named_as(node, names): node for node in names}
    tables = {
        table.name: by_name[table.name]
        for table in stored(Engine([Output(n) for n in nodes], compat)).tables
        if not table.waits
    }
    outputs = [Output(node) for node in (*nodes, *tables.values())]
    engine = Engine(outputs, compat, shards=3)
    changes: list[list[Change]] = [[] for _ in outputs]
    for piece in random_cuts(random_log(sources_of(nodes), seed, 150), seed, 4):
        for number, new in enumerate(engine.run(piece)):
            changes[number] += new
        engine = engine.restarted()
    for (name, node), told in zip(tables.items(), changes[len(nodes) :], strict=True):
        got: dict[Any, tuple[Any, ...]] = dict(read(engine, name))
        wanted: dict[Any, tuple[Any, ...]] = dict(left(told))
        if isinstance(node, Source) and not compat:
            # A join gives a row that is written again the time of the row before.
            older = left([change for change, is_new in zip(told, new_ones(told), strict=True) if is_new])
            wanted = {key: older[key] if got.get(key) == older[key] else row for key, row in wanted.items()}
        if not isinstance(base_of(node), Source | Aggregate | Materialize):
            # A row that a join made has a time of its own, which its last change need not have.
            got, wanted = ({key: row[:1] for key, row in rows.items()} for rows in (got, wanted))
        assert got == wanted, name
        check_places(engine, name)
    assert [fault for store in engine.stores.values() for fault in faults(store)] == []
    return len(tables)


def check_places(engine: Engine, name: str) -> None:
    """Hold the rows of a table to what the hash of a key says: their shard, and which rows are read for it."""
    table = decode(engine.plan.rounds[0].tables).by_name[name]
    hashes = set()
    for (number, shard), store in engine.stores.items():
        if number == table.round:
            state = ShardState(store, NoCache(), table.traces, table.fingerprint)
            here = state.trace(table.traces[0].name).scan()[table.traces[0].hash]
            hashes |= set(here.to_list())
            if not table.copied and table.copies is None:
                assert set(here.reinterpret(signed=False) % engine.shards) <= {shard}, name
    of_keys = [row for hashed in hashes for row in engine.read(name, hashed=hashed)]
    assert sorted(map(repr, of_keys)) == sorted(map(repr, engine.read(name))), name


@pytest.mark.parametrize(
    "name",
    quick_first(
        [
            "key left, left filtered, right mapped",
            "foreign key left",
            "foreign key outer, both sides filtered",
            "foreign key self inner",
            "one to many self left",
            "both foreign keys of A into B, each joined, then key join",
            "A five times",
            "pairs joined with a table of two key parts",
            "A foreign key left (copies of A)",
            "groups by two parts",
            "groups by two parts, counted",
            "groups that delete",
            "groups that stay when empty, counted",
            "(groups of A) key left (other groups of A)",
            "groups of groups",
            "best row of groups",
            "top of groups by letter, in two orders",
            "top of groups of a filtered table, mapped",
            "groups of top, and top of groups of top",
            "(A foreign key left B) suppressed, key outer A, filtered",
        ],
        8,
    ),
)
def test_a_table_is_read_as_its_changes_left_it(name: str) -> None:
    check((SINGLE | COMPOSED)[name](), seed=len(name))


@pytest.mark.parametrize(
    "name", ["key outer", "A foreign key left (groups of A)", "groups of groups that delete"]
)
def test_a_table_is_read_in_compat_mode(name: str) -> None:
    check((SINGLE | COMPOSED)[name](), compat=True, seed=len(name))


@both_modes
@pytest.mark.parametrize("keeps_order", [False, True], ids=["suppress", "reorder"])
def test_what_waits_is_what_is_still_to_come(*, keeps_order: bool, compat: bool) -> None:
    a = source("A")
    table = key_join(a, source("B"), "left")
    buffer = reordered(a, 40) if keeps_order else suppressed(table, 40)
    before = buffer.parent
    engine = Engine([Output(buffer), Output(before)], compat, shards=3)
    came, went, waited = list[Change](), list[Change](), 0
    for piece in random_cuts(random_log(sources_of([table]), 7, 200), 7, 9):
        gone, new = engine.run(piece)
        came, went, engine = came + new, went + gone, engine.restarted()
        waiting = sorted(
            engine.read(f"{named_as(buffer, engine.plan.names)}.waiting"), key=lambda row: row.ts
        )
        waited += len(waiting)
        if keeps_order:
            assert Counter(map(repr, came)) == Counter(
                map(repr, [*went, *(Change(*row[:3]) for row in waiting)])
            )
        else:
            rows = left(went) | {row.key: (row.value, row.ts) for row in waiting}
            assert {key: row for key, row in rows.items() if row[0] is not None} == left(came)
    assert waited > 0


@pytest.mark.parametrize("kind", ["key", "foreign key", "groups"])
def test_what_waits_for_other_sources_is_what_came_and_is_in_no_table_yet(kind: str) -> None:
    a, b = source("A"), source("B")
    made = {
        "key": key_join(a, mapped(b, without_b), "outer"),
        "foreign key": foreign_key_join(a, b, "left"),
        "groups": grouped(foreign_key_join(a, grouped(b, own_key), "left"), own_key),
    }[kind]
    engine = Engine([Output(a), Output(b), Output(made)], shards=3, align=Align())
    came, went, waited = Counter[Any](), Counter[Any](), 0
    for piece in random_cuts(random_log([a, b], 5, 200), 5, 9):
        came.update((one.source, one.key, one.value) for one in piece if one.key is not None)
        for of, told in zip((a, b), engine.run(piece), strict=False):
            went.update((of, change.key, change.value) for change in told)
        engine = engine.restarted()
        read = {of: engine.read(f"{of.name}.aligning") for of in (a, b)}
        waiting = Counter((of, row.key, row.value) for of, rows in read.items() for row in rows)
        waited += waiting.total()
        assert came == went + waiting
    assert waited > 0


def test_what_waits_for_other_sources_is_named_after_what_is_read() -> None:
    """Apart from what waits in an operator, which may be called as its source is."""
    a, b, c, d = map(source, "ABCD")
    view, rows = mapped(b, without_b), replace(reordered(c, 40), name=f"{c.name}/reordered")
    outputs = [Output(key_join(a, view, "left")), Output(rows), Output(grouped(d, own_key))]
    engine = Engine(outputs, align=Align())
    engine.run([Record(one, ("k",), "v", 5) for one in (a, b, c)])  # nothing of D, so that all wait
    waiting = {table.name for table in stored(engine).tables if table.waits}
    names = {named_as(one, engine.plan.names) for one in (a, view, c, d)}
    assert waiting == {
        *(f"{name}.aligning" for name in names),
        f"{named_as(rows, engine.plan.names)}.waiting",
    }
    counts = {name: len(engine.read(name)) for name in waiting}
    assert counts == {
        name: int(name.endswith(".aligning") and not name.startswith(d.name)) for name in waiting
    }


def test_what_waits_of_views_of_merged_streams_is_read_from_each_source() -> None:
    s, t = stream("S"), stream("T")
    one, other = (mapped(merged(s, t), how) for how in (marked, str.upper))
    twice = mapped(merged(mapped(s, marked), s), str.upper)
    engine = Engine(
        [Output(one), Output(replace(other, name=one.name)), Output(twice)], shards=3, align=Align()
    )
    engine.run([Record(s, ("k",), "v", 5)])
    found = {
        name: [row.value for row in engine.read(f"{name}.aligning")]
        for name in (
            f"{one.name}.S",
            f"{one.name}.T",
            f"{one.name}_2.S",
            f"{one.name}_2.T",
            f"{twice.name}.S",
            f"{twice.name}.S_2",
        )
    }
    assert list(found.values()) == [[marked("v")], [], ["V"], [], [marked("v").upper()], ["V"]]


@pytest.mark.parametrize("copied", [False, True], ids=["distributed", "copied"])
@pytest.mark.parametrize("width", [0, 1])
def test_records_that_wait_to_be_joined_are_those_that_came_and_have_not_left(
    *, width: int, copied: bool
) -> None:
    records, prices = stream("S", width=width), materialized(source("B"), 100)
    join = looked_up(records, prices, "left", copied=copied, grace=Grace(60))
    engine = Engine([Output(join)], shards=3)
    assert records not in engine.plan.whole  # what waits is no table of them
    came, went, waited = Counter[int](), Counter[int](), 0
    log = random_log(sources_of([join]), 3, 200)
    for piece in random_cuts([one if one.source.key else one._replace(key=()) for one in log], 3, 6):
        came.update(one.ts for one in piece if one.source is records and one.value is not None)
        (new,) = engine.run(piece)
        went.update(change.ts for change in new)
        engine = engine.restarted()
        waiting = engine.read(f"{named_as(join, engine.plan.names)}.waiting")
        waited += len(waiting)
        assert came == went + Counter(row.ts for row in waiting)
    assert waited > 0


def test_a_table_of_the_user_s_keeps_its_name() -> None:
    held = suppressed(source("A"), 40)
    other = replace(key_join(held, source("B"), "left"), name=f"{held.name}.waiting")
    tables = stored(Engine([Output(other)]))
    assert f"{held.name}.waiting" in tables.others
    assert not any(table.waits for table in tables.tables)


def test_the_list_of_an_older_version_has_the_same_tables() -> None:
    tables = stored(Engine([Output(materialized(key_join(source("A"), source("B"), "left")))]))
    (kept,) = (table for table in tables.tables if table.same_as is not None)
    assert tables.by_name[kept.same_as or ""] is tables.by_name[kept.name]
    document = json.loads(encode(tables))
    for facts in document["tables"]:
        facts.pop("same_as", None)
    assert decode(json.dumps(document)).tables == tables.tables


def test_every_kind_of_memory_is_read() -> None:
    a, b, records = source("A"), source("B"), stream("S")
    assert check([materialized(a)]) == 1
    assert check([looked_up(records, b)]) == 1
    assert check([looked_up(records, b, copied=True)]) == 1
    assert check([counts(records, own_key), grouped(to_table(records), own_key)]) == 2
    assert check([starred(a, (b, "inner", points(0)), (source("C"), "left", points(1)))]) == 3
    assert check([starred(a, (mapped(b, without_b), "inner", points(0)))]) == 2


def test_a_table_is_offered_under_its_users_name() -> None:
    kept = Materialize(
        "A/versions", "", *(source("A").key, source("A").value), parent=source("A"), history_us=5
    )
    tables = stored(Engine([Output(key_join(kept, source("B")))]))
    assert [(table.name, table.history is not None) for table in tables.tables] == [("A", True), ("B", False)]
    assert tables.others == ("A/versions_B",)


def test_what_only_points_is_no_table_of_the_state() -> None:
    tables = stored(Engine([Output(foreign_key_join(source("A"), source("B"), "left"))]))
    assert list(tables.by_name) == ["B"]
    assert tables.others == ("A", "A_B")


def test_a_materialized_table_has_its_rows_and_an_output_those_before_its_changes() -> None:
    joined = foreign_key_join(source("A"), source("B"), "left")
    engine = Engine([Output(joined, before=True)])
    assert set(stored(engine).by_name) == {"A_B", "B"}
    log = [Record(node, "k", "a|k", 1) for node in sources_of([joined])]
    engine.run(log)
    assert read(engine, "A_B") == {("k",): ("(a|k,a|k)", 1)}


@both_modes
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("history", [0, 20])
def test_versions_are_read_as_they_are_known(history: int, *, copied: bool, compat: bool) -> None:
    """In one shard, which has one clock. Late versions come by default alone: compat has rules of its own for them."""
    rng = random.Random(history)
    records, table = stream("S"), source("T")
    kept = materialized(table, history)
    engine = Engine([Output(looked_up(records, kept, copied=copied))], compat, shards=1)
    hand, now = ByHand(history), 0
    for _ in range(12):
        piece = []
        for _ in range(12):
            now += rng.choice((1, 2))
            ts = now if compat else max(0, now - rng.choice((0, 1, 3, 9)))
            value = None if rng.random() < 0.2 else f"v{rng.randrange(100)}"
            piece.append(Record(table, rng.choice("abc"), value, ts))
            hand.put(str(piece[-1].key), value, ts)
        engine.run(piece)
        engine = engine.restarted()
        assert hand.observed is not None
        bound = hand.observed - history
        assert sorted(engine.read("T_kept")) == sorted(by_hand(hand, bound))
        for time in range(max(bound, 0), hand.observed + 2):
            wanted = {key: value for key in "abc" if (value := hand.as_of(key, time)) is not None}
            assert {row.key[0]: row.value for row in engine.read("T_kept", time)} == wanted


def by_hand(hand: ByHand, bound: int) -> list[StoredRow]:
    """Every version that was valid at some time since a bound."""
    found = []
    for key, versions in hand.versions.items():
        times = sorted(versions)
        for begin, end in zip(times, [*times[1:], None], strict=True):
            if versions[begin] is not None and (end is None or end > bound):
                found.append(StoredRow((key,), versions[begin], begin, begin, end))
    return found


def test_the_state_of_another_plan_is_not_read() -> None:
    engine, other = (
        Engine([Output(key_join(source("A"), source(name), "left"))], shards=1) for name in ("B", "C")
    )
    (table,) = [one for one in stored(engine).tables if one.name == "A"]
    node = next(node for node in other.plan.names if node.name == "A")
    other.run([Record(node, "k", "a", 1)])  # type: ignore[arg-type]
    state = ShardState(other.stores[1, 0], NoCache(), table.traces, table.fingerprint)
    with pytest.raises(PlanChangedError):
        list(table.frames(state, dict))  # type: ignore[arg-type]


def test_a_shard_without_state_has_no_rows() -> None:
    table = stored(Engine([Output(materialized(source("A"), 5))])).tables[0]
    state = ShardState(MemoryStore(), NoCache(), table.traces, table.fingerprint)
    assert list(table.frames(state, dict)) == []  # type: ignore[arg-type]


def test_what_another_version_wrote_is_refused() -> None:
    with pytest.raises(StateError, match="version 99"):
        decode('{"version": 99}')
