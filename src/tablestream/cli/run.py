"""``tablestream run`` runs a table or a pipeline, shows its progress, and ends cleanly."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pyspark.sql.streaming.query import StreamingQuery

from tablestream.cli.failures import clear_errors
from tablestream.cli.following import follow, stop_signals
from tablestream.cli.options import Debug, Json
from tablestream.cli.screen import JsonScreen, Screen, TextScreen
from tablestream.cli.sessions import kept_if_needed, sessions
from tablestream.cli.target import Target, load
from tablestream.cli.targets import outputs_of
from tablestream.errors import ArgumentError
from tablestream.spark.runner import start

if TYPE_CHECKING:
    from collections.abc import Sequence


_LIMIT = 20


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
    *,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="How many changes of a micro-batch the console shows.")
    ] = _LIMIT,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a table, a stream, or a pipeline until Ctrl-C, and show its progress.

    Ctrl-C stops the query after its micro-batch, and prints the command that goes on. A function may also return a
    query that it started itself.
    """
    screen: Screen = JsonScreen() if as_json else TextScreen()
    log = Path(tempfile.gettempdir()) / f"tablestream-run-{os.getpid()}.log"
    go_on = _command(target, checkpoint, to or [], once=once, limit=limit, as_json=as_json)
    with (
        clear_errors(debug=debug, as_json=as_json, log=log, go_on=go_on),
        kept_if_needed(log),
        sessions(log) as session,
    ):
        found = load(target, {"spark": session, "checkpoint": lambda: _needed(checkpoint)})
        query = _query(found, target, checkpoint, outputs_of(found, to or [], screen, limit), once=once)
        _follow(query, screen, go_on)


def _query(
    found: Any, target: str, checkpoint: str | None, outputs: Sequence[Any] | None, *, once: bool
) -> StreamingQuery:
    """Return the user's query, or start one for the outputs."""
    if outputs is not None:
        trigger = {"availableNow": True} if once else None
        return start(*outputs, checkpoint=_needed(checkpoint), trigger=trigger)
    if not hasattr(found, "recentProgress"):
        raise ArgumentError(
            f"{target} is a {type(found).__name__}, which cannot run.",
            hint="Name a table, a stream, outputs such as table.to(sink), a query, or a function that returns one.",
        )
    if once:
        found.stop()
        raise ArgumentError(
            f"{target} started its query itself, so --once comes too late.",
            hint='Return the outputs instead, or start it with trigger={"availableNow": True}.',
        )
    query: StreamingQuery = found
    return query


def _needed(checkpoint: str | None) -> str:
    if checkpoint is None:
        raise ArgumentError(
            "The query needs a checkpoint, the directory with its state.",
            hint="Give one, such as --checkpoint out/checkpoint.",
        )
    return checkpoint


def _follow(query: StreamingQuery, screen: Screen, go_on: str) -> None:
    """Show the micro-batches until the end."""
    last = -1
    with stop_signals(screen.say) as stop:
        screen.say("The query runs; Ctrl-C stops it.", {"event": "started", "query_id": str(query.id)})
        try:
            for done in follow(query, stop):
                screen.micro_batch(done)
                last = done.number
        finally:
            screen.close()
    end = f"after micro-batch {last}" if last >= 0 else "before its first micro-batch"
    event = {"event": "stopped" if stop.is_set() else "ended", "micro_batch": last if last >= 0 else None}
    if stop.is_set():
        screen.say(f"Stopped {end}. Go on with:\n  {go_on}", {**event, "go_on": go_on})
    else:
        screen.say(f"Ended {end}.", event)


def _command(
    target: str, checkpoint: str | None, to: Sequence[str], *, once: bool, limit: int, as_json: bool
) -> str:
    """Return the command that goes on where a query stopped: the same one."""
    words = ["tablestream", "run", target]
    words += [] if checkpoint is None else ["--checkpoint", checkpoint]
    words += [word for one in to for word in ("--to", one)]
    words += ["--once"] if once else []
    words += [] if limit == _LIMIT else ["--limit", str(limit)]
    words += ["--json"] if as_json else []
    return shlex.join(words)
