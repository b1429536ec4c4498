"""``tablestream check`` says what becomes of a query if another plan goes on with its checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer
from rich.text import Text

from tablestream.cli.display import console, print_rows
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.cli.sinks import written_to
from tablestream.cli.target import Target, Variables, load, wrong_type
from tablestream.connectors.console.sink import to_console
from tablestream.spark.evolve import Evolution
from tablestream.spark.evolve import check as checked
from tablestream.spark.runner import plan_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from tablestream.spark.requests import OutputRequest

Shards = Annotated[
    int | None,
    typer.Option(min=1, help="The number of shards from now on. Default: as the checkpoint has it."),
]
Evolvable = Annotated[
    bool | None,
    typer.Option(
        "--evolvable/--not-evolvable",
        help="Whether the state keeps every table of the sources whole. Default: as the checkpoint has it.",
    ),
]


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
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what becomes of each source, operator and output of a query if this plan goes on with its checkpoint."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        outputs = outputs_for(target, session, checkpoint, variables)
        if checkpoint is None:
            plan_text(*outputs)
            typer.echo(json.dumps({"object": target}) if as_json else f"{target} has a plan.")
            return
        found = checked(*outputs, checkpoint=checkpoint, shards=shards, evolvable=evolvable)
        show(found, as_json=as_json)
        if found.refused and not found.is_same:
            raise typer.Exit(ExitCode.COULD_NOT_RUN)


def outputs_for(
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


def show(found: Evolution, *, as_json: bool) -> None:
    """Print a line for each part."""
    if as_json:
        typer.echo(json.dumps({"micro_batch": found.micro_batch, "same_plan": found.is_same}))
        for one in found.parts:
            typer.echo(json.dumps(asdict(one)))
        return
    out = console()
    if found.is_same:
        out.print("The checkpoint has this plan: the query can go on with it.")
        return
    columns = ("part", "name", "fate", "why")
    rows = [tuple(str(getattr(one, name)) for name in columns) for one in found.parts]
    table = pl.DataFrame(rows, dict.fromkeys(columns, pl.String), orient="row")
    print_rows(out, f"What becomes of the query after micro-batch {found.micro_batch}", table)
    if found.refused:
        out.print(Text("It cannot evolve into this plan: see what is refused."), soft_wrap=True)
