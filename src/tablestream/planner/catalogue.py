"""The tables that the state of a plan holds, for readers outside the query: where their rows are, and how to read them.

Every shard stores this as text, beside the plan. It is JSON, and the columns of traces are Arrow schemas: reading it
runs no code.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, cast

import polars as pl
import pyarrow as pa

from tablestream.errors import DamagedStateError, StateError
from tablestream.operators.buffer.waiting import EXISTS
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.members import ROWS_OF_GROUPS
from tablestream.operators.reduce.top import RANK, Top
from tablestream.operators.versions import FROM, TO, valid_versions
from tablestream.planner.group_rules import aggregate_function
from tablestream.planner.lowering import Copies, Draft, Groups, History, Ranks, Remembered, Types, struct_of
from tablestream.planner.physical_plan import Reader
from tablestream.runtime.alignment import Held
from tablestream.runtime.rounds import Round
from tablestream.state.changes import KEY_HASH, LIVE, NOTHING, TS, key_columns
from tablestream.state.positions import frame_of
from tablestream.state.shard import ShardState
from tablestream.state.trace_spec import TraceSpec
from tablestream.topology.graph import named_as
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Field, Fields, Materialize, Node

#: 2: aggregates of groups are stored with heads, and counts of values. 3: the ranks of `top` can be read.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class StoredTable:
    """A table whose rows are in the state."""

    name: str
    """The name that users know."""
    round: int
    operator: str
    fingerprint: str
    """The operator that stores it, and the fingerprint of its round."""
    key: Fields
    value: Fields
    """Its columns."""
    stored_key: Fields
    """The key's columns in the types in which they are stored."""
    traces: tuple[TraceSpec, ...]
    """The traces to read, the one with the table's keys first."""
    column: str = "v"
    skipped: int = 0
    """The trace's column with the value, and how many of that column's fields come before the table's own."""
    copied: bool = False
    """Whether every shard has all of it."""
    history: History | None = None
    """Of a versioned table."""
    groups: Groups | None = None
    ranks: Ranks | None = None
    """Of a table of declared aggregates, and of one of first rows: they are computed from what is stored."""
    copies: Copies | None = None
    """If several shards have each row: the first of them is its own shard."""
    columns: tuple[str, ...] | None = None
    """The key's columns in the first trace; None: those that it is looked up by."""
    scattered: bool = False
    """Whether the hash of its key does not say where rows are: they are in other shards, or stored by their times."""
    waits: bool = False
    """Whether its rows are changes or records that wait in a buffer."""
    besides: str = ""
    """The column that says which waiting rows are none of the table's, if there are any."""
    same_as: str | None = field(default=None, compare=False)
    """The table that it is the materialized form of: another name for the same rows. Older versions do not say it."""

    @property
    def hashed_key(self) -> Fields:
        """The columns of the key whose hash its rows are stored by: of first rows the key without the rank."""
        return self.stored_key[: len(self.traces[0].key)]

    def frames(
        self, state: ShardState, types: Types, as_of_us: int | None = None, hashed: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a shard in frames of bounded size.

        Parameters
        ----------
        state
            The shard, with `traces`.
        types
            Gives the Polars dtypes of columns.
        as_of_us
            For a versioned table, the time as of which to read its rows. None: all versions in the history.
        hashed
            Only the rows whose key has this hash. Not of a table whose rows are scattered.

        Yields
        ------
        DataFrame
            ``_k0``, ..., ``_ts``, ``v``; of a versioned table also ``_from`` and ``_to``, and ``_ts`` is ``_from``; of
            waiting changes also ``_exists``.
        """
        operator = self._computing(types)
        if operator is None:
            stored = state.trace(self.traces[0].name).frames(hashed)
        else:
            stored = operator.recalled(lambda name: state.trace(f"{self.operator}/{name}"), hashed)
        ranked = self.ranks is not None and self.ranks.ranked
        own = self.traces[0].key if self.columns is None else self.columns
        names = (*own, *((RANK,) if ranked else ()))
        keys = zip(names, key_columns(len(self.key)), strict=True)
        columns = [pl.col(name).alias(shown) for name, shown in keys]
        columns.append(self._own_value())
        versions = () if self.history is None else (FROM, TO)
        # A join drops records without a value before they wait.
        has_value = pl.col(EXISTS) if EXISTS in self.traces[0].schema else pl.lit(value=True)
        exists = (has_value.alias(EXISTS),) if self.waits else ()
        time = FROM if versions else TS
        timed = pl.col(time) if TS in self.traces[0].schema or versions else pl.lit(None, pl.Int64)
        for frame in stored:
            rows = frame.filter(self._is_there)
            if self.copies is not None:
                rows = rows.filter(self._own(self.copies, state))
            if self.history is not None:
                observed = cast("int", state.clock(self.history.clock))
                rows = valid_versions(rows, observed - self.history.length_us, as_of_us)
            yield rows.select(*columns, timed.alias(TS), *versions, *exists)

    @property
    def _is_there(self) -> pl.Expr:
        """Whether a stored row is one of the table's."""
        if not self.waits:
            return pl.col(self.column).is_not_null()
        return pl.col(LIVE) & ~pl.col(self.besides) if self.besides else pl.col(LIVE)

    def _own(self, copies: Copies, state: ShardState) -> pl.Expr:
        """Whether a row's own shard is this one."""
        hashed = pl.col(self.traces[0].hash).reinterpret(signed=False)
        return hashed % copies.shards == cast("int", state.clock(copies.mark))

    def _own_value(self) -> pl.Expr:
        """The value without the fields that come before the table's own. A trace without values has an empty one."""
        if self.column == LIVE:
            return pl.struct(pl.col(LIVE).alias(NOTHING)).alias("v")
        value = pl.col(self.column)
        if self.skipped and self.value:
            own = range(self.skipped, self.skipped + len(self.value))
            value = pl.struct(value.struct.field(f"c{of}").alias(f"c{n}") for n, of in enumerate(own))
        return value.alias("v")

    def _computing(self, types: Types) -> Aggregate | Top | None:
        """The operator that computes the table from what is stored; None: its rows are stored."""
        of_groups, *others = self.traces
        members = [spec for spec in others if spec.name.endswith(ROWS_OF_GROUPS)]
        keys = pl.Schema({name: spec.schema[name] for spec in members for name in spec.unique})
        group_keys = pl.Schema({name: of_groups.schema[name] for name in of_groups.key})
        value = members[0].schema["v"] if members else pl.Struct([])
        if self.ranks is not None:
            result = struct_of(types(self.value))
            ranks = self.ranks
            return Top(keys, group_keys, value, result, ranks.order, ranks.n, ranked=ranks.ranked)
        if self.groups is None:
            return None
        return Aggregate(keys, group_keys, value, self._functions(self.groups, types))

    def _functions(self, groups: Groups, types: Types) -> tuple[AnyFunction, ...]:
        inputs, results = types(groups.inputs).values(), types(self.value).items()
        return tuple(
            aggregate_function(measure, list(inputs), name, result, records=groups.records)
            for measure, (name, result) in zip(groups.measures, results, strict=True)
        )


@dataclass(frozen=True)
class StoredTables:
    """The tables that the state of a plan holds, by name; `others` are the tables whose rows it does not hold."""

    tables: tuple[StoredTable, ...]
    others: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, StoredTable]:
        """The tables by their names, and by those of the tables that they are the materialized forms of."""
        others = {table.same_as: table for table in self.tables if table.same_as is not None}
        return others | {table.name: table for table in self.tables}


def stored_tables(
    drafts: Sequence[Draft],
    rounds: Sequence[Round],
    aligned: Sequence[tuple[str, Reader, Held]],
    names: Mapping[Node, str],
) -> StoredTables:
    """List the tables that the state of a plan holds.

    Several operators may remember the same table. The one that has its versions is preferred, then the one that stores
    its key as it is. `aligned`: the readers whose messages wait for those of other sources, what each reads, and where.
    """
    found: dict[str, StoredTable] = {}
    every = dict.fromkeys(named_as(node, names) for node in names)
    for draft in drafts:
        for remembered in draft.remembers:
            stored = _waiting if remembered.waits else _stored
            table = stored(draft, remembered, rounds[draft.round - 1], names)
            if table.waits and table.name in every:  # a table of the user's is called so
                continue
            known = found.get(table.name)
            if known is None or _worth(table) > _worth(known):
                found[table.name] = table
    # Of the buffers of one view, that of the first reader who gets whole rows; truncates are read behind the changes.
    for read, reader, held in sorted(aligned, key=lambda one: one[1].inputs is not None):
        name = f"{read}.aligning"
        if name not in every:
            found.setdefault(name, _aligning(name, reader, held, rounds[0]))
    readable = StoredTables(tuple(found.values()))
    return replace(readable, others=tuple(name for name in every if name not in readable.by_name))


def _worth(table: StoredTable) -> tuple[bool, bool]:
    return table.history is not None, table.stored_key == table.key


def _stored(draft: Draft, remembered: Remembered, work: Round, names: Mapping[Node, str]) -> StoredTable:
    node, prefix = remembered.table, draft.name
    specs = {spec.name: spec for spec in work.traces}
    return StoredTable(
        name=named_as(node, names),
        round=work.number,
        operator=prefix,
        fingerprint=work.fingerprint,
        key=node.key,
        value=node.value,
        stored_key=tuple(
            Field(own.name, stored.type) for own, stored in zip(node.key, remembered.key, strict=True)
        ),
        traces=tuple(specs[f"{prefix}/{trace}"] for trace in remembered.traces),
        column=remembered.column,
        skipped=remembered.skipped,
        copied=next(placed.copied for placed in work.operators if placed.name == prefix),
        history=remembered.history,
        groups=remembered.groups,
        ranks=remembered.ranks,
        copies=remembered.copies,
        same_as=_same_as(node, names),
    )


def _waiting(draft: Draft, remembered: Remembered, work: Round, names: Mapping[Node, str]) -> StoredTable:
    """What waits in an operator's buffer, under the name of its result. Each shard has its own, whatever is copied."""
    found = _stored(draft, remembered, work, names)
    return replace(
        found,
        name=f"{named_as(draft.base or remembered.table, names)}.waiting",
        copied=False,
        columns=key_columns(len(found.key)),
        scattered=found.traces[0].hash != KEY_HASH,
        waits=True,
        besides=remembered.besides,
        same_as=None,
    )


def _aligning(name: str, reader: Reader, held: Held, work: Round) -> StoredTable:
    """What waits for the records of other sources, in the columns that its reader gets."""
    assert work.alignment is not None  # noqa: S101 - it waits there
    waiting = work.alignment.waiting(held).name
    key = zip(reader.node.key, reader.key, strict=True)
    return StoredTable(
        name=name,
        round=work.number,
        operator="",
        fingerprint=work.fingerprint,
        key=reader.node.key,
        value=reader.node.value if reader.inputs is None else reader.inputs.fields,
        stored_key=tuple(Field(own.name, stored.type) for own, stored in key),
        traces=tuple(spec for spec in work.traces if spec.name == waiting),
        columns=reader.key_columns,
        scattered=True,
        waits=True,
    )


def _same_as(node: Node, names: Mapping[Node, str]) -> str | None:
    """The name of the table that a node is the materialized form of."""
    if not isinstance(node, Materialize) or node.history_us is not None:
        return None
    name = named_as(node.parent, names)
    return None if name == named_as(node, names) else name


def encode(tables: StoredTables) -> str:
    """Write the text that `decode` reads."""
    document: dict[str, Any] = {"version": FORMAT_VERSION, "others": tables.others}
    document["tables"] = [
        asdict(replace(table, traces=())) | {"traces": [_encoded(spec) for spec in table.traces]}
        for table in tables.tables
    ]
    for facts in document["tables"]:
        # What older versions do not know of is left out where it says nothing.
        if facts["copies"] is None:
            del facts["copies"]
        if facts["columns"] is None:
            del facts["columns"]
        for name in ("scattered", "waits", "besides", "same_as"):
            if not facts[name]:
                del facts[name]
        if facts["ranks"] is not None and facts["ranks"]["ranked"]:
            del facts["ranks"]["ranked"]
    return json.dumps(document, separators=(",", ":"))


def decode(text: str) -> StoredTables:
    """Read the text that `encode` wrote; raise `StateError` for that of another version."""
    try:
        document = json.loads(text)
        version = document["version"]
        if version == FORMAT_VERSION:
            return StoredTables(tuple(map(_table, document["tables"])), tuple(document["others"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise DamagedStateError(
            f"The description of tables in the state cannot be read: {type(problem).__name__}.",
            hint="Read a complete checkpoint.",
        ) from problem
    raise StateError(
        f"The state describes its tables in version {version!r}; this tablestream reads version {FORMAT_VERSION}.",
        hint="Read it with the version of tablestream that wrote the checkpoint.",
    )


def _table(facts: dict[str, Any]) -> StoredTable:
    history, groups, ranks = (facts.pop(name) for name in ("history", "groups", "ranks"))
    copies = facts.pop("copies", None)
    fields: dict[str, Any] = {name: _fields(facts.pop(name)) for name in ("key", "value", "stored_key")}
    traces = tuple(map(_decoded, facts.pop("traces")))
    if groups is not None:
        measures = tuple(Measure(**one) for one in groups["measures"])
        groups = Groups(_fields(groups["inputs"]), measures, groups["records"])
    if ranks is not None:
        ranks |= {name: tuple(ranks[name]) for name in ("columns", "descending")}
        ranks = Ranks(**ranks)
    history = None if history is None else History(**history)
    copies = None if copies is None else Copies(**copies)
    columns = facts.pop("columns", None)
    columns = None if columns is None else tuple(columns)
    computed = {"history": history, "groups": groups, "ranks": ranks, "copies": copies, "columns": columns}
    return StoredTable(**facts, **fields, traces=traces, **computed)


def _fields(facts: list[dict[str, str]]) -> Fields:
    return tuple(Field(**one) for one in facts)


def _encoded(spec: TraceSpec) -> dict[str, Any]:
    facts = {one.name: getattr(spec, one.name) for one in fields(spec) if one.name != "schema"}
    return facts | {"schema": _schema_text(tuple(spec.schema.items()))}


@lru_cache(maxsize=1000)
def _schema_text(columns: tuple[tuple[str, pl.DataType], ...]) -> str:
    """The columns of a trace as an Arrow schema. Many traces of a wide group have the same ones."""
    schema = pl.DataFrame(schema=dict(columns)).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(facts: dict[str, Any]) -> TraceSpec:
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(facts.pop("schema"))))
    empty = frame_of(schema.empty_table())
    columns: dict[str, Any] = {name: tuple(facts.pop(name)) for name in ("key", "unique")}
    return TraceSpec(**facts, **columns, schema=empty.schema)
