"""The laws of the engine, as far as they hold without Spark; each test names its law."""

from __future__ import annotations

import ast
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tablestream.errors import PlanChangedError
from tablestream.operators import operator
from tablestream.operators.joins import subscriptions
from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import Ask
from tablestream.operators.operator import FAN_OUT_ROWS, Context
from tablestream.runtime.order import in_order, number_messages
from tablestream.runtime.slices import slice_numbers
from tablestream.state.cache import NoCache
from tablestream.state.changes import ROOT, hop_columns
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace import Found, Trace
from tablestream.state.trace_spec import numbered_traces
from tablestream.topology.nodes import Named
from tests.marks import quick_first
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Record, called, foreign_key_join, key_join, points, source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestream.topology.nodes import Node
    from tests.plans.engine import Step

#: One of each operator, and some that are put together.
PLANS = [
    "key outer",
    "foreign key inner",
    "foreign key outer",
    "one to many left",
    "foreign key self left",
    "outer foreign key as left table",
    "A five times",
    "views of a source and of a join, asked for",
    "groups by two parts, counted",
    "groups of A foreign key outer B",
    "A key outer (groups of A, counted)",
    "groups of groups",
    "top of groups by two parts",
    "groups of top, and top of groups of top",
]
both_modes = pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])
every_plan = pytest.mark.parametrize("plan", PLANS)


def case(plan: str, size: int = 80) -> tuple[list[Output], list[Record]]:
    nodes: Sequence[Node] = (SINGLE | COMPOSED)[plan]()
    return [Output(node) for node in nodes], random_log(sources_of(nodes), seed=len(plan), size=size)


def outputs(engine: Engine, pieces: Sequence[Sequence[Record]]) -> list[list[Step]]:
    """What comes out of some micro-batches, per output."""
    found: list[list[Step]] = [[] for _ in engine.outputs]
    for piece in pieces:
        for steps, more in zip(found, engine.steps(piece), strict=True):
            steps.extend(more)
    return found


# Law 1: one total order.


@pytest.mark.parametrize("time", ["integer", "text", "tuple"])
def test_law_1_messages_are_numbered_by_root_and_then_hop_by_hop(time: str) -> None:
    rng = random.Random(time)
    hops = hop_columns(3)
    times: dict[str, list[Any]] = {
        "integer": [1, 2, 3],
        "text": ["a", "\uff5e", "\U0001f600"],
        "tuple": [{"x": 1, "y": 2}, {"x": 1, "y": 3}, {"x": 2, "y": 0}],
    }
    places = [
        (rng.choice(times[time]), rng.choice(("p10", "p9", "q")), *(rng.randrange(3) for _ in range(4)))
        for _ in range(300)
    ]
    places = list({repr(place): place for place in places}.values())
    frames = [
        pl.DataFrame(places[start::3], schema=[*ROOT, *hops], orient="row", infer_schema_length=None)
        for start in range(3)
    ]
    order, numbers = number_messages(frames, hops)

    def rank(place: tuple[Any, ...]) -> Any:
        return times[time].index(place[0]), place[1].encode(), place[2:]

    in_turn = sorted(places, key=rank)
    assert order.rows() == in_turn
    roots = sorted({rank(place[:3]) for place in places})
    for start, numbered in enumerate(numbers):
        assert [in_turn[seq - 1] for seq in numbered["_seq"]] == places[start::3]
        assert [roots[step - 1] for step in numbered["_step"]] == [rank(p[:3]) for p in places[start::3]]


def test_law_1_a_message_comes_before_what_its_root_causes_later() -> None:
    """One that took fewer hops comes first, whatever it is put together with."""
    short = pl.DataFrame({"_t": [1, 1], "_p": ["p", "p"], "_o": [0, 1], "_h0": [5, 5], "n": [2, 4]})
    long = pl.DataFrame(
        {"_t": [1, 1], "_p": ["p", "p"], "_o": [0, 0], "_h0": [5, 4], "_h1": [1, 9], "n": [3, 1]}
    )
    assert in_order([long, short], hop_columns(2))["n"].to_list() == [1, 2, 3, 4]


@both_modes
@every_plan
def test_law_1_the_order_of_arrival_does_not_show(plan: str, *, compat: bool) -> None:
    asked, log = case(plan)
    one, other = Engine(asked, compat, shards=1), Engine(asked, compat, shards=3)
    other._random.seed(99)  # the engine brings messages in random order
    assert one.steps(log) == other.steps(log)


def test_law_1_a_message_is_worked_to_its_end_before_the_next() -> None:
    """A right row fans out to e1 and e2: all that e1 causes comes before all that e2 causes.

    The joined table points at itself, by both its rows, so each answer meets the other one's.
    """
    left, right = source("L"), source("R")
    joined = foreign_key_join(left, right)
    to_itself = foreign_key_join(joined, joined, "left", points(1))
    engine = Engine([Output(to_itself)], compat=True, shards=1)
    engine.run([Record(left, "e1", "a|x|e2", 1), Record(left, "e2", "b|x|e1", 1)])
    (changes,) = engine.run([Record(right, "x", "X", 2)])
    assert [(change.key[0], change.value) for change in changes] == [
        ("e1", "((a|x|e2,X),null)"),
        ("e1", "((a|x|e2,X),(b|x|e1,X))"),
        ("e2", "((b|x|e1,X),(a|x|e2,X))"),
    ]


# Law 2: cuts do not show; neither do restarts and repetitions.


@both_modes
@every_plan
def test_law_2_cuts_do_not_show(plan: str, *, compat: bool) -> None:
    asked, log = case(plan)
    whole = outputs(Engine(asked, compat, shards=1), [log])
    for seed, pieces in ((1, 2), (2, 5)):
        cut = random_cuts(log, seed, pieces)
        assert outputs(Engine(asked, compat, shards=seed), cut) == whole


def test_law_2_a_micro_batch_of_one_record_is_as_good_as_any() -> None:
    asked, log = case("foreign key outer", size=40)
    whole = outputs(Engine(asked, shards=1), [log])
    assert outputs(Engine(asked, shards=1), [[record] for record in log]) == whole


@both_modes
@every_plan
def test_law_2_a_restarted_or_repeated_micro_batch_gives_the_same(plan: str, *, compat: bool) -> None:
    asked, log = case(plan)
    first, second, third = random_cuts(log, 5, 3)
    engine = Engine(asked, compat)
    engine.steps(first)
    lost, checkpoint = engine.restarted(), engine.restarted()
    repeated = lost.steps(second)  # and nothing of it is committed
    restarted = checkpoint.restarted()
    assert engine.steps(second) == restarted.steps(second) == repeated
    assert engine.steps(third) == restarted.restarted().steps(third)


# Law 4: state of record is the store's. Law 6: a changed plan cannot be restarted on old state.


def test_law_4_a_restart_knows_what_the_store_knows() -> None:
    asked, log = case("foreign key left")
    first, second = log[:50], log[50:]
    engine = Engine(asked)
    engine.steps(first)
    forgetful = Engine(asked, position=engine.position)
    assert engine.restarted().steps(second) == engine.steps(second) != forgetful.steps(second)


def test_law_6_another_plan_is_refused() -> None:
    left, right = source("L"), source("R")
    engine = Engine([Output(foreign_key_join(left, right, "left"))])
    engine.run([Record(left, "k", "a|x", 1)])
    other = Engine([Output(foreign_key_join(left, right, "inner"))], stores=engine.stores)
    with pytest.raises(PlanChangedError, match="inner"):
        other.run([Record(left, "k", "a|x", 1)])
    people = source("P")
    names, bosses = (
        Engine([Output(replace(key_join(people, people), select=(Named("v", called(text)),)))]).plan
        for text in ("__left.name", "__right.name")
    )
    with pytest.raises(PlanChangedError, match=r"(?<!_)left\.name(?s:.*)(?<!_)right\.name"):
        bosses.check_same(names.text)
    sharded = Engine(engine.outputs, shards=engine.shards + 1, stores=engine.stores)
    with pytest.raises(PlanChangedError, match="shards"):
        sharded.run([Record(left, key, "a|x", 1) for key in "abcdefgh"])


def test_law_6_sees_which_tables_and_in_which_order() -> None:
    """Two tables of one name and shape are two tables, and Spark knows sources by their place."""

    def described(
        joins: Sequence[tuple[int, int]], declared: Sequence[int], names: Sequence[str]
    ) -> list[str]:
        tables = {number: source(names[number]) for number in declared}
        nodes = [foreign_key_join(tables[left], tables[right], "left") for left, right in joins]
        line = Engine([Output(node) for node in nodes]).plan
        return [fact for work in line.rounds for fact in work.description]

    alike, four = ("table", "table"), ("a", "b", "c", "d")
    assert described([(0, 1)], (0, 1), alike) == described([(0, 1)], (0, 1), alike)
    assert described([(0, 1)], (0, 1), alike) != described([(1, 0)], (0, 1), alike)
    both = [(0, 1), (2, 3)]
    assert described(both, (0, 1, 2, 3), four) != described(both, (2, 3, 0, 1), four)


# Law 5: operators are pure.

ALLOWED = (
    "__future__",
    "bisect",
    "collections",
    "abc",
    "base64",
    "dataclasses",
    "datasketches",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "struct",
    "typing",
    "numpy",
    "polars",
    "tablestream.base.data_text",  # messages only
    "tablestream.errors",
    "tablestream.operators",
    "tablestream.state.changes",
    "tablestream.state.forgotten",  # in memory alone
    "tablestream.state.positions",
    "tablestream.state.trace",
    "tablestream.state.trace_spec",
)
IMPURE_NAMES = {"open", "print", "hash", "id", "globals", "exec", "eval"}
CLOCKS = {f"{kind}.{clock}" for kind in ("datetime", "date") for clock in ("now", "today", "utcnow")}
IMPURE_ATTRIBUTES = ("random", "sample", "shuffle", "read_", "scan_", "write_", "sink_")


def impurities(text: str) -> Iterator[str]:
    """Find imports beside those allowed, and calls that could read a clock, chance or the world."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            yield from (
                f"imports {n}" for n in names if not any(f"{n}.".startswith(f"{a}.") for a in ALLOWED)
            )
        elif isinstance(node, ast.Name) and node.id in IMPURE_NAMES:
            yield f"uses {node.id}"
        elif isinstance(node, ast.Attribute) and (
            ast.unparse(node) in CLOCKS or node.attr.startswith(IMPURE_ATTRIBUTES)
        ):
            yield f"uses .{node.attr}"
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield "has a global variable"


@pytest.mark.parametrize(
    "path", sorted(Path(operator.__file__).parent.rglob("*.py")), ids=lambda path: path.stem
)
def test_law_5_operators_are_pure(path: Path) -> None:
    assert list(impurities(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "datetime.now(UTC)",
        "date.today()",
        "from tablestream.spark import store",
        "import os.path",
        "np.random.default_rng()",
        "frame.sample(3)",
        "pl.read_parquet(path)",
        "frame.write_ipc(path)",
        "hash(key)",
        "open(path)",
    ],
)
def test_law_5_a_planted_impurity_is_found(line: str) -> None:
    assert list(impurities(line))


# Law 7: memory is bounded by what a micro-batch touches, plus a chunk.

STRING_KEY, FOREIGN_KEY = pl.Schema({"_k0": pl.Int64()}), pl.Schema({"_f0": pl.String()})
VALUE = pl.Struct({"c0": pl.String()})


class WatchedTrace:
    """A trace that notes what is asked of it."""

    def __init__(self, trace: Trace, asked: list[str]) -> None:
        self._trace, self._asked = trace, asked

    def find(self, keys: pl.DataFrame) -> Found:
        """Find rows without their payload."""
        self._asked.append("find")
        found = self._trace.find(keys)
        assert "v" not in found.rows.columns
        return found

    def lookup(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Find rows with their payload."""
        self._asked.append("lookup")
        return self._trace.lookup(keys)

    def insert(self, rows: pl.DataFrame) -> None:
        """Add rows."""
        self._asked.append("insert")
        self._trace.insert(rows)


def fan_out(join: ForeignKeyAnswer, rows: int) -> tuple[list[pl.DataFrame], list[str]]:
    """Subscribe many left rows to one right row, then change that row."""
    state = ShardState(MemoryStore(), NoCache(), numbered_traces(join.traces), "f00d")
    asked: list[str] = []

    def trace(name: str) -> Any:
        watched = state.trace(name)
        return WatchedTrace(watched, asked) if name == "subscriptions" else watched

    context = Context(trace=trace, dropped=Counter())
    left = pl.DataFrame({"_k0": range(rows)}).select(
        pl.lit(1, pl.Int64).alias("_fh"),
        pl.lit("x").alias("_f0"),
        pl.col("_k0").alias("_kh"),
        "_k0",
        pl.lit(1, pl.Int64).alias("_ts"),
        pl.lit(int(Ask.ANSWER_ALWAYS), pl.Int8).alias("_kind"),
        pl.lit(value=True).alias("_new"),
        pl.lit(value=True).alias("_changed"),
        pl.struct(pl.format("left {}", "_k0").alias("c0")).alias("v"),
        (pl.col("_k0") + 1).alias("_seq"),
        (pl.col("_k0") + 1).alias("_step"),
    )
    right = pl.DataFrame(
        [("x", 1, 2, None, True, {"c0": "right"}, 1, 1)],
        schema={
            "_f0": pl.String, "_fh": pl.Int64, "_ts": pl.Int64, "_row_ts": pl.Int64,
            "_live": pl.Boolean, "v": VALUE, "_seq": pl.Int64, "_step": pl.Int64,
        },
        orient="row",
    )  # fmt: skip
    list(join.run([left, right.clear()], context))
    asked.clear()
    return [emission.rows for emission in join.run([left.clear(), right], context)], asked


def test_law_7_one_right_row_with_many_left_rows_leaves_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "PART_ROWS", FAN_OUT_ROWS + 50_000)
    join = ForeignKeyAnswer(
        keep_left=True, keys=STRING_KEY, foreign_keys=FOREIGN_KEY, left_value=VALUE, right_value=VALUE
    )
    rows = FAN_OUT_ROWS + 100_000
    emissions, asked = fan_out(join, rows)
    sizes = [emission.height for emission in emissions if emission.height]
    assert sizes == [FAN_OUT_ROWS, 50_000, 50_000]
    whole = pl.concat([emission.select("_k0", "_n", "v0", "v1") for emission in emissions if emission.height])
    assert whole["_k0"].to_list() == list(range(rows))
    assert whole["_n"].is_sorted()
    assert whole["_n"].n_unique() == rows
    assert whole.row(rows - 1) == (rows - 1, rows, {"c0": f"left {rows - 1}"}, {"c0": "right"})
    # The payload of subscriptions is gathered chunk by chunk, and never looked up as a whole.
    assert asked[0] == "find"
    assert "lookup" not in asked


def test_law_7_a_large_micro_batch_is_cut_between_records() -> None:
    records = [1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6]
    frame = pl.DataFrame({"_t": 0, "_p": "1", "_o": records, "_h0": 0})
    assert [one.tolist() for one in slice_numbers([frame], 3)] == [[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2]]
    assert not slice_numbers([frame], 100)[0].any()
