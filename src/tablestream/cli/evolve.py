"""``tablestream evolve`` lets a query that has ended go on with another plan."""

from __future__ import annotations

from typing import Annotated

import typer

from tablestream.cli.check import Evolvable, Shards, outputs_for, show
from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.cli.target import Target, Variables
from tablestream.spark.evolve import check as checked
from tablestream.spark.evolve import evolve as evolved


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a query go on with another plan, from the rows that its state keeps. Shows what will be done, and asks."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        outputs = outputs_for(target, session, checkpoint, variables)
        found = checked(*outputs, checkpoint=checkpoint, shards=shards, evolvable=evolvable)
        show(found, as_json=as_json)
        if found.is_same and partitions is None:
            return
        if found.refused:
            raise typer.Exit(ExitCode.COULD_NOT_RUN)
        if not yes and not as_json:
            typer.confirm("Go on?", abort=True, err=True)
        if not as_json:
            typer.echo("Building the new state from these rows. Ctrl-C leaves the query as it was.", err=True)
        evolved(*outputs, checkpoint=checkpoint, shards=shards, evolvable=evolvable, partitions=partitions)
        if not as_json:
            typer.echo("Done: start the query with the new plan. The state of the old one is kept until")
            typer.echo(f"  tablestream drop-generations {checkpoint}")
