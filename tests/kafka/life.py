"""A query that lives through ten changes: from topics into logs, Delta tables and a database, all compared with SQL.

The changes are those of `benchmarks.ten_changes`, one after the other. Before each of them records come. Another query
has all outputs of all plans from the start, and reads the same records from files: `told` says what its logs got.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import tablestream as ts
from benchmarks.ten_changes import CHANGES, KEYS, SCHEMAS, Change, Outputs, Tables, fates, first_plan
from tests.kafka.test_sink import said as header_of
from tests.kafka.topics import Topics, record
from tests.postgres.database import Database
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

#: The output that is removed would come back otherwise, into a target that has rows.
LIFE = (*(name for name in CHANGES if name != "an output removed"), "an output removed")
#: What each output is in SQL, from the change on that makes it so: "" is the first plan.
SQL: Mapping[str, Mapping[str, str]] = {
    "": {
        "named": "FROM orders LEFT JOIN customers USING (customer)",
        "large": "FROM orders WHERE amount >= 50",
        "placed": "FROM customers LEFT JOIN cities USING (city)",
        "sums": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
        "followed": "FROM customers",
    },
    "an output added": {"by_city": "SELECT city, count(*) AS n FROM customers GROUP BY city"},
    "a filter changed": {"large": "FROM orders WHERE amount >= 80"},
    "a column added": {"named": "FROM orders LEFT JOIN customers USING (customer)"},
    "a column removed": {"named": "FROM orders LEFT JOIN customers USING (customer)"},
    "a group changed": {
        "sums": "SELECT customer, count(*) AS n, min(amount) AS total FROM orders GROUP BY customer"
    },
    "a join added": {"large": "FROM orders JOIN customers USING (customer) WHERE amount >= 50"},
    "a source added": {"titled": "FROM orders LEFT JOIN items USING (item)"},
    "a source removed": {"placed": "FROM customers"},
}
MAINTAINED = ("delta", "postgres")
IN_DUCKDB = {"long": "bigint", "string": "varchar"}
START_S = 1_700_000_000

#: A key, and its rows in their order: None where it is deleted.
Log = dict[tuple[Any, ...], list[tuple[Any, ...] | None]]


@dataclass(frozen=True)
class Said:
    """A record of a log; a row without values deletes."""

    log: str
    second: int
    row: tuple[Any, ...]

    @property
    def columns(self) -> list[str]:
        """The columns of the log."""
        return [name for name, _ in columns_in(self.log)]

    @property
    def document(self) -> dict[str, Any]:
        """As files have it."""
        at = datetime.fromtimestamp(START_S + self.second, UTC).isoformat()
        return dict(zip(self.columns, self.row, strict=False)) | {"gone": len(self.row) == 1, "at": at}


def columns_in(log: str) -> list[tuple[str, str]]:
    """The columns of a log with their types, without the one that says whether a row is gone."""
    names_and_types = (one.split() for one in SCHEMAS[log].split(", ")[:-1])
    return [(name, kind) for name, kind in names_and_types]


def phases(seed: int, number: int) -> list[list[Said]]:
    """Records that come one after the other: each phase has some of each log."""
    rng, second, found = random.Random(seed), 0, []
    for _ in range(number):
        names = [*SCHEMAS, *rng.choices(list(SCHEMAS), [6, 3, 1, 1], k=14)]
        rng.shuffle(names)
        phase = []
        for name in names:
            second += 1
            phase.append(Said(name, second, _row(rng, name)))
        found.append(phase)
    return found


def _row(rng: random.Random, log: str) -> tuple[Any, ...]:
    """A row of a small table, or a delete."""
    key = rng.randrange({"orders": 12, "customers": 5, "items": 3, "cities": 3}[log])
    if rng.random() < 0.2:
        return (key,)
    name = rng.choice("abc")
    return {
        "orders": (key, rng.choice([None, 0, 1, 2, 3, 9]), rng.randrange(4), rng.randrange(100)),
        "customers": (key, name, rng.choice([None, 0, 1, 2])),
        "items": (key, name),
        "cities": (key, name),
    }[log]


def expected(said: Sequence[Said], query: str, columns: Sequence[str], but: Sequence[str] = ()) -> set[Any]:
    """The rows of an output after some records, by DuckDB; logs that are not read yet are empty."""
    with duckdb.connect() as database:
        for log in SCHEMAS:
            names = [name for name, _ in columns_in(log)]
            types = ", ".join(f"{name} {IN_DUCKDB.get(kind, kind)}" for name, kind in columns_in(log))
            database.execute(f"CREATE TABLE log ({types}, gone boolean, second int)")
            for one in said:
                if one.log == log and log not in but:
                    row = [*one.row, *[None] * (len(names) - len(one.row))]
                    marks = ", ".join("?" * (len(names) + 2))
                    database.execute(
                        f"INSERT INTO log VALUES ({marks})", [*row, len(one.row) == 1, one.second]
                    )
            newest = f"row_number() OVER (PARTITION BY {KEYS[log]} ORDER BY second DESC) = 1"
            database.execute(
                f"CREATE TABLE {log} AS SELECT {', '.join(names)} FROM"
                f" (SELECT * FROM log QUALIFY {newest}) WHERE NOT gone; DROP TABLE log"
            )
        return set(database.sql(f"SELECT {', '.join(columns)} FROM ({query})").fetchall())


@dataclass
class Life:
    """A query over four topics, with targets of several kinds.

    `targets`: files, kafka, delta, postgres, or "delta log", by the names of outputs.
    """

    spark: SparkSession
    place: Path
    topics: Topics
    database: Database
    targets: Mapping[str, str]
    repeats: bool = False
    """Whether topics may have what was written twice, as `from_kafka` knows it if it is to drop it."""

    @classmethod
    def at(cls, spark: SparkSession, place: Path) -> Self:
        """The life that another process has `kept`."""
        kept = json.loads((place / "life.json").read_text())
        topics = Topics(kept["servers"], kept["prefix"])
        return cls(spark, place, topics, Database(kept["conninfo"]), kept["targets"])

    def keep(self) -> None:
        """Make the topics, and say to other processes where all is."""
        for name in [*SCHEMAS, *(name for name, kind in self.targets.items() if kind == "kafka")]:
            self.topics.make(name, 2)
        where = {"servers": self.topics.servers, "prefix": self.topics.prefix}
        kept = where | {"conninfo": self.database.conninfo, "targets": dict(self.targets)}
        self.place.mkdir(parents=True, exist_ok=True)
        (self.place / "life.json").write_text(json.dumps(kept))

    @property
    def checkpoint(self) -> Path:
        """The checkpoint."""
        return self.place / "checkpoint"

    def tables(self) -> Tables:
        """The topics as tables."""
        return Tables(**{name: self._table(name) for name in SCHEMAS})

    def _table(self, name: str) -> ts.Table:
        key, *values = (" ".join(one) for one in columns_in(name))
        frame = ts.from_kafka(
            self.spark,
            self.topics.prefix + name,
            key=key,
            value=", ".join(values),
            bootstrap_servers=self.topics.servers,
        )
        return ts.table(frame, KEYS[name], name=name)

    def send(self, said: Sequence[Said]) -> None:
        """Write records to the topics."""
        for one in said:
            key, *values = zip(one.columns, one.row, strict=False)
            sent = record(dict([key]), dict(values) or None, time_ms=(START_S + one.second) * 1000)
            self.topics.send(self.topics.prefix + one.log, [sent])

    def outputs(self, *changes: str) -> Outputs:
        """The plan after some changes."""
        tables = self.tables()
        plan = first_plan(tables) | {"followed": tables.customers.filter("true")}
        for name in changes:
            plan = CHANGES[name].of(tables, plan)
        return plan

    def requests(self, outputs: Outputs) -> list[ts.OutputRequest]:
        """The outputs and their targets."""
        return [table.to(self._sink(name), name=name) for name, table in outputs.items()]

    def _sink(self, name: str) -> Any:
        path = self.place / name
        match self.targets[name]:
            case "kafka":
                return ts.to_kafka(self.topics.prefix + name, bootstrap_servers=self.topics.servers)
            case "files":
                return ts.to_files(path)
            case "postgres":
                return ts.to_postgres(name, self.database.conninfo, create=True)
            case kind:
                return ts.to_delta(path, mode="table" if kind == "delta" else "changes")

    def run(self, *changes: str, **options: Any) -> None:
        """Work off all records with the plan after some changes."""
        run(*self.requests(self.outputs(*changes)), checkpoint=self.checkpoint, **options)

    def fates(self, change: Change) -> dict[str, str]:
        """What becomes of sources and outputs in a change, with these targets."""
        maintained = {name for name, kind in self.targets.items() if kind in MAINTAINED}

        def fate(name: str, of: str) -> str:
            retold = of in {"told anew", "brought over"}
            return ("brought over" if name in maintained else "told anew") if retold else of

        return {name: fate(name, of) for name, of in change.fates.items()}

    def log(self, name: str, table: ts.Table) -> Log:
        """What a log has of each key."""
        key, values = list(table.key_columns), [one for one in table.columns if one not in table.key_columns]
        if self.targets[name] == "kafka":
            found: Log = {}
            records = self.topics.read(self.topics.prefix + name)
            for one in (
                {(one.key, header_of(one)[1:]): one for one in records}.values() if self.repeats else records
            ):
                known = json.loads(one.key or b"{}")
                row = None if one.json is None else tuple(map(one.json.get, values))
                found.setdefault(tuple(map(known.get, key)), []).append(row)
            return found
        return by_key(self._changes(name), key, values)

    def _changes(self, name: str) -> pa.Table:
        return delta(self.place / name) if self.targets[name] == "delta log" else files(self.place / name)

    def rows(self, name: str, table: ts.Table) -> set[Any]:
        """The rows of a maintained table, or those that a log leaves."""
        columns = columns_of(table)
        match self.targets[name]:
            case "postgres":
                return set(self.database.rows(f"SELECT {', '.join(columns)} FROM {name}"))
            case "delta":
                return {tuple(one.values()) for one in delta(self.place / name).select(columns).to_pylist()}
            case _:
                last = {key: rows[-1] for key, rows in self.log(name, table).items()}
                return {key + row for key, row in last.items() if row is not None}


def columns_of(table: ts.Table) -> list[str]:
    """The columns of a table, those of its key first."""
    return list(dict.fromkeys([*table.key_columns, *table.columns]))


def by_key(changes: pa.Table, key: Sequence[str], values: Sequence[str]) -> Log:
    """What changes in their order say of each key."""
    found: Log = {}
    for one in changes.to_pylist():
        row = None if one["_change_type"] == "delete" else tuple(one[name] for name in values)
        found.setdefault(tuple(one[name] for name in key), []).append(row)
    return found


def files(place: Path) -> pa.Table:
    """A log of files in its order."""
    with duckdb.connect() as database:
        log = database.from_query(
            "FROM read_parquet(?, union_by_name => true)", params=[f"{place}/*/*.parquet"]
        )
        return log.order("micro_batch, _order").to_arrow_table()


def delta(place: Path) -> pa.Table:
    """A Delta table; a log in its order."""
    found = deltalake.DeltaTable(str(place)).to_pyarrow_table()
    with duckdb.connect() as database:
        table = database.from_arrow(found)
        return (table.order("_order") if "_order" in table.columns else table).to_arrow_table()


@dataclass
class Told:
    """A query that has the outputs of all plans from the start, and what its logs got in each phase."""

    place: Path
    versions: dict[tuple[str, str], ts.Table]

    @classmethod
    def by(cls, spark: SparkSession, place: Path, said: Sequence[Sequence[Said]]) -> Self:
        """Run it: each phase is a micro-batch."""
        logs = {
            name: ChangeLog(place / "logs" / name, f"{schema}, at timestamp")
            for name, schema in SCHEMAS.items()
        }
        for phase in said:
            for name, log in logs.items():
                log.add([one.document for one in phase if one.log == name])
        gone: dict[str, Any] = {
            "apply_as_deletes": "gone",
            "except_columns": ["gone", "at"],
            "timestamp": "at",
        }
        tables = Tables(
            **{name: ts.table(log.read(spark), KEYS[name], name=name, **gone) for name, log in logs.items()}
        )
        versions = {("", name): table for name, table in first_plan(tables).items()}
        versions["", "followed"] = tables.customers.filter("true")
        for change, one in CHANGES.items():
            versions |= {(change, name): table for name, table in one.outputs(tables).items()}
        made = cls(place, versions)
        requests = [
            table.to(ts.to_files(made.where(*of)), name=made.where(*of).name)
            for of, table in versions.items()
        ]
        run(*requests, checkpoint=place / "checkpoint")
        return made

    def where(self, change: str, name: str) -> Path:
        """The log of an output as a change made it."""
        return self.place / f"{change} {name}".strip().replace(" ", "_")

    def log(self, change: str, name: str, phase: int) -> Log:
        """What its log got in a phase."""
        table = self.versions[change, name]
        values = [one for one in table.columns if one not in table.key_columns]
        changes = files(self.where(change, name))
        rows = changes.filter(pc.equal(changes["micro_batch"], phase))
        return by_key(rows, list(table.key_columns), values)


@dataclass
class Step:
    """Some changes in a life: what is to be seen before them, behind them, and when records have come.

    `steps`: the changes of all steps up to this one, which is the last and has a phase of records, as the first plan
    has. It may have no change.
    """

    life: Life
    told: Told
    said: Sequence[Sequence[Said]]
    steps: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        """Look at the logs that the changes leave as they are."""
        self.changes = [name for names in self.steps for name in names]
        self.plan = self.life.outputs(*self.changes)
        known = ("", *self.changes)
        self.since = {name: one for one in known for name in SQL.get(one, {}) if name in self.plan}
        changes = [CHANGES[name] for name in self.steps[-1]]
        self.fates = {name: fate for one in changes for name, fate in self.life.fates(one).items()}
        self.shards = max((one.shards for one in changes if one.shards), default=None)
        self.unchanged = [
            name for name in self.plan if name not in self.fates and self.life.targets[name] not in MAINTAINED
        ]
        self.before = self.logs()

    def logs(self) -> dict[str, Log]:
        """What the unchanged logs have."""
        return {name: self.life.log(name, self.plan[name]) for name in self.unchanged}

    def evolve(self) -> None:
        """Let the query evolve."""
        requests = self.life.requests(self.plan)
        found = ts.evolve(*requests, checkpoint=self.life.checkpoint, shards=self.shards)
        assert fates(found) == self.fates

    def check_evolved(self) -> None:
        """All tables are those of the records that were read; unchanged logs have got nothing."""
        new = [name for name, fate in self.fates.items() if fate == "new"]
        self._check_rows(len(self.steps), but=new)
        assert self.logs() == self.before

    def check_later(self) -> None:
        """All tables are those of all records; unchanged logs have got each change once."""
        self._check_rows(len(self.steps) + 1)
        for name, log in self.logs().items():
            before, later = self.before[name], self.told.log(self.since[name], name, len(self.steps))
            assert log == {key: before.get(key, []) + later.get(key, []) for key in {**before, **later}}, name

    def _check_rows(self, phases: int, but: Sequence[str] = ()) -> None:
        said = [one for phase in self.said[:phases] for one in phase]
        for name, table in self.plan.items():
            query = SQL[self.since[name]][name]
            assert self.life.rows(name, table) == expected(said, query, columns_of(table), but), name
