"""``tablestream run`` runs a table or a pipeline, shows its progress and the library's warnings, and ends cleanly."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pyspark
import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors, note_cause
from tablestream.cli.options import ROWS_FOR_PEOPLE, Debug, Evolvable, Json, Shards
from tablestream.cli.progress import MicroBatch
from tablestream.cli.screen import JsonScreen, Screen, TextScreen
from tablestream.cli.sessions import kept_if_needed, sessions, starting_text
from tablestream.cli.sinks import CONSOLE, sink_of, written_to
from tablestream.cli.target import Target, Variables, is_query, load, wrong_type
from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import MetricsReader
from tablestream.runtime.drops import OnDrop
from tablestream.spark.evolve import OnPlanChange
from tablestream.spark.local_spark import MASTER
from tablestream.spark.runner import start

_POLL_S = 0.25
_STOP_POLL_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Options that say how to start a query, and what to do if the user's function has started it.
_TOO_LATE = {
    "--once": 'Return the outputs instead, or start it with trigger={"availableNow": True}.',
    "--to": "Return the table instead, or omit --to.",
    "--on-error": "Give on_error= to tablestream.start there.",
    "--on-drop": "Give on_drop= to tablestream.start there.",
    "--redact": "Give redact= to tablestream.start there.",
    "--shards": "Give shards= to tablestream.start there.",
    "--evolvable": "Give evolvable= to tablestream.start there.",
    "--not-evolvable": "Give evolvable= to tablestream.start there.",
    "--on-plan-change": "Give on_plan_change= to tablestream.start there.",
    "--checkpoint": "Give the function a parameter checkpoint, or omit --checkpoint.",
}


def run(
    target: Target,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="The query's checkpoint directory. The same one goes on where the query stopped."),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Where a table's changes go: console, parquet:DIR, json:DIR, or delta:DIR for a maintained Delta"
            " table. Repeat it for several. Default: console.",
        ),
    ] = None,
    variables: Variables = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many changes of a micro-batch the console shows. Default: 20; with --json all.",
        ),
    ] = None,
    on_error: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TABLE=]HOW",
            help="What becomes of a row for which an expression fails: fail, null or reject; of all tables, or of one."
            " Repeat it for several. Default: fail.",
        ),
    ] = None,
    on_drop: Annotated[
        OnDrop | None,
        typer.Option(
            help="What to do about dropped records: warn, fail (also ends the query before a micro-batch that loses"
            " input is written), or ignore. Default: warn.",
        ),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave keys and values of records out of messages.")
    ] = False,
    shards: Shards = None,
    evolvable: Evolvable = None,
    on_plan_change: Annotated[
        OnPlanChange | None,
        typer.Option(
            help="What to do if another plan has made the checkpoint: refuse, or evolve, as tablestream evolve does."
            " Default: refuse.",
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a table, a stream, or a pipeline until Ctrl-C, and show its progress.

    Ctrl-C stops the query after its micro-batch, and prints the command that goes on. A function may also return a
    query that it started itself.
    """
    screen: Screen = JsonScreen() if as_json else TextScreen()
    log = Path(tempfile.gettempdir()) / f"tablestream-run-{os.getpid()}.log"
    words: dict[str, str | bool | None] = {"--checkpoint": checkpoint, "--once": once}
    words |= {"--limit": None if limit is None else str(limit), "--on-drop": on_drop, "--redact": redact}
    words |= {"--shards": None if shards is None else str(shards), "--on-plan-change": on_plan_change}
    words |= {"--evolvable": evolvable is True, "--not-evolvable": evolvable is False}
    repeated = {"--to": to or [], "--set": variables or [], "--on-error": on_error or []}
    go_on = _command(target, words | {"--json": as_json}, repeated)
    with (
        clear_errors(debug=debug, as_json=as_json, log=log, go_on=go_on),
        _warnings_on(screen),
        kept_if_needed(log),
        sessions(log, is_long=True, starting=lambda: _say_starting(screen, target)) as session,
    ):
        directory = _Checkpoint(checkpoint)
        given: dict[str, Callable[[], Any]] = {"spark": session, "checkpoint": directory.take}
        rows = limit if as_json else limit or ROWS_FOR_PEOPLE
        sinks = [sink_of(one, screen, rows) for one in to or ()]  # a wrong one is told before Spark starts
        found = load(target, given, ["checkpoint"] if checkpoint is None else [], variables)
        outputs = written_to(found, sinks, sink_of(CONSOLE, screen, rows))
        if outputs is None:
            is_given = words | repeated | {"--checkpoint": directory.is_left}
            query = _started(found, target, [name for name in _TOO_LATE if is_given.get(name)])
        else:
            trigger = {"availableNow": True} if once else None
            query = start(
                *outputs,
                checkpoint=directory.take(),
                trigger=trigger,
                on_error=_on_error(on_error or []),
                on_drop=on_drop or "warn",
                redact=redact,
                shards=shards,
                evolvable=evolvable,
                on_plan_change=on_plan_change or "refuse",
            )
        _show(query, screen, go_on, session.remove_files)


def _on_error(given: Sequence[str]) -> Any:
    """Return what becomes of rows for which an expression fails: for all tables, or by their names."""
    named = dict(one.rpartition("=")[::2] for one in given)
    if "" not in named:
        return named or "fail"
    if len(named) > 1:
        raise ArgumentError(
            "--on-error is given for all tables, and for some.",
            hint="Give one for all, such as --on-error reject, or one for each, such as --on-error prices=reject.",
        )
    return named[""]


def _say_starting(screen: Screen, target: str) -> None:
    event = {"event": "starting", "target": target, "spark": pyspark.__version__, "master": MASTER}
    screen.say(starting_text(target), event)


def _started(found: Any, target: str, too_late: Sequence[str]) -> StreamingQuery:
    """Return the query that the user's function started; refuse options that it cannot have any more."""
    if not is_query(found):
        raise wrong_type(
            target,
            found,
            "cannot run",
            "Name or return a table, a stream, outputs such as [table.to(sink)], or a query.",
        )
    query: StreamingQuery = found
    if too_late:
        query.stop()
        option = too_late[0]
        raise ArgumentError(
            f"{target} started its query itself, so {option} comes too late.", hint=_TOO_LATE[option]
        )
    return query


@dataclass
class _Checkpoint:
    """The checkpoint of the command line, and whether a query got it."""

    given: str | None
    is_taken: bool = False

    def take(self) -> str:
        """Return the directory; raise if the user has not named one."""
        if self.given is None:
            raise ArgumentError(
                "The query needs a checkpoint, the directory with its state.",
                hint="Give one, such as --checkpoint out/checkpoint.",
            )
        self.is_taken = True
        return self.given

    @property
    def is_left(self) -> bool:
        """Whether the user has named one, and nothing uses it."""
        return self.given is not None and not self.is_taken


def _show(query: StreamingQuery, screen: Screen, go_on: str, at_once: Callable[[], None]) -> None:

    def stopping() -> None:
        screen.say("Stopping after this micro-batch. Ctrl-C once more ends at once.", {"event": "stopping"})

    last = -1
    with stop_signals(at_once) as stop:
        screen.say("The query runs; Ctrl-C stops it.", {"event": "started", "query_id": str(query.id)})
        try:
            for done in follow(query, stop, stopping):
                screen.micro_batch(done)
                last = done.number
        except StreamingQueryException as error:
            note_cause(error)
            raise
        finally:
            screen.close()
    without = "before a micro-batch was complete" if stop.wanted else "without a micro-batch"
    end = f"after micro-batch {last}" if last >= 0 else without
    event = {"event": "stopped" if stop.wanted else "ended", "micro_batch": last if last >= 0 else None}
    if stop.wanted:
        screen.say(f"Stopped {end}. Go on with:\n  {go_on}", {**event, "go_on": go_on})
    else:
        screen.say(f"Ended {end}.", event)


@dataclass
class Stop:
    """Whether the user wants the query to stop."""

    wanted: bool = False


@contextlib.contextmanager
def stop_signals(at_once: Callable[[], None]) -> Iterator[Stop]:
    """Yield what Ctrl-C sets, or the signal TERM; a second one calls `at_once`, and ends this process at once.

    A signal is handled between any two steps of the main thread, which may hold the lock of a screen or of an event. So
    its handler takes no lock, and prints nothing.

    Spark's own handler of Ctrl-C cancels all jobs, which would fail the running micro-batch. So this comes after the
    session was made.
    """
    stop = Stop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not stop.wanted:
            stop.wanted = True
            return
        try:
            at_once()
        finally:
            os._exit(ExitCode.INTERRUPTED)  # Spark's Java ends with this process

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(query: StreamingQuery, stop: Stop, stopping: Callable[[], None]) -> Iterator[MicroBatch]:
    """Yield the micro-batches of a query as they end, until it ends or fails.

    `stop` stops it after its micro-batch, and `stopping` tells the user so.
    """
    reader, seen, is_active = MetricsReader(), -1, True
    while is_active:
        time.sleep(_POLL_S)
        if stop.wanted:
            stopping()
            stop_after_micro_batch(query)
        is_active = query.isActive  # asked before the progress, so that the last of it is not missed
        for progress in _since(query, seen):
            seen = progress.batchId
            yield MicroBatch.of(progress, reader.read(progress))
    query.awaitTermination()


def stop_after_micro_batch(query: StreamingQuery) -> None:
    """Stop a query when its micro-batch has ended. Spark may have begun the next one, and then does that one again."""
    before = _last(query)
    while query.isActive and _is_busy(query) and _last(query) == before:
        time.sleep(_STOP_POLL_S)
    query.stop()


def _is_busy(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _last(query: StreamingQuery) -> int:
    """Return the number of the last micro-batch that has ended; -1 if there is none."""
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId - (not _ran(progress))


def _ran(progress: Any) -> bool:
    """Whether a micro-batch ran. Spark also reports that nothing has arrived, with the number of the next one."""
    return "addBatch" in progress.durationMs


def _since(query: StreamingQuery, seen: int) -> list[Any]:
    """Return the progress of micro-batches after `seen`, and do not carry all of it over to find none."""
    if _last(query) <= seen:
        return []
    return [one for one in query.recentProgress if one.batchId > seen and _ran(one)]


def _command(
    target: str, options: Mapping[str, str | bool | None], repeated: Mapping[str, Sequence[str]]
) -> str:
    """Return the command that goes on where a query stopped: the same one."""
    words = ["tablestream", "run", target]
    words += [word for name, given in repeated.items() for one in given for word in (name, one)]
    for name, given in options.items():
        if given:
            words += [name] if given is True else [name, given]
    return shlex.join(words)


class _ToScreen(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._screen.say(f"Warning: {text}", {"event": "warning", "message": text})


@contextlib.contextmanager
def _warnings_on(screen: Screen) -> Iterator[None]:
    """Show what the library logs on a screen."""
    logger, handler = logging.getLogger("tablestream"), _ToScreen(screen)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
