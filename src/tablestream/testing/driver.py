"""The test driver: a topology in this process, one micro-batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_length
from tablestream.base.calling import user_line
from tablestream.base.data_text import data_left_out
from tablestream.connectors.memory.sink import sortable, to_memory
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, ORDER
from tablestream.errors import ArgumentError, MixedPlanError, StateError
from tablestream.handles.relation import Rejected
from tablestream.metrics.query_metrics import parted
from tablestream.planner.catalogue import decode
from tablestream.planner.physical_plan import Ending, Output
from tablestream.runtime.drops import DropReport, Notice, OnDrop
from tablestream.runtime.measures import MEASURES
from tablestream.runtime.rounds import copied_name
from tablestream.spark.bootstrap import first_rows
from tablestream.spark.build import Builder
from tablestream.spark.options import Alignment, Compat, OnError, plan_options
from tablestream.spark.plan import drop_rules, lowered, outputs_frame, split
from tablestream.spark.reports import warn_of_drops
from tablestream.spark.requests import OutputRequest
from tablestream.spark.row_frames import frame_of
from tablestream.spark.stored_rows import StoredRows, check_history, checked_time, chosen, moment_of, shown
from tablestream.spark.unpacking import output_column
from tablestream.state.cache import MemoryCache
from tablestream.state.sealed import unseal
from tablestream.streams import Stream
from tablestream.tables import GlobalTable, Table
from tablestream.testing.exchange import InProcess, State
from tablestream.testing.piped import Piped
from tablestream.testing.rows import Rows, columns_of, rows_of_each
from tablestream.testing.values import GivenRows
from tablestream.topology.graph import named_as

Given = Table | Stream | Rejected | OutputRequest
"""What a driver runs: a table, a stream, its rejected records, or what `to` returns."""
_GONE = ("delete", "update_preimage")


class Driver:
    """Runs a topology in this process, one micro-batch at a time, for tests.

    It runs what a query's workers run: the same plan, packers, operators and state. Spark only evaluates expressions,
    in small batch jobs. There is no streaming query, no Python worker, no checkpoint and no waiting.

    Parameters
    ----------
    outputs
        Tables and streams. What ``table.to(sink, ...)`` returns has its options and its name; the sink is not
        written. Their sources are named by ``name=`` of `table` and `stream`.
    compat, shards, align, on_error
        As for `start`.
    now
        The wall clock at the beginning: a datetime, or a text that Spark casts to a timestamp. Default: 1970.
    on_drop, redact
        As for `start`: `run` logs the warnings, or raises the error.

    Raises
    ------
    ArgumentError
        There is no output, or two have one name; a source is captured from a database.
    MixedPlanError
        The outputs belong to different sessions.

    Notes
    -----
    Records of one `run` are one micro-batch. They are in the order in which a query would have them: by their time,
    then by their source, then as they were piped. Call `run` in between if one source must come first.

    If a micro-batch fails, the driver is as before `run`, and its records still wait.

    A column of a source that was taken from its frame (``df["price"]``) cannot be evaluated for other rows. Name it:
    ``F.col("price")``, or ``"price"``.

    References
    ----------
    Kafka Streams ``TopologyTestDriver``.

    Examples
    --------
    >>> import tablestream as ts
    >>> frame = ts.testing.frame(spark, "ticker string, price double")
    >>> tickers = ts.table(frame, "ticker", apply_as_deletes="price IS NULL", name="tickers")
    >>> driver = ts.testing.Driver(tickers.filter("price > 5"))
    >>> driver.pipe("tickers", '''
    ...     ticker | price
    ...     ACME   | 10.5
    ...     BOLT   | 4
    ... ''')
    >>> print(driver.run())
    ticker | price | _change_type | _timestamp
    ACME   | 10.5  | upsert       | 1970-01-01 00:00:00
    >>> driver.pipe("tickers", [{"ticker": "ACME", "price": None}])
    >>> print(driver.run())
    ticker | price | _change_type | _timestamp
    ACME   | null  | delete       | 1970-01-01 00:00:00
    """

    def __init__(
        self,
        *outputs: Given,
        compat: Compat = None,
        shards: int | None = None,
        align: Alignment = False,
        on_error: OnError = "fail",
        now: str | datetime | None = None,
        on_drop: OnDrop = "warn",
        redact: bool = False,
    ) -> None:
        wanted = _requested(outputs)
        self._spark = wanted[0].spark
        self._options = {
            "compat": compat,
            "shards": shards,
            "align": align,
            "on_error": on_error,
            "on_drop": on_drop,
            "redact": redact,
        }
        self._rules, self._report = drop_rules(on_drop, redact=redact), DropReport()
        asked = [one.output for one in wanted]
        nodes = dict.fromkeys(one.node for one in asked if not one.rejected)
        asked += [Output(node, rejected=True) for node in nodes]
        options = plan_options(compat, shards, align, on_error)
        self._outputs, self._plan = outputs, lowered(asked, options)
        self._names = {one.name: at for at, one in enumerate(wanted)}
        self._rejected = {node: len(wanted) + at for at, node in enumerate(nodes)}
        self._sources = {
            self._plan.names[source]: Piped(self._spark, self._plan.names[source], source)
            for source in self._plan.sources
        }
        self._results = [Results(ending) for ending in self._plan.endings]
        self._state, self._cache = State(), MemoryCache()
        self._micro_batch, self._counts = 0, Counter[str]()
        self._now_us = 0 if now is None else checked_time(self._spark, now, "now")

    def __repr__(self) -> str:
        count = f"{self._micro_batch} micro-batch{'' if self._micro_batch == 1 else 'es'}"
        return f"Driver of {', '.join(self._names)}, after {count}"

    # Input

    def pipe(self, source: str, rows: GivenRows) -> None:
        r"""Let records of a source wait for the next `run`.

        Parameters
        ----------
        source
            The name of a table or stream that the topology reads.
        rows
            Rows of the frame from which the source was made, after your own transformations of it. A text table has
            the columns in its first line and ``|`` between cells; an empty cell and ``null`` are null. Or a list of
            mappings, or of tuples with all columns. Texts are cast by Spark to the types of their columns; columns
            that are left out are null.

        Raises
        ------
        ArgumentError
            There is no such source or column, or a value does not fit its column.

        Notes
        -----
        A record of `from_kafka` whose value columns are all null is a tombstone. Its time is that of the wall clock,
        its partition 0, its offset counts. Columns such as ``_kafka.timestamp``, ``_kafka.partition`` and
        ``_kafka.tombstone`` say otherwise.
        """
        if source not in self._sources:
            raise ArgumentError(
                f"The topology has no source {source!r}.",
                hint=f"Sources are: {', '.join(self._sources)}. name= of ts.table and ts.stream names them.",
            )
        self._sources[source].add(rows)

    def advance(self, time: str | timedelta) -> None:
        """Advance the wall clock. The next `run` works off what has become due.

        Parameters
        ----------
        time
            A duration, such as ``"10 seconds"``.

        Raises
        ------
        ArgumentError
            It is not a duration.
        """
        length_us = checked_length(time, "time", Place("advance", user_line()))
        assert length_us is not None  # noqa: S101 - it is given
        self._now_us += length_us

    def run(self) -> Rows:
        """Work off one micro-batch: the records that wait, and what has become due by the wall clock.

        Returns
        -------
        Rows
            The changes of the first output; `changes` has those of the others. As of `Table.changes`, sorted by
            ``_order``.

        Raises
        ------
        TablestreamError
            As in a query, such as `MalformedRecordError`.
        """
        with data_left_out(self._rules.redact):
            return self._run()

    def _run(self) -> Rows:
        """Work off one micro-batch."""
        exchange = InProcess(self._spark, self._state.copy(), self._cache, self._now_us, self._micro_batch)
        piped = {name: one for name, one in self._sources.items() if one.waiting}
        builder = Builder(
            self._plan,
            exchange,
            bootstraps=first_rows(self._plan) if self._micro_batch == 0 else None,
            records={one.source: one.taken(exchange.now) for one in piped.values()},
            rules=self._rules,
        )
        try:
            built = builder.build()
        except AnalysisException:
            for one in piped.values():
                one.check(exchange.now)
            raise
        added = [
            one for one in self._results if one.schema is None or one.ending.port.number in exchange.ports
        ]
        found = self._found(
            outputs_frame(builder, built, [one.ending for one in added]), added, exchange.ports
        )
        for result in self._results:
            result.add(found.get(result.ending.port.number))
        self._state, self._micro_batch = exchange.state, self._micro_batch + 1
        for one in piped.values():
            one.waiting.clear()
        self._count(exchange.counts)
        warn_of_drops(self._report, self._micro_batch - 1, [Notice.of(one) for one in exchange.notices])
        return self._results[0].last

    def _found(self, frame: DataFrame, results: Sequence[Results], ports: Collection[int]) -> dict[int, Rows]:
        """The rows of outputs, by their ports; of one that is not among `ports` nothing arrived.

        Tables and streams are evaluated together, as a query has them in one frame. It has none of the rejected records
        that nobody asked for.
        """
        found, together = dict[int, Rows](), dict[int, str]()
        for ending in (one.ending for one in results):
            number, column = ending.port.number, output_column(ending.port.number)
            if number in ports and not (ending.before or ending.rejected):
                together[number] = column
            elif number in ports:
                found[number] = Rows.of(split(frame, ending))
            else:
                schema = split(frame, ending).schema if ending.before else columns_of(frame, column)
                found[number] = Rows.none(self._spark, schema)
        if together:
            theirs = frame.where(f"__port IN ({', '.join(map(str, together))})")
            found |= zip(together, rows_of_each(theirs, list(together.values())), strict=True)
        return found

    def _count(self, counts: Mapping[str, int]) -> None:
        """Add up what was dropped, without the operators' measures."""
        copies = {copied_name(placed.name) for work in self._plan.rounds for placed in work.operators}
        for name, count in counts.items():
            if parted(name)[1] not in MEASURES and name not in copies:
                self._counts[name] += count

    # Output

    def changes(self, output: str | None = None) -> Rows:
        """Return the changes of an output since the last call of this method; default: the first output."""
        return self._result(output).unread()

    def table(self, output: str | None = None) -> Rows:
        """Return the rows of an output as they are now, by key: what a maintained table would have.

        Raises
        ------
        ArgumentError
            The output is a stream, or rejected records, which have no rows to keep.
        """
        result = self._result(output)
        if result.ending.rejected or result.ending.node.is_stream:
            raise ArgumentError(
                "The output is no table: its records are never replaced.", hint="Use changes()."
            )
        return result.table()

    def rejected(self, output: str | None = None) -> Rows:
        """Return the records that an output's sources and operators dropped, since the last call: see `Rejected`."""
        node = self._result(output).ending.node
        return (
            self._results[self._rejected[node]].unread() if node in self._rejected else self.changes(output)
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many records were dropped, by operator and reason, as a query's progress has it: ``orders: null-key``."""
        return dict(self._counts)

    def state(self, table: str, as_of: str | datetime | None = None) -> Rows:
        """Read a table from the state, as `read_state` reads it from a checkpoint.

        Parameters
        ----------
        table, as_of
            As for `read_state`.

        Returns
        -------
        Rows
            The columns of `read_state`, by key.

        Raises
        ------
        ArgumentError, NotVersionedError
            As for `read_state`.
        StateError
            There is no state yet.
        """
        texts = [store.tables for store in self._state.stores.values() if store.tables is not None]
        if not texts:
            raise StateError(
                "There is no state yet.",
                hint="Pipe records and run(). A plan without joins and groups has no state.",
                where=user_line(),
            )
        found = chosen(decode(unseal(texts[0], "tables")), table, self._table_of)
        stores = [
            store.copy()
            for (number, _), store in self._state.stores.items()
            if number == found.round and store.manifest is not None
        ]
        moment_us = None if as_of is None else moment_of(self._spark, found, as_of)
        if moment_us is not None:
            check_history(self._spark, found, moment_us, [one.manifest for one in stores if one.manifest])
        stored = StoredRows.of_table(found, moment_us)
        batches = [batch for store in stores[: 1 if found.copied else None] for batch in stored.of(store)]
        rows = Rows.of(frame_of(self._spark, batches, stored.schema).select(*shown(self._spark, found)))
        return rows.ordered(lambda row: sortable(tuple(row[: len(found.key)])))

    def restarted(self, *outputs: Given, **options: Any) -> Driver:
        """Return a driver that goes on from the state alone, as a query that is restarted from its checkpoint.

        Parameters
        ----------
        outputs
            The topology of the restarted query; default the same. Another one is refused with `PlanChangedError` in the
            next `run`, if its state does not fit.
        options
            ``compat``, ``shards``, ``align``, ``on_error``, ``on_drop``, ``redact``; default the same.

        Returns
        -------
        Driver
            It has the state, the wall clock, the records that wait, and what the outputs had; what an output had with
            other columns is left out, also by `table`. This one does not change.
        """
        twin = Driver(*(outputs or self._outputs), **(self._options | options))
        twin._state, twin._now_us = self._state.copy(), self._now_us
        twin._micro_batch, twin._counts = self._micro_batch, self._counts.copy()
        twin._sources |= {
            name: mine.moved(twin._sources[name])
            for name, mine in self._sources.items()
            if name in twin._sources
        }
        for name, at in twin._names.items():
            if name in self._names:
                twin._follow(at, self, self._names[name])
        return twin

    def _follow(self, at: int, earlier: Driver, place: int) -> None:
        """Take over what an output had, and the records that it rejected."""
        self._results[at].follow(earlier._results[place])
        mine = self._rejected.get(self._results[at].ending.node)
        its = earlier._rejected.get(earlier._results[place].ending.node)
        if mine is not None and its is not None:
            self._results[mine].follow(earlier._results[its])

    def _table_of(self, name: str) -> str:
        """The table of an output; the name itself if none is called so."""
        ending = self._results[self._names[name]].ending if name in self._names else None
        return name if ending is None or ending.rejected else named_as(ending.node, self._plan.names)

    def _result(self, output: str | None) -> Results:
        if output is None:
            return self._results[0]
        if output not in self._names:
            raise ArgumentError(
                f"The topology has no output {output!r}.", hint=f"Outputs are: {', '.join(self._names)}."
            )
        return self._results[self._names[output]]


def _requested(outputs: Sequence[Any]) -> list[OutputRequest]:
    """The outputs with their options and names."""
    wanted = []
    for one in outputs:
        if not isinstance(one, Table | Stream | Rejected | OutputRequest) or isinstance(one, GlobalTable):
            raise ArgumentError(
                f"A {type(one).__name__} is not an output.",
                hint="Give tables and streams, or what table.to(sink) returns.",
            )
        wanted.append(one if isinstance(one, OutputRequest) else one.to(to_memory("testing")))
    if not wanted:
        raise ArgumentError("A driver needs an output.", hint="Give it a table.")
    _check_together(wanted)
    return wanted


def _check_together(wanted: Sequence[OutputRequest]) -> None:
    """Refuse outputs of one name, and of several sessions."""
    names = [one.name for one in wanted]
    if len(set(names)) < len(names):
        raise ArgumentError(
            f"Two of the outputs {', '.join(names)} have one name.",
            hint="Name them: table.to(sink, name=...).",
        )
    if any(one.spark is not wanted[0].spark for one in wanted):
        raise MixedPlanError(
            "The outputs belong to different Spark sessions.",
            hint="Create all of them from frames of one session.",
            where=user_line(),
        )


class Results:
    """The rows of one output: all, those of the last micro-batch, and those that were not read yet."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self._all: Rows | None = None
        self._last_from = self._read = 0
        self._follows = False

    @property
    def schema(self) -> T.StructType | None:
        """The columns; None before the first micro-batch of this driver."""
        return None if self._all is None or self._follows else self._all.schema

    def add(self, rows: Rows | None) -> None:
        """Add the rows of a micro-batch; the first one has them even if there are none, for their columns.

        Rows from before a restart with other columns are left out: `Rows` has one schema.
        """
        self._follows = False
        if rows is not None and self._all is not None and not _same_columns(rows, self._all):
            self._all, self._read = None, 0
        self._last_from = 0 if self._all is None else len(self._all)
        if rows is not None:
            self._all = rows if self._all is None else self._all + rows

    def follow(self, earlier: Results) -> None:
        """Go on where those of another driver stopped."""
        self._all, self._last_from, self._read = earlier._all, earlier._last_from, earlier._read
        self._follows = True

    @property
    def last(self) -> Rows:
        """Those of the last micro-batch."""
        return self._some[self._last_from :]

    def unread(self) -> Rows:
        """Those since the last call."""
        begin, self._read = self._read, len(self._some)
        return self._some[begin:]

    def table(self) -> Rows:
        """The last row of every key that has one, by key."""
        keys = len(self.ending.node.key)
        latest: dict[object, int] = {}
        for at, (row, cells) in enumerate(zip(self._some, self._some.cells, strict=True)):
            if LATEST in row and not row[LATEST]:
                continue
            # An hour that clocks show twice has the same text twice.
            place = cells[:keys], *((one, one.fold) for one in row[:keys] if isinstance(one, datetime))
            latest.pop(place, None)
            if row[CHANGE_TYPE] not in _GONE:
                latest[place] = at

        def key(row: Row) -> object:
            return sortable(tuple(row[:keys]))

        rows = self._some.taken(list(latest.values())).ordered(key)
        return rows.without(ORDER, CHANGE_TYPE, LATEST)

    @property
    def _some(self) -> Rows:
        if self._all is None:
            raise StateError("No micro-batch has run yet.", hint="Call run() first.")
        return self._all


def _same_columns(rows: Rows, others: Rows) -> bool:
    mine, theirs = (
        T.StructType([one for one in every.schema if one.name != ORDER]) for every in (rows, others)
    )
    return mine.simpleString() == theirs.simpleString()
