"""A row that is written again with the columns that readers need is remembered, but says nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.key_join import Branch, KeyJoin
from tablestream.operators.operator import Context, Operator
from tablestream.operators.upsert import Upsert
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS, FOREIGN = pl.Schema({"_k0": pl.String()}), pl.Schema({"_f0": pl.String()})
VALUE = pl.Struct({"c0": pl.String(), "c1": pl.String()})
#: number of the input, value (first column, second column) or none, time
Change = tuple[int, "tuple[str, str] | None", int]


class Bench:
    """Runs an operator over the changes of one key."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.store = operator, MemoryStore()

    def run(self, *changes: Change) -> list[tuple[Any, ...]]:
        """Work off a micro-batch; return what is emitted: values and time."""
        inputs = []
        for number, schema in enumerate(self.operator.inputs):
            mine = [
                self._message(schema, seq, *one[1:]) for seq, one in enumerate(changes, 1) if one[0] == number
            ]
            inputs.append(pl.DataFrame(mine, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64}))
        state = ShardState(self.store, NoCache(), numbered_traces(self.operator.traces), "f00d")
        rows = [one.rows for one in self.operator.run(inputs, Context(state.trace, Counter()))]
        state.commit()
        found = pl.concat([one for one in rows if one.height] or rows[:1]).sort("_parent").to_dicts()
        return [(*(self._text(row[name]) for name in row if name[0] in "vo"), row["_ts"]) for row in found]

    def _message(self, schema: pl.Schema, seq: int, value: tuple[str, str] | None, ts: int) -> dict[str, Any]:
        row = {
            "_kh": 1,
            "_k0": "k",
            "_fh": 1,
            "_f0": "k",
            "_ts": ts,
            "_row_ts": None,
            "_live": value is not None,
        }
        row |= {"_kind": 2, "_new": True, "_changed": True, "_seq": seq, "_step": seq}
        row["v"] = None if value is None else dict(zip(("c0", "c1"), value, strict=True))
        return {name: row[name] for name in (*schema, "_seq", "_step")}

    @staticmethod
    def _text(value: dict[str, str] | None) -> str | None:
        return None if value is None else "".join(value.values())

    def stored(self, trace: str) -> list[tuple[str | None, int]]:
        """The rows of a trace: value and time."""
        state = ShardState(self.store, NoCache(), numbered_traces(self.operator.traces), "f00d")
        rows = [row for frame in state.trace(trace).frames() for row in frame.to_dicts()]
        return [(self._text(row["v"]), row["_ts"]) for row in rows]


def joined(*, needed: tuple[tuple[str, ...], ...] | None) -> KeyJoin:
    return KeyJoin(
        Branch(0, 1, "inner"), KEYS, (VALUE, VALUE), (0, 1), (False, False), (False, False), needed=needed
    )


def answering(*, needed: tuple[str, ...] | None, final: bool = False) -> ForeignKeyAnswer:
    return ForeignKeyAnswer(
        keep_left=True, keys=KEYS, foreign_keys=FOREIGN, left_value=VALUE, right_value=VALUE, needed=needed,
        final=final,
    )  # fmt: skip


FIRST: Sequence[Change] = [(0, ("l", "0"), 1), (1, ("r", "0"), 2)]


@pytest.mark.parametrize("cut", [False, True])
def test_a_join_on_the_key_leaves_out_changes_of_other_columns(*, cut: bool) -> None:
    """And they leave the row's time as it was; a change of a needed column, and a delete, are changes."""
    later: list[Change] = [
        (1, ("r", "1"), 9), (0, ("l", "1"), 3), (0, ("m", "1"), 4), (1, ("r", "2"), 8), (1, None, 5),
        (1, ("r", "2"), 6),
    ]  # fmt: skip
    bench = Bench(joined(needed=(("c0",), ("c0",))))
    assert bench.run(*FIRST) == [("l0", "r0", 2)]
    told = [one for change in later for one in bench.run(change)] if cut else bench.run(*later)
    assert told == [("m1", "r1", 4), (None, None, 5), ("m1", "r2", 6)]
    assert bench.stored("input 1") == [("r2", 6)]


def test_what_is_left_out_is_remembered_with_the_older_time() -> None:
    bench = Bench(joined(needed=(("c0",), ("c0",))))
    bench.run(*FIRST)
    assert bench.run((1, ("r", "1"), 9)) == []
    assert bench.stored("input 1") == [("r1", 2)]


def test_without_needed_columns_only_the_first_row_of_a_key_is_a_change() -> None:
    bench = Bench(joined(needed=((), ())))
    assert bench.run(*FIRST, (0, ("m", "1"), 3)) == [("l0", "r0", 2)]
    assert bench.run((1, ("s", "1"), 3), (1, None, 4)) == [(None, None, 4)]


def test_every_change_counts_if_no_columns_are_named() -> None:
    assert len(Bench(joined(needed=None)).run(*FIRST, FIRST[0], FIRST[1])) == 3


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_a_right_row_answers_nobody_if_other_columns_change(*, cut: bool, final: bool) -> None:
    bench = Bench(answering(needed=("c0",), final=final))
    bench.run(*FIRST)
    later: list[Change] = [(1, ("s", "0"), 5), (1, ("s", "1"), 9), (0, ("m", "0"), 3), (1, ("s", "2"), 4)]
    told = [one for change in later for one in bench.run(change)] if cut else bench.run(*later)
    expected = [("l0", "s0", 5), ("m0", "s1", 5)]
    assert told == (expected if cut or not final else expected[1:])
    assert bench.stored("right rows") == [("s2", 5)]


@pytest.mark.parametrize(("repeats", "told"), [(False, 2), (True, 3)])
def test_an_output_with_the_row_before_leaves_out_equal_rows(*, repeats: bool, told: int) -> None:
    bench = Bench(Upsert(KEYS, VALUE, keep_old=True, repeats=repeats))
    assert len(bench.run((0, ("a", "0"), 1), (0, ("a", "0"), 2), (0, ("a", "1"), 3))) == told
