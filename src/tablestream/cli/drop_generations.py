"""``tablestream drop-generations`` removes the state of the plans from which a query has evolved."""

from __future__ import annotations

import json

import typer

from tablestream.cli.failures import clear_errors
from tablestream.cli.options import Checkpoint, Debug, Json
from tablestream.cli.sessions import sessions
from tablestream.spark.evolve import drop_generations as dropped


def drop_generations(checkpoint: Checkpoint, as_json: Json = False, debug: Debug = False) -> None:
    """Remove the state of the plans from which a query has evolved; it cannot go back then."""
    with clear_errors(debug=debug, as_json=as_json), sessions() as session:
        number = dropped(session(), checkpoint)
        if as_json:
            typer.echo(json.dumps({"checkpoint": checkpoint, "removed": number}))
        else:
            typer.echo(f"Removed {number} generation{'s'[: number != 1]}.")
