"""What commands do with a checkpoint that is to go on with another plan, or at another place.

``tablestream check`` says what becomes of a query, ``evolve`` lets it go on, ``drop-generations`` removes the state of
the plans before, and ``relocate`` makes a checkpoint usable that was moved or copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Annotated

import typer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.progress import Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from tablestream.base.data_text import visible_lines
from tablestream.cli.display import console
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Checkpoint, Debug, Evolvable, Json, Shards
from tablestream.cli.sessions import sessions
from tablestream.cli.sinks import written_to
from tablestream.cli.target import Target, Variables, load, wrong_type
from tablestream.connectors.console.sink import to_console
from tablestream.connectors.shipping import has_context
from tablestream.spark.evolution import Evolution
from tablestream.spark.evolve import check as checked
from tablestream.spark.evolve import drop_generations as dropped
from tablestream.spark.evolve import evolve as evolved
from tablestream.spark.relocation import relocate_checkpoint
from tablestream.spark.requests import OutputRequest
from tablestream.spark.runner import plan_text

Refill = Annotated[
    bool,
    typer.Option("--refill", help="Read the logs of all sources again, from where the query began."),
]

_BUILDING = (
    "Building the new state. After Ctrl-C the old plan stays the current one; targets may have been written."
)


def check(
    target: Target,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="The checkpoint of the query. Without it, only the plan itself is checked."),
    ] = None,
    shards: Shards = None,
    evolvable: Evolvable = None,
    variables: Variables = None,
    *,
    refill: Refill = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what becomes of each source, operator and output of a query if this plan goes on with its checkpoint."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        outputs = _outputs(target, session, checkpoint, variables)
        if checkpoint is None:
            plan_text(*outputs)
            typer.echo(json.dumps({"object": target}) if as_json else f"{target} has a plan.")
            return
        found = checked(*outputs, checkpoint=checkpoint, shards=shards, evolvable=evolvable, refill=refill)
        _show(found, as_json=as_json)
        if found.refused and not found.is_same:
            raise typer.Exit(ExitCode.COULD_NOT_RUN)


def _outputs(
    target: str, session: Callable[[], SparkSession], checkpoint: str | None, variables: Sequence[str] | None
) -> list[OutputRequest]:
    """Return the outputs that a target names; a table's changes go to the console, as `tablestream run` writes them."""
    given = {"spark": session} if checkpoint is None else {"spark": session, "checkpoint": lambda: checkpoint}
    found = load(target, given, variables=variables)
    outputs = written_to(found, [], to_console())
    if outputs is None:
        raise wrong_type(
            target, found, "has no outputs", "Return outputs such as [table.to(sink)], and do not start them."
        )
    return outputs


def _show(found: Evolution, *, as_json: bool) -> None:
    if as_json:
        facts = {"micro_batch": found.micro_batch, "same_plan": found.is_same, "about_s": found.about_s}
        typer.echo(json.dumps(facts | {"hint": found.hint}))
        for one in found.parts:
            typer.echo(json.dumps(asdict(one)))
        return
    console().print(Text(visible_lines(str(found))), soft_wrap=True)


def evolve(
    target: Target,
    checkpoint: Annotated[str, typer.Option(help="The checkpoint of the query, which must have ended.")],
    shards: Shards = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many partitions the state has from now on.")
    ] = None,
    evolvable: Evolvable = None,
    variables: Variables = None,
    *,
    refill: Refill = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a query go on with another plan, from the rows that its state keeps. Shows what will be done, and asks."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        outputs = _outputs(target, session, checkpoint, variables)
        found = checked(*outputs, checkpoint=checkpoint, shards=shards, evolvable=evolvable, refill=refill)
        _show(found, as_json=as_json)
        if found.is_same and partitions is None:
            return
        if found.refused:
            raise typer.Exit(ExitCode.COULD_NOT_RUN)
        if not (yes or as_json or typer.confirm("Go on?", err=True)):
            typer.echo("Nothing was done.", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED)
        with nullcontext() if as_json else working(session(), _BUILDING):
            evolved(
                *outputs,
                checkpoint=checkpoint,
                shards=shards,
                evolvable=evolvable,
                partitions=partitions,
                refill=refill,
            )
        if not as_json:
            typer.echo("Done: start the query with the new plan. The state of the old one is kept until")
            typer.echo(f"  tablestream drop-generations {checkpoint}")


def drop_generations(checkpoint: Checkpoint, as_json: Json = False, debug: Debug = False) -> None:
    """Remove the state of the plans from which a query has evolved."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        number = dropped(session(), checkpoint)
        if as_json:
            typer.echo(json.dumps({"checkpoint": checkpoint, "removed": number}))
        else:
            typer.echo(f"Removed {number} generation{'s'[: number != 1]}.")


def relocate(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint directory at its new place.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a checkpoint usable that was moved or copied, while no query uses it."""
    with clear_errors(debug=debug, as_json=as_json):
        rewritten = relocate_checkpoint(checkpoint)
        if as_json:
            typer.echo(json.dumps({"checkpoint": checkpoint, "rewritten": rewritten}))
        elif rewritten:
            typer.echo(f"Rewrote {rewritten} file{'s'[: rewritten != 1]}: queries can start on {checkpoint}.")
        else:
            typer.echo(f"{checkpoint} is where its files say: nothing to do.")


class _Tasks(ProgressColumn):
    """The tasks of the stages that run now. A server of Spark Connect does not tell them."""

    max_refresh = 0.5

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._tracker = spark.sparkContext.statusTracker() if has_context(spark) else None

    def render(self, task: Task) -> Text:  # noqa: ARG002 - the stages are Spark's
        try:
            return Text(self._text())
        except (Py4JError, OSError):  # Java has ended: what waits for Spark gets the error that says so
            return Text("")

    def _text(self) -> str:
        tracker = self._tracker
        found = [] if tracker is None else map(tracker.getStageInfo, tracker.getActiveStageIds())
        stages = [one for one in found if one is not None]
        done, of = (sum(getattr(one, name) for one in stages) for name in ("numCompletedTasks", "numTasks"))
        return f"{done:,} of {of:,} tasks" if of else ""


@contextmanager
def working(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a text on standard error, and on a terminal what Spark has done, until the context ends."""
    err = console(stderr=True)
    err.print(Text(text), soft_wrap=True)
    if not err.is_terminal or err.is_dumb_terminal:
        yield
        return
    with Progress(TimeElapsedColumn(), _Tasks(spark), console=err) as shown:
        shown.add_task("")
        yield
