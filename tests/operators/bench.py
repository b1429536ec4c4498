"""Operators fed by small text tables, without a plan around them.

A line is a message; ``+`` before it puts it into the step of the line before. ``~`` is a tombstone, or no value.

=============  ==========================  ==========================================================
operator       message                     result
=============  ==========================  ==========================================================
key join       ``0 k a@3``                 ``k=(a,~)@3``: by inputs; ``@3/5`` where the row has time 5
subscribe      ``k a|f@3``                 ``f ANSWER_IF_FOUND k=a|f@3``, ``new`` if it was not there;
.                                          ``k=(a,~)@3``: an answer without a right row
answer         ``f ANSWER_ALWAYS k=a@3``   ``k=(a,X)@3``, ``k,f=...`` of a pair, ``~,f=...`` of a unmatched row
.              ``f=X@3``                   (a right change)
upsert         ``k a@3``                   ``k=a@3``, ``k=a→b@3`` with the old row
=============  ==========================  ==========================================================
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import Ask, ForeignKeySubscribe, Rules
from tablestream.operators.joins.key_join import KeyJoin
from tablestream.operators.operator import NUMBER, PARENT, Context, Operator
from tablestream.operators.upsert import Upsert
from tablestream.state.cache import NoCache
from tablestream.state.changes import ROW_TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces

if TYPE_CHECKING:
    from tablestream.operators.joins.key_join import Branch

KEYS, FOREIGN_KEYS = pl.Schema({"_k0": pl.String()}), pl.Schema({"_f0": pl.String()})
VALUE = pl.Struct({"c0": pl.String()})

Row = dict[str, Any]


def key_join(
    tree: Branch,
    inputs: int = 2,
    *,
    stores: tuple[int, ...] | None = None,
    early: bool = False,
    minimal: bool = False,
    atomic: bool = True,
    final: bool = False,
    nulls: tuple[int, ...] = (),
) -> KeyJoin:
    """Make a key join of string tables."""
    return KeyJoin(
        tree=tree,
        keys=KEYS,
        values=(VALUE,) * inputs,
        stores=stores or tuple(range(inputs)),
        early=(early,) * inputs,
        minimal=(minimal,) * inputs,
        atomic=atomic,
        final=final,
        nulls=nulls,
    )


def subscribe(rules: Rules, *, final: bool = False, compare_values: bool = False) -> ForeignKeySubscribe:
    """Make the left half of a foreign-key join of string tables."""
    return ForeignKeySubscribe(
        rules=rules,
        keys=KEYS,
        foreign_keys=FOREIGN_KEYS,
        value=VALUE,
        right_value=VALUE,
        final=final,
        compare_values=compare_values,
    )


def answer(
    *,
    keep_left: bool = False,
    pair: bool = False,
    keep_right: bool = False,
    minimal_right: bool = False,
    atomic: bool = True,
    stale: bool = False,
    final: bool = False,
) -> ForeignKeyAnswer:
    """Make the right half of a foreign-key join of string tables."""
    return ForeignKeyAnswer(
        keep_left=keep_left,
        keys=KEYS,
        foreign_keys=FOREIGN_KEYS,
        left_value=VALUE,
        right_value=VALUE,
        pair=pair,
        keep_right=keep_right,
        minimal_right=minimal_right,
        atomic=atomic,
        stale=stale,
        final=final,
    )


def upsert(*, keep_old: bool = False, minimal: bool = False, final: bool = False) -> Upsert:
    """Make a memory of a string table."""
    return Upsert(keys=KEYS, value=VALUE, keep_old=keep_old, minimal=minimal, final=final)


@dataclass
class Bench:
    """An operator with its state.

    Attributes
    ----------
    operator
        The operator.
    dropped
        What it dropped, by reason.
    """

    operator: Operator
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Give it a state."""
        self._store = MemoryStore()

    def run(self, text: str) -> list[str]:
        """Work off the lines as one micro-batch, and commit; return the results in order."""
        inputs: list[list[Row]] = [[] for _ in self.operator.inputs]
        step = 0
        for seq, line in enumerate((line.strip() for line in text.strip().splitlines()), start=1):
            step += not line.startswith("+")
            number, row = _read(self.operator, line.removeprefix("+").strip())
            inputs[number].append({**row, "_seq": seq, "_step": step})
        frames = [
            pl.DataFrame(rows, schema={**schema, "_seq": pl.Int64, "_step": pl.Int64}, strict=False)
            for rows, schema in zip(inputs, self.operator.inputs, strict=True)
        ]
        state = ShardState(self._store, NoCache(), numbered_traces(self.operator.traces), "f00d")
        context = Context(trace=state.trace, dropped=self.dropped)
        emissions = list(self.operator.run(frames, context))
        state.commit()
        rows = [
            (row[PARENT], row.get(NUMBER, 0), _shown(self.operator, emission.output, row))
            for emission in emissions
            for row in emission.rows.to_dicts()
        ]
        return [text for _, _, text in sorted(rows, key=lambda row: row[:2])]

    def remembered(self, trace: str) -> int:
        """How many live rows a trace has."""
        state = ShardState(self._store, NoCache(), numbered_traces(self.operator.traces), "f00d")
        return state.trace(trace).scan().height


def results(operator: Operator, text: str) -> list[str]:
    """Work off all lines but the last in a micro-batch of its own; return what the last one gives."""
    bench = Bench(operator)
    *before, last = text.strip().splitlines()
    if before:
        bench.run("\n".join(before))
    return bench.run(last)


def _read(operator: Operator, line: str) -> tuple[int, Row]:
    if isinstance(operator, ForeignKeyAnswer):
        return _read_answer(line)
    number, rest = line.split(" ", 1) if isinstance(operator, KeyJoin) else ("0", line)
    key, value, ts, row_ts = _parsed(rest.replace(" ", "=", 1))
    row = {
        "_kh": len(key),
        "_k0": None if key == "~" else key,
        "_ts": ts,
        "_live": value is not None,
        "v": value,
    }
    if isinstance(operator, ForeignKeySubscribe):
        pointed = value["c0"].partition("|")[2] if value and "|" in value["c0"] else None
        row |= {"_fh": None if pointed is None else len(pointed), "_f0": pointed}
        row |= {"_vh": hash(str(value))} if operator.compare_values else {}
    else:
        row[ROW_TS] = row_ts
    return int(number), row


def _read_answer(line: str) -> tuple[int, Row]:
    message = re.fullmatch(r"(\S*) ([A-Z_]+) (\S*?=\S*@\d+)(?: (new))?( same)?", line)
    if message is None:
        key, value, ts, row_ts = _parsed(line)
        row = {"_fh": len(key), "_f0": key, "_ts": ts, ROW_TS: row_ts}
        return 1, {**row, "_live": value is not None, "v": value}
    foreign, kind, change, new, same = message.groups()
    key, value, ts, _ = _parsed(change)
    row = {"_fh": len(foreign), "_f0": foreign, "_kh": len(key), "_k0": key, "_ts": ts, "v": value}
    return 0, {**row, "_kind": int(Ask[kind]), "_new": new is not None, "_changed": same is None}


def _parsed(change: str) -> tuple[str, dict[str, str] | None, int, int | None]:
    """Read ``key=value@ts`` or ``key=value@ts/row_ts``."""
    key, _, rest = change.partition("=")
    value, _, times = rest.rpartition("@")
    ts, _, row_ts = times.partition("/")
    return key, None if value == "~" else {"c0": value}, int(ts), int(row_ts) if row_ts else None


def _shown(operator: Operator, output: int, row: Row) -> str:
    time = f"@{row['_ts']}"
    if isinstance(operator, ForeignKeySubscribe) and output == 0:
        what = f"{row['_f0']} {Ask(row['_kind']).name} {row['_k0']}={_text(row['v'])}{time}"
        return what + (" new" if row["_new"] else "") + ("" if row["_changed"] else " same")
    if isinstance(operator, Upsert):
        old = f"{_text(row['old'])}→" if "old" in row else ""
        return f"{row['_k0']}={old}{_text(row['v'])}{time}"
    values = [row[name] for name in sorted(row) if re.fullmatch(r"v\d", name)]
    value = f"({','.join(map(_text, values))})" if row["_live"] else "~"
    if not row["_live"]:
        assert not any(values), "a tombstone has no values"
    key = [row["_k0"], *([row["_f0"]] if "_f0" in row else [])]
    key_text = ",".join("~" if part is None else str(part) for part in key)
    if row.get(ROW_TS) not in {None, row["_ts"]}:
        time += f"/{row[ROW_TS]}"
    return f"{key_text}={value}{time}"


def _text(value: dict[str, str] | None) -> str:
    return "~" if value is None else value["c0"]
